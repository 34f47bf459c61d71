// A message of two bytes per part ("here is an empty one, and another, ...") takes a hundred times its size once it is
// parsed. So parts are counted before that, on the wire.
//
//   RETURN_IF_ERROR(CheckParts(*v1::SyncRequest::descriptor(), stream, &Limits::request_parts_max, limits));
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>

#include "absl/status/status.h"
#include "server/core/limits/limits.h"

namespace sheaf {

// Messages no larger than this have too few parts to matter: nobody needs to count.
inline constexpr int64_t kUncountedBytesMax = 64 << 10;

// RESOURCE_EXHAUSTED if the serialised message of this type has more parts than `limit` allows: messages, repeated
// strings, and fields that the type does not have. OK if it is malformed: that is the parser's to say.
absl::Status CheckParts(const google::protobuf::Descriptor& type, google::protobuf::io::ZeroCopyInputStream& stream,
                        int64_t Limits::*limit, const Limits& limits);

}  // namespace sheaf
