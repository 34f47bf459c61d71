// The laws that hold for whatever an attacker managed to get in. A broken one ends the process with a message: that is
// what a fuzzer notices, and what fails fuzz_corpus_test.
#pragma once

#include "absl/status/status.h"
#include "aggregation/round_accumulator.h"

namespace sheaf::fuzz {

// A refusal blames the input, in one sentence that survives JSON and protobuf (valid UTF-8), and is not as long as the
// input it is about.
void CheckRefusal(const absl::Status& status);

enum class Provenance {
  // Folded from values alone.
  kValues,
  // From states too: their sums may be larger than what the next one takes from a partial aggregate.
  kStates,
};

// What it holds survives bytes and groups: Restore of Serialize, and its partial aggregate, report
// and serialise the same; and it reports, or says which integer does not fit.
void CheckState(const v1::AggregateSpec& spec, const RoundAccumulator& accumulator, Provenance provenance);

// Equal tensors, in order, by name, type, shape and bytes; or equal refusals.
void CheckSameReport(const absl::StatusOr<AggregateReport>& found, const absl::StatusOr<AggregateReport>& expected);

}  // namespace sheaf::fuzz
