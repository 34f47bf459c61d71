// Whether nothing was heard of a server for so long that it was killed, or is cut off from the store.
#pragma once

#include "proto/time.h"
#include "sheaf/v1/inspection_service.pb.h"

namespace sheaf {

// Servers are heard of each second, and more often.
inline constexpr absl::Duration kLongSilence = absl::Seconds(10);

inline bool IsSilent(const v1::Server& server) { return FromProto(server.silent_for()) > kLongSilence; }

}  // namespace sheaf
