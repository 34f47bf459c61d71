// Reply: how a handler answers, now or later (a parked poll), exactly once.
#pragma once

#include <functional>

#include "absl/status/statusor.h"

namespace sheaf {

template <typename Response>
using Reply = std::function<void(absl::StatusOr<Response>)>;

}  // namespace sheaf
