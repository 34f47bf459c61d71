// Whether a repeated CreateRound asks for what the first call with its request_id did.
//
//   const std::string difference = SpecDifference(stored, request.spec(), prepared.spec);   // "goal: 2 -> 3"
//
// What is stored has every default written out, by the server that created the round: perhaps an older one, or one with
// other settings. So a field that the request leaves to a default is only compared where that default can be no other:
// where it depends on the server's limits (lease_duration, deadline, attempt_deadline, retry, contribution_bytes_max),
// or where the stored spec does not know it, the request means what the first call got.
#pragma once

#include <string>

#include "sheaf/v1/round.pb.h"

namespace sheaf {

// The first difference, in a few words; empty if there is none. `stored` and `prepared` are as PrepareRound makes them,
// without listed tasks; `asked` is what `prepared` was made of.
std::string SpecDifference(const v1::RoundSpec& stored, const v1::RoundSpec& asked, const v1::RoundSpec& prepared);

}  // namespace sheaf
