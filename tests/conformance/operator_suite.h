// OperatorSuite: holds operators to their laws. For every row of Sheaf's table, and for operators of your own.
//
//   const OperatorSuite suite{.operators = kMyOperators, .oracle = MyOracle};
//   const absl::Status status = suite.CheckMany(2000, [](Random& random) { return RandomTrial(random); });
//   // "seed 17: the order of contributions shows: ..." and the smallest trial that was found.
//
// The laws, for each trial:
//   oracle     what is released is what the oracle works out from the contributions, or both refuse in the same words
//   identity   an accumulator of nothing changes nothing, merged from either side
//   order      contributions in another order
//   grouping   in any groups, folded apart and merged, or sent as partial aggregates
//   restart    written to bytes and read back anywhere between: equal bytes, and equal reports
//   report     to report changes nothing
//   parts      validated, folded and released in parts, which several threads may do in any order: equal reports
// "Equal" is byte for byte, of states and of reports. No test framework is needed: broken laws come back as a status.
// See docs/guides/write-an-operator.md. Thread-safe if the functions in it are.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/operators.h"
#include "aggregation/round_accumulator.h"
#include "base/random.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

// A round: what is asked, and what comes.
struct OperatorTrial {
  v1::AggregateSpec spec;
  std::vector<v1::Contribution> contributions;
};

// What a trial must release: written the slow and obvious way, from the contributions alone.
using Oracle = std::function<absl::StatusOr<AggregateReport>(const OperatorTrial&)>;
// OK if `found` will do where the oracle says `expected`; otherwise what is wrong.
using Comparison =
    std::function<absl::Status(const OperatorTrial&, const AggregateReport& expected, const AggregateReport& found)>;

// ReferenceAggregate: of Sheaf's own operators.
absl::StatusOr<AggregateReport> ReferenceOracle(const OperatorTrial& trial);
// The same tensors, summaries and counts, to the last bit.
absl::Status SameBits(const OperatorTrial& trial, const AggregateReport& expected, const AggregateReport& found);

struct OperatorSuite {
  // The table that specs name operators of. Must outlive the suite.
  std::span<const Operator> operators = Operators();
  Oracle oracle = ReferenceOracle;
  Comparison compare = SameBits;
  // For sums in plain floating point (F64, F32), whose bits depend on the order: `order` and `grouping` then ask that
  // each report compares well with the oracle's, not that states are equal.
  bool order_may_show = false;

  // OK, or INTERNAL naming the law that is broken, and how. `random` chooses orders and groups.
  absl::Status Check(const OperatorTrial& trial, Random& random) const;

  // Check on `trials` trials, drawn with the seeds 0, 1, 2, ... The first that fails is made smaller, by leaving
  // contributions out, and shown with its seed.
  absl::Status CheckMany(int trials, const std::function<OperatorTrial(Random&)>& draw) const;
};

// Everything a report says, as text and bytes to compare: tensors, summaries, counts. An error is its message.
std::string Fingerprint(const absl::StatusOr<AggregateReport>& report);

}  // namespace sheaf
