#include "aggregation/cells/float_rows.h"

#include <algorithm>
#include <cstring>

#include "aggregation/cells/float_numbers.h"
#include "aggregation/cells/float_sum.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// How many rows before its turn it is found out where a row lies, and its memory fetched.
constexpr size_t kFindAhead = 32;
constexpr size_t kFetchAhead = 16;

}  // namespace

template <typename Cell, typename Value>
FloatRows<Cell, Value>::FloatRows(int width)
    : width_(width),
      firsts_(width * static_cast<int64_t>(sizeof(Value))),
      sums_(width * static_cast<int64_t>(sizeof(Cell))) {
  SHEAF_CHECK(width > 0);
}

template <typename Cell, typename Value>
template <typename Visit>
void FloatRows<Cell, Value>::ForEachPiece(int64_t at, int64_t count, Visit visit) const {
  for (int64_t done = 0; done < count;) {
    const int64_t offset = (at + done) % width_;
    const int64_t piece = std::min(width_ - offset, count - done);
    visit(static_cast<size_t>((at + done) / width_), offset, done, piece);
    done += piece;
  }
}

template <typename Cell, typename Value>
void FloatRows<Cell, Value>::Resize(int64_t size) {
  SHEAF_CHECK(size >= this->size() && size % width_ == 0);
  rows_.resize(static_cast<size_t>(size / width_));
}

template <typename Cell, typename Value>
void FloatRows<Cell, Value>::Add(int64_t at, const char* values, int64_t count, float weight) {
  SHEAF_CHECK(at % width_ == 0 && count == width_, "rows are added as a whole");
  AddRow(rows_[static_cast<size_t>(at / width_)], values, weight, parts_[0]);
}

template <typename Cell, typename Value>
inline void FloatRows<Cell, Value>::PrefetchRow(const Row& row) const {
  if (row.form == kFirst) firsts_.Prefetch(row.place);
  if (row.form == kSum) sums_.Prefetch(row.place);
}

template <typename Cell, typename Value>
inline void FloatRows<Cell, Value>::PrefetchAhead(std::span<const uint32_t> rows, size_t i) const {
  if (i + kFindAhead < rows.size()) __builtin_prefetch(&rows_[rows[i + kFindAhead]]);
  if (i + kFetchAhead < rows.size()) PrefetchRow(rows_[rows[i + kFetchAhead]]);
}

template <typename Cell, typename Value>
void FloatRows<Cell, Value>::AddRows(const RowBatch& batch, float weight) {
  SHEAF_CHECK(batch.width == width_);
  Part& part = parts_[static_cast<size_t>(batch.part)];
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    PrefetchAhead(batch.rows, i);
    batch.PrefetchValues(i + kFetchAhead);
    AddRow(rows_[batch.rows[i]], batch.values_of(i), weight, part);
  }
}

template <typename Cell, typename Value>
void FloatRows<Cell, Value>::ReserveRows(int64_t num_rows) {
  if (kKeepsFirsts) firsts_.Reserve(num_rows, kLanes);
  sums_.Reserve(num_rows, kLanes);
}

template <typename Cell, typename Value>
inline void FloatRows<Cell, Value>::AddRow(Row& row, const char* values, float weight, Part& part) {
  if (row.form == kSum) return AddNumbers<Cell, Value>(values, width_, weight, SumOf(row));
  if (row.form == kFirst) return AddNumbers<Cell, Value>(values, width_, weight, Widen(row, part));
  if (kKeepsFirsts && weight == 1) {
    row.form = kFirst;
    row.place = firsts_.Take(part.firsts);
    std::memcpy(firsts_.row(row.place), values, firsts_.row_bytes());
  } else {
    row.form = kSum;
    row.place = sums_.Take(part.sums);
    SetNumbers<Cell, Value>(values, width_, weight, SumOf(row));
  }
}

template <typename Cell, typename Value>
Cell* FloatRows<Cell, Value>::Widen(Row& row, Part& part) {
  if (row.form == kSum) return SumOf(row);
  Row sum;
  sum.form = kSum;
  sum.place = sums_.Take(part.sums);
  if (row.form == kFirst) {
    SetNumbers<Cell, Value>(firsts_.row(row.place), width_, 1, SumOf(sum));
    part.firsts.GiveBack(row.place);
  } else {
    std::fill_n(SumOf(sum), width_, Cell{0});
  }
  row = sum;
  return SumOf(row);
}

template <typename Cell, typename Value>
void FloatRows<Cell, Value>::AddScattered(const uint32_t*, const WideValue*, int, int) {
  SHEAF_CHECK(false, "cells of rows are added in rows");
}

template <typename Cell, typename Value>
void FloatRows<Cell, Value>::Prefetch(int64_t at, int64_t count) const {
  // Not by ForEachPiece, whose call gcc would drop.
  for (int64_t row = at / width_; row * width_ < at + count; ++row) PrefetchRow(rows_[static_cast<size_t>(row)]);
}

