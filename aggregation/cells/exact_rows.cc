#include "aggregation/cells/exact_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "aggregation/exact/exact_kernels.h"
#include "base/check.h"
#include "base/status_macros.h"

// The invariant of windows, between calls: with e the exponent and k = num_adds,
//
//   each digit is an integer, |digit| <= k * (2^51 + 1), k <= kAddsMax, and the row's sums are digit * 2^e.
//
// AddToOneBin takes numbers below 2^(51 + e) that are multiples of 2^e, whole, so a call adds at most 2^51 to a digit
// and keeps it; k goes up by one. When k reaches kAddsMax the digits are looked at: where the largest leaves room, k
// becomes what that needs; else the row becomes a sum, whose bins carry. So digits stay below 2^61, which is within
// what ExactBlock allows of a bin (2^62), and a window may be read as one.

namespace sheaf {
namespace {

constexpr uint16_t kAddsMax = 1 << 10;
static_assert(kAddsMax * ExactBlock::kOneBinAmount <= (int64_t{1} << 61) + kAddsMax);
// A window that is looked at goes on for as many adds again, at least.
constexpr int64_t kFullDigit = kAddsMax / 2 * ExactBlock::kOneBinAmount;
// How many rows before its turn it is found out where a row lies, and its memory fetched.
constexpr size_t kFindAhead = 32;
constexpr size_t kFetchAhead = 16;

// 2^exponent, for exponents far from the ends of a double's range.
double Unit(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }

bool DividesByOne(const ExactDivisors& divisors) {
  return divisors.is_one() && divisors.upper()[0] == 1 && (divisors.lower().empty() || divisors.lower()[0] == 0);
}

// About as many cells of a sum share their bins.
constexpr int kSharing = 256;
int BlockSize(int width) { return width >= kSharing ? width : kSharing / width * width; }

}  // namespace

ExactRows::ExactRows(v1::DType dtype, int width)
    : dtype_(dtype),
      width_(width),
      value_bytes_(dtype == v1::FLOAT32 ? sizeof(float) : sizeof(double)),
      firsts_(width * value_bytes_),
      windows_(width * static_cast<int64_t>(sizeof(int64_t))),
      sums_(dtype, BlockSize(width)) {
  SHEAF_CHECK(ExactBlock::kFew <= width && width <= ExactBlock::kRunMax);
}

template <typename Visit>
void ExactRows::ForEachPiece(int64_t at, int64_t count, Visit visit) const {
  for (int64_t done = 0; done < count;) {
    const int64_t offset = (at + done) % width_;
    const int piece = static_cast<int>(std::min(width_ - offset, count - done));
    visit(static_cast<size_t>((at + done) / width_), static_cast<int>(offset), done, piece);
    done += piece;
  }
}

void ExactRows::Resize(int64_t size) {
  SHEAF_CHECK(size >= this->size() && size % width_ == 0);
  rows_.resize(static_cast<size_t>(size / width_));
}

void ExactRows::Add(int64_t at, const char* values, int64_t count, float weight) {
  SHEAF_CHECK(at % width_ == 0 && count == width_, "rows are added as a whole");
  AddRow(rows_[static_cast<size_t>(at / width_)], values, WeightOf(weight));
}

inline void ExactRows::PrefetchRow(const Row& row) const {
  if (row.form == kFirst) firsts_.Prefetch(row.place);
  if (row.form == kWindow) windows_.Prefetch(row.place);
  if (row.form == kSum) sums_.Prefetch(SumAt(row), width_);
}

inline void ExactRows::PrefetchAhead(std::span<const uint32_t> rows, size_t i) const {
  if (i + kFindAhead < rows.size()) __builtin_prefetch(&rows_[rows[i + kFindAhead]]);
  if (i + kFetchAhead < rows.size()) PrefetchRow(rows_[rows[i + kFetchAhead]]);
}

void ExactRows::AddRows(const RowBatch& batch, float weight) {
  SHEAF_CHECK(batch.width == width_);
  const Weight of_all = WeightOf(weight);
  const char* values = batch.values;
  for (size_t i = 0; i < batch.rows.size(); ++i, values += batch.row_bytes) {
    PrefetchAhead(batch.rows, i);
    AddRow(rows_[batch.rows[i]], values, of_all);
  }
}

void ExactRows::AddRow(Row& row, const char* values, const Weight& weight) {
  if (row.form == kNothing && weight.value == 1) {
    row.form = kFirst;
    row.place = firsts_.Take();
    std::memcpy(firsts_.row(row.place), values, firsts_.row_bytes());
    return;
  }
  if (row.form == kWindow ? AddToWindow(row, values, weight) : row.form != kSum && OpenWindow(row, values, weight)) {
    return;
  }
  if (row.form != kSum) Widen(row);
  sums_.Add(SumAt(row), values, width_, weight.value);
}

bool ExactRows::OpenWindow(Row& row, const char* values, const Weight& weight) {
  // The 53 bits of a double are more than one digit takes.
  if (dtype_ != v1::FLOAT32) return false;
  const FloatRange range = ScanFloats(values, width_);
  const FloatRange first = row.form == kFirst ? ScanFloats(firsts_.row(row.place), width_) : FloatRange{};
  if (!range.is_finite || !first.is_finite) return false;
  if (range.is_all_zero) return true;
  int top = range.top + weight.range.top, low = range.low + weight.range.low;
  if (!first.is_all_zero) top = std::max(top, first.top), low = std::min(low, first.low);
  const std::optional<int> exponent = ExactBlock::OneBinExponent(top, low);
  if (!exponent.has_value()) return false;
  Row window{.form = kWindow, .place = windows_.Take(), .exponent = static_cast<int16_t>(*exponent), .num_adds = 1};
  const double unit = Unit(*exponent);
  SetOneBin(values, width_, weight.value, unit, DigitsOf(window));
  if (row.form == kFirst) {
    AddToOneBin(firsts_.row(row.place), width_, 1, unit, DigitsOf(window));
    firsts_.GiveBack(row.place);
    ++window.num_adds;
  }
  row = window;
  return true;
}

bool ExactRows::AddToWindow(Row& row, const char* values, const Weight& weight) {
  const FloatRange range = ScanFloats(values, width_);
  if (!range.is_finite) return false;
  if (range.is_all_zero) return true;
  if (!ExactBlock::OneBinTakes(row.exponent, range.top + weight.range.top, range.low + weight.range.low)) return false;
  int64_t* const digits = DigitsOf(row);
  if (row.num_adds == kAddsMax) {
    const int64_t largest = LargestMagnitude(digits, width_);
    if (largest > kFullDigit) return false;
    row.num_adds = static_cast<uint16_t>(largest / ExactBlock::kOneBinAmount + 1);
  }
  AddToOneBin(values, width_, weight.value, Unit(row.exponent), digits);
  ++row.num_adds;
  return true;
}

void ExactRows::Widen(Row& row) {
  const Row sum{.form = kSum, .place = num_sums_++};
  const int64_t end = SumAt(sum) + width_;
  if (end > sums_.size()) sums_.Resize(end);
  if (row.form == kFirst) {
    sums_.Add(SumAt(sum), firsts_.row(row.place), width_, 1);
    firsts_.GiveBack(row.place);
  } else if (row.form == kWindow) {
    sums_.AddBlock(SumAt(sum), Window(row), 0, width_);
    windows_.GiveBack(row.place);
  }
  row = sum;
}

void ExactRows::AddScattered(const uint32_t*, const WideValue*, int, int) {
  SHEAF_CHECK(false, "cells of rows are added in rows");
}

void ExactRows::Prefetch(int64_t at, int64_t count) const {
  // Not by ForEachPiece, whose call gcc would drop.
  for (int64_t row = at / width_; row * width_ < at + count; ++row) PrefetchRow(rows_[static_cast<size_t>(row)]);
}

ExactBlock ExactRows::Window(const Row& row) const {
  return ExactBlock::OfOneBin(width_, row.exponent, row.num_adds * ExactBlock::kOneBinAmount, DigitsOf(row));
}

void ExactRows::AddBlock(int64_t at, const ExactBlock& from, int from_at, int count) {
  ForEachPiece(at, count, [&](size_t i, int offset, int64_t done, int piece) {
    Row& row = rows_[i];
    if (row.form != kSum) Widen(row);
    sums_.AddBlock(SumAt(row) + offset, from, from_at + static_cast<int>(done), piece);
  });
}

void ExactRows::AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) {
  if (dynamic_cast<const ExactRows*>(&other) != nullptr) return other.AddTo(*this, at, other_at, count);
  ForEachPiece(at, count, [&](size_t i, int offset, int64_t done, int piece) {
    Row& row = rows_[i];
    if (row.form != kSum) Widen(row);
    sums_.AddFrom(SumAt(row) + offset, other, other_at + done, piece);
  });
}

