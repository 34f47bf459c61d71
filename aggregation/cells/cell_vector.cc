#include "aggregation/cells/cell_vector.h"

#include "base/check.h"

namespace sheaf {

void CellVector::ToDivisors(int64_t, int64_t, ExactDivisorColumns&) const {
  SHEAF_CHECK(false, "only sums of floats are divided by");
}

}  // namespace sheaf
