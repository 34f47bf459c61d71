// WithinFloatBounds: sums of floats under F64 and F32 against what aggregation/cells/float_sum.h promises of them.
//
//   const OperatorSuite suite{.compare = WithinFloatBounds, .order_may_show = true};
//
// For each element: the addends are gathered from the contributions, their true sum and the sum of their magnitudes are
// worked out exactly, and the released value must lie within the bound that follows, its rounding included. Rows must
// be those that min_contributors lets through; drop_zeros may leave a row out that is within the bound of zero.
#pragma once

#include "absl/status/status.h"
#include "tests/conformance/operator_suite.h"

namespace sheaf {

absl::Status WithinFloatBounds(const OperatorTrial& trial, const AggregateReport& expected,
                               const AggregateReport& found);
// True if a running sum may leave the cells' range: it is an infinity then, and a partial aggregate that holds one is
// refused where only finite values are taken.
bool MayOverflow(const OperatorTrial& trial);

}  // namespace sheaf
