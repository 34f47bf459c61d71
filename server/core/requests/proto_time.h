// absl times to and from protobuf's.
#pragma once

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace sheaf {

google::protobuf::Duration ToProto(absl::Duration duration);
// An infinite time stays unset: the default message.
google::protobuf::Timestamp ToProto(absl::Time time);
absl::Duration FromProto(const google::protobuf::Duration& duration);

}  // namespace sheaf
