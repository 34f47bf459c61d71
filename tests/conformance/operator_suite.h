// The laws of operators, checked for a spec and some contributions. Run it on every row of the operator table, and on
// an operator of your own.
//
//   SeededRandom random(seed);
//   CheckOperatorLaws(spec, contributions, random);   // Catch2 requirements inside.
//
// The laws: folding in any order, in any groups sent as partial aggregates, merged in any tree, with states written to
// bytes and read back anywhere between, gives the same bytes as folding one by one; the identity changes nothing; and
// the released tensors are those of the oracle, byte for byte (or both refuse for the same reason).
#pragma once

#include <string>
#include <vector>

#include "aggregation/round_accumulator.h"
#include "base/random.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

void CheckOperatorLaws(const v1::AggregateSpec& spec, const std::vector<v1::Contribution>& contributions,
                       Random& random);

// Everything a report says, as text and bytes to compare: tensors, summaries, counts. An error is its message.
std::string Fingerprint(const absl::StatusOr<AggregateReport>& report);

}  // namespace sheaf
