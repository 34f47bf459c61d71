// Whether a round may take over tasks of another: their contributions were asked for by the other's spec, and are
// judged and folded by its own. Pure.
//
//   RETURN_IF_ERROR(CheckContinuation(RoundId("r-7k2m9q4x"), before, spec));   // "it is of job 'a', this one of 'b'"
#pragma once

#include "absl/status/status.h"
#include "sheaf/v1/round.pb.h"
#include "storage/ids.h"

namespace sheaf {

// INVALID_ARGUMENT, naming the first difference and the remedy. Both specs are as PrepareRound makes them.
absl::Status CheckContinuation(const RoundId& before_id, const v1::RoundSpec& before, const v1::RoundSpec& spec);

}  // namespace sheaf