template <typename Cell, typename Value>
void FloatRows<Cell, Value>::AddCells(int64_t at, const Cell* cells, int64_t count) {
  ForEachPiece(at, count, [&](size_t row, int64_t offset, int64_t done, int64_t piece) {
    Cell* const sums = Widen(rows_[row], parts_[0]) + offset;
    for (int64_t i = 0; i < piece; ++i) sums[i] += cells[done + i];
  });
}

template <typename Cell, typename Value>
void FloatRows<Cell, Value>::AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) {
  if (dynamic_cast<const FloatRows*>(&other) != nullptr) return other.AddTo(*this, at, other_at, count);
  const auto& from = dynamic_cast<const FloatSum<Cell, Value>&>(other);
  ForEachPiece(at, count, [&](size_t row, int64_t offset, int64_t done, int64_t piece) {
    Cell* const sums = Widen(rows_[row], parts_[0]) + offset;
    for (int64_t i = 0; i < piece; ++i) sums[i] += from.cell(other_at + done + i);
  });
}

template <typename Cell, typename Value>
void FloatRows<Cell, Value>::AddTo(CellVector& to, int64_t to_at, int64_t at, int64_t count) const {
  FloatRows* const rows = dynamic_cast<FloatRows*>(&to);
  ForEachPiece(at, count, [&](size_t i, int64_t offset, int64_t done, int64_t piece) {
    const Row& row = rows_[i];
    if (row.form == kFirst) {
      to.Add(to_at + done, reinterpret_cast<const char*>(FirstOf(row) + offset), piece, 1);
    } else if (row.form == kSum && rows != nullptr) {
      rows->AddCells(to_at + done, SumOf(row) + offset, piece);
    } else if (row.form == kSum) {
      dynamic_cast<FloatSum<Cell, Value>&>(to).AddCells(to_at + done, SumOf(row) + offset, piece);
    }
  });
}

template <typename Cell, typename Value>
void FloatRows<Cell, Value>::Clear() {
  std::fill(rows_.begin(), rows_.end(), Row{});
  firsts_.Clear();
  sums_.Clear();
  parts_ = {};
}

template <typename Cell, typename Value>
void FloatRows<Cell, Value>::WriteChunk(int64_t at, int count, StateWriter& out) const {
  FloatSum<Cell, Value> chunk(nullptr);
  chunk.Resize(count);
  AddTo(chunk, 0, at, count);
  chunk.WriteChunk(0, count, out);
}

template <typename Cell, typename Value>
absl::Status FloatRows<Cell, Value>::ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) {
  FloatSum<Cell, Value> chunk(nullptr);
  chunk.Resize(count);
  RETURN_IF_ERROR(chunk.ReadChunk(0, count, in, origin));
  AddFrom(at, chunk, 0, count);
  return absl::OkStatus();
}

template <typename Cell, typename Value>
void FloatRows<Cell, Value>::RoundRow(const Row& row, int64_t offset, int64_t count, const ExactDivisors& divisors,
                                      char* values) const {
  Value* const to = reinterpret_cast<Value*>(values);
  if (row.form == kFirst) {
    RoundNumbers(FirstOf(row) + offset, count, divisors, to);
  } else if (row.form == kSum) {
    RoundNumbers(SumOf(row) + offset, count, divisors, to);
  } else {
    std::fill_n(to, count, Value{0});
  }
}

template <typename Cell, typename Value>
int64_t FloatRows<Cell, Value>::Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const {
  ForEachPiece(at, count, [&](size_t i, int64_t offset, int64_t done, int64_t piece) {
    RoundRow(rows_[i], offset, piece, divisors.Part(done, piece), values + done * static_cast<int64_t>(sizeof(Value)));
  });
  return count;
}

template <typename Cell, typename Value>
int64_t FloatRows<Cell, Value>::RoundRows(const RoundedRows& batch, const ExactDivisors& divisors) const {
  SHEAF_CHECK(batch.width == width_);
  char* values = batch.values;
  for (size_t i = 0; i < batch.rows.size(); ++i, values += batch.row_bytes) {
    PrefetchAhead(batch.rows, i);
    RoundRow(rows_[batch.rows[i]], 0, width_, divisors, values);
  }
  return static_cast<int64_t>(batch.rows.size()) * width_;
}

template <typename Cell, typename Value>
int64_t FloatRows<Cell, Value>::memory_bytes() const {
  int64_t bytes = static_cast<int64_t>(sizeof *this + rows_.capacity() * sizeof(Row));
  size_t num_firsts = firsts_.num_rows(), num_sums = sums_.num_rows();
  for (const Part& part : parts_) {
    num_firsts -= part.firsts.num_untouched();
    num_sums -= part.sums.num_untouched();
    bytes += part.firsts.memory_bytes() + part.sums.memory_bytes();
  }
  return bytes + static_cast<int64_t>(num_firsts * firsts_.row_bytes() + num_sums * sums_.row_bytes());
}

template class FloatRows<double, float>;
template class FloatRows<double, double>;
template class FloatRows<float, float>;

}  // namespace sheaf
