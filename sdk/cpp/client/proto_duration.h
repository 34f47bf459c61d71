// absl::Duration and protobuf's, to and fro. Thread-safe.
#pragma once

#include <google/protobuf/duration.pb.h>

#include "absl/time/time.h"

namespace sheaf {

google::protobuf::Duration ToProtoDuration(absl::Duration duration);
absl::Duration FromProtoDuration(const google::protobuf::Duration& duration);

}  // namespace sheaf
