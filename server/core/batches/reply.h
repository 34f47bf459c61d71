// Reply: how a handler answers, now or later (a parked poll), exactly once.
//
//   const Reply<v1::SyncResponse> reply = [](const auto& answer) { LogInfo("{}", answer.status().ToString()); };
//   reply(absl::CancelledError("the caller has gone"));
//
// May be copied; whoever keeps one across events keeps what it refers to, too.
#pragma once

#include <functional>

#include "absl/status/statusor.h"

namespace sheaf {

template <typename Response>
using Reply = std::function<void(absl::StatusOr<Response>)>;

}  // namespace sheaf
