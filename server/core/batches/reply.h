// Reply: how a handler answers, now or later (a parked poll), exactly once.
//
//   void Answer(Reply<v1::GetRoundResponse> reply) { reply(absl::NotFoundError("there is no such round")); }
//
// May be copied; whoever keeps one across events keeps what it refers to, too.
#pragma once

#include <functional>

#include "absl/status/statusor.h"

namespace sheaf {

template <typename Response>
using Reply = std::function<void(absl::StatusOr<Response>)>;

}  // namespace sheaf