void ExactRows::AddTo(CellVector& to, int64_t to_at, int64_t at, int64_t count) const {
  ExactRows* const rows = dynamic_cast<ExactRows*>(&to);
  ForEachPiece(at, count, [&](size_t i, int offset, int64_t done, int piece) {
    const Row& row = rows_[i];
    const int64_t to_piece = to_at + done;
    if (row.form == kFirst) {
      to.Add(to_piece, FirstOf(row, offset), piece, 1);
    } else if (row.form == kWindow && rows != nullptr) {
      rows->AddBlock(to_piece, Window(row), offset, piece);
    } else if (row.form == kWindow) {
      dynamic_cast<ExactSum&>(to).AddBlock(to_piece, Window(row), offset, piece);
    } else if (row.form == kSum) {
      to.AddFrom(to_piece, sums_, SumAt(row) + offset, piece);
    }
  });
}

void ExactRows::Clear() {
  std::fill(rows_.begin(), rows_.end(), Row{});
  firsts_.Clear();
  windows_.Clear();
  sums_.Clear();
  num_sums_ = 0;
}

void ExactRows::WriteChunk(int64_t at, int count, StateWriter& out) const {
  ExactSum chunk(dtype_, count);
  chunk.Resize(count);
  AddTo(chunk, 0, at, count);
  chunk.WriteChunk(0, count, out);
}

