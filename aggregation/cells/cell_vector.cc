#include "aggregation/cells/cell_vector.h"

#include "base/check.h"

namespace sheaf {
namespace {

// Rows lie anywhere: each is asked for so many rows before its turn.
constexpr size_t kAhead = 8;

}  // namespace

void CellVector::AddRows(const RowBatch& batch, float weight) {
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    if (i + kAhead < batch.rows.size()) Prefetch(batch.rows[i + kAhead] * batch.width, batch.width);
    Add(batch.rows[i] * batch.width, batch.values_of(i), batch.width, weight);
  }
}

int64_t CellVector::RoundRows(const RoundedRows& batch, const ExactDivisors& divisors) const {
  char* values = batch.values;
  for (size_t i = 0; i < batch.rows.size(); ++i, values += batch.row_bytes) {
    if (i + kAhead < batch.rows.size()) Prefetch(batch.rows[i + kAhead] * batch.width, batch.width);
    const int64_t num_fitting = Round(batch.rows[i] * batch.width, batch.width, divisors, values);
    if (num_fitting < batch.width) return static_cast<int64_t>(i) * batch.width + num_fitting;
  }
  return static_cast<int64_t>(batch.rows.size()) * batch.width;
}

void CellVector::ToDivisors(int64_t, int64_t, ExactDivisorColumns&) const {
  SHEAF_CHECK(false, "only sums of floats are divided by");
}

}  // namespace sheaf
