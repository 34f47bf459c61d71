// Times and durations to and from those of the wire.
//
//   *request.mutable_wait() = ToProto(absl::Seconds(30));
//   const absl::Duration wait = FromProto(request.wait());
//
// Functions of values: thread-safe.
#pragma once

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

#include "absl/time/time.h"

namespace sheaf {

google::protobuf::Duration ToProto(absl::Duration duration);
absl::Duration FromProto(const google::protobuf::Duration& duration);

// An infinite time stays unset: the default message.
google::protobuf::Timestamp ToProto(absl::Time time);
absl::Time FromProto(const google::protobuf::Timestamp& time);

}  // namespace sheaf