absl::Status ExactRows::ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) {
  ExactSum chunk(dtype_, count);
  chunk.Resize(count);
  RETURN_IF_ERROR(chunk.ReadChunk(0, count, in, origin));
  AddFrom(at, chunk, 0, count);
  return absl::OkStatus();
}

void ExactRows::RoundFirst(const Row& row, int offset, int count, const ExactDivisors& divisors, char* values) const {
  const char* const first = FirstOf(row, offset);
  if (divisors.empty() || DividesByOne(divisors)) {
    if (dtype_ == v1::FLOAT64) return SumsOfOne(first, count, reinterpret_cast<double*>(values));
    return SumsOfOne(first, count, reinterpret_cast<float*>(values));
  }
  if (dtype_ == v1::FLOAT32) {
    const FloatRange range = ScanFloats(first, count);
    const std::optional<int> exponent = ExactBlock::OneBinExponent(range.top, range.low);
    if (range.is_finite && exponent.has_value()) {
      int64_t digits[ExactBlock::kRunMax];
      SetOneBin(first, count, 1, Unit(*exponent), digits);
      const ExactBlock block = ExactBlock::OfOneBin(count, *exponent, ExactBlock::kOneBinAmount, digits);
      return block.Divide(0, count, divisors, reinterpret_cast<float*>(values));
    }
  }
  ExactSum sum(dtype_, count);
  sum.Resize(count);
  sum.Add(0, first, count, 1);
  sum.Round(0, count, divisors, values);
}

void ExactRows::RoundRow(const Row& row, int offset, int count, const ExactDivisors& divisors, char* values) const {
  if (row.form == kFirst) {
    RoundFirst(row, offset, count, divisors, values);
  } else if (row.form == kWindow) {
    float* const rounded = reinterpret_cast<float*>(values);
    const ExactBlock window = Window(row);
    divisors.empty() ? window.Round(offset, count, rounded) : window.Divide(offset, count, divisors, rounded);
  } else if (row.form == kSum) {
    sums_.Round(SumAt(row) + offset, count, divisors, values);
  } else {
    std::memset(values, 0, static_cast<size_t>(count * value_bytes_));
  }
}

int64_t ExactRows::Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const {
  ForEachPiece(at, count, [&](size_t i, int offset, int64_t done, int piece) {
    RoundRow(rows_[i], offset, piece, divisors.Part(done, piece), values + done * value_bytes_);
  });
  return count;
}

int64_t ExactRows::RoundRows(const RoundedRows& batch, const ExactDivisors& divisors) const {
  SHEAF_CHECK(batch.width == width_);
  char* values = batch.values;
  for (size_t i = 0; i < batch.rows.size(); ++i, values += batch.row_bytes) {
    PrefetchAhead(batch.rows, i);
    RoundRow(rows_[batch.rows[i]], 0, width_, divisors, values);
  }
  return static_cast<int64_t>(batch.rows.size()) * width_;
}

int64_t ExactRows::memory_bytes() const {
  return static_cast<int64_t>(sizeof *this - sizeof sums_ + rows_.capacity() * sizeof(Row)) + firsts_.memory_bytes() +
         windows_.memory_bytes() + sums_.memory_bytes();
}

int ExactRows::most_bins() const {
  // What is kept as it came may open as many as any floats.
  constexpr int kTop = std::numeric_limits<float>::max_exponent, kLow = -149, kDoubleTop = 1024, kDoubleLow = -1074;
  int bins = std::max(sums_.most_bins(), windows_.is_empty() ? 0 : 1);
  if (firsts_.is_empty()) return bins;
  return std::max(bins, dtype_ == v1::FLOAT32 ? ExactBlock::NewBinsMax(kTop, kLow)
                                              : ExactBlock::NewBinsMax(kDoubleTop, kDoubleLow));
}

}  // namespace sheaf
