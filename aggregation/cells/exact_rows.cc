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
      windows_(width * static_cast<int64_t>(sizeof(int64_t))) {
  SHEAF_CHECK(ExactBlock::kFew <= width && width <= ExactBlock::kRunMax);
  for (Sums& sums : sums_) sums.cells = std::make_unique<ExactSum>(dtype, BlockSize(width));
}

template <typename Visit>
void ExactRows::ForEachPiece(int64_t at, int64_t count, Visit visit) const {
  for (int64_t done = 0; done < count;) {
    const int64_t offset = (at + done) % width_;
    const int piece = static_cast<int>(std::min(width_ - offset, count - done));
    visit(static_cast<uint32_t>((at + done) / width_), static_cast<int>(offset), done, piece);
    done += piece;
  }
}

void ExactRows::Resize(int64_t size) {
  SHEAF_CHECK(size >= this->size() && size % width_ == 0);
  rows_.resize(static_cast<size_t>(size / width_));
}

void ExactRows::Add(int64_t at, const char* values, int64_t count, float weight) {
  SHEAF_CHECK(at % width_ == 0 && count == width_, "rows are added as a whole");
  AddRow(static_cast<uint32_t>(at / width_), values, WeightOf(weight), parts_[0]);
}

inline void ExactRows::PrefetchRow(uint32_t number) const {
  const Row& row = rows_[number];
  if (row.form == kFirst) firsts_.Prefetch(row.place);
  if (row.form == kWindow) windows_.Prefetch(row.place);
  if (row.form == kSum) SumsOf(number).Prefetch(SumAt(row), width_);
}

inline void ExactRows::PrefetchAhead(std::span<const uint32_t> rows, size_t i) const {
  if (i + kFindAhead < rows.size()) __builtin_prefetch(&rows_[rows[i + kFindAhead]]);
  if (i + kFetchAhead < rows.size()) PrefetchRow(rows[i + kFetchAhead]);
}

void ExactRows::AddRows(const RowBatch& batch, float weight) {
  SHEAF_CHECK(batch.width == width_);
  const Weight of_all = WeightOf(weight);
  Part& part = parts_[static_cast<size_t>(batch.part)];
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    PrefetchAhead(batch.rows, i);
    batch.PrefetchValues(i + kFetchAhead);
    AddRow(batch.rows[i], batch.values_of(i), of_all, part);
  }
}

void ExactRows::ReserveRows(int64_t num_rows) {
  firsts_.Reserve(num_rows, kLanes);
  windows_.Reserve(num_rows, kLanes);
}

inline void ExactRows::AddRow(uint32_t number, const char* values, const Weight& weight, Part& part) {
  Row& row = rows_[number];
  if (row.form == kNothing && weight.value == 1) {
    row.form = kFirst;
    row.place = firsts_.Take(part.firsts);
    std::memcpy(firsts_.row(row.place), values, firsts_.row_bytes());
    return;
  }
  if (row.form == kWindow ? AddToWindow(row, values, weight)
                          : row.form != kSum && OpenWindow(row, values, weight, part)) {
    return;
  }
  if (row.form != kSum) Widen(number, part);
  SumsOf(number).Add(SumAt(row), values, width_, weight.value);
}

bool ExactRows::OpenWindow(Row& row, const char* values, const Weight& weight, Part& part) {
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
  Row window{.form = kWindow,
             .place = windows_.Take(part.windows),
             .exponent = static_cast<int16_t>(*exponent),
             .num_adds = 1};
  const double unit = Unit(*exponent);
  SetOneBin(values, width_, weight.value, unit, DigitsOf(window));
  if (row.form == kFirst) {
    AddToOneBin(firsts_.row(row.place), width_, 1, unit, DigitsOf(window));
    part.firsts.GiveBack(row.place);
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

void ExactRows::Widen(uint32_t number, Part& part) {
  Row& row = rows_[number];
  ExactSum& sums = SumsOf(number);
  const Row sum{.form = kSum, .place = sums_[static_cast<size_t>(LaneOf(number))].num_rows++};
  const int64_t end = SumAt(sum) + width_;
  if (end > sums.size()) sums.Resize(end);
  if (row.form == kFirst) {
    sums.Add(SumAt(sum), firsts_.row(row.place), width_, 1);
    part.firsts.GiveBack(row.place);
  } else if (row.form == kWindow) {
    sums.AddBlock(SumAt(sum), Window(row), 0, width_);
    part.windows.GiveBack(row.place);
  }
  row = sum;
}

void ExactRows::AddScattered(const uint32_t*, const WideValue*, int, int) {
  SHEAF_CHECK(false, "cells of rows are added in rows");
}

void ExactRows::Prefetch(int64_t at, int64_t count) const {
  // Not by ForEachPiece, whose call gcc would drop.
  for (int64_t row = at / width_; row * width_ < at + count; ++row) PrefetchRow(static_cast<uint32_t>(row));
}

ExactBlock ExactRows::Window(const Row& row) const {
  return ExactBlock::OfOneBin(width_, row.exponent, row.num_adds * ExactBlock::kOneBinAmount, DigitsOf(row));
}

void ExactRows::AddBlock(int64_t at, const ExactBlock& from, int from_at, int count) {
  ForEachPiece(at, count, [&](uint32_t number, int offset, int64_t done, int piece) {
    Row& row = rows_[number];
    if (row.form != kSum) Widen(number, parts_[0]);
    SumsOf(number).AddBlock(SumAt(row) + offset, from, from_at + static_cast<int>(done), piece);
  });
}

void ExactRows::AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) {
  if (dynamic_cast<const ExactRows*>(&other) != nullptr) return other.AddTo(*this, at, other_at, count);
  ForEachPiece(at, count, [&](uint32_t number, int offset, int64_t done, int piece) {
    Row& row = rows_[number];
    if (row.form != kSum) Widen(number, parts_[0]);
    SumsOf(number).AddFrom(SumAt(row) + offset, other, other_at + done, piece);
  });
}

void ExactRows::AddTo(CellVector& to, int64_t to_at, int64_t at, int64_t count) const {
  ExactRows* const rows = dynamic_cast<ExactRows*>(&to);
  ForEachPiece(at, count, [&](uint32_t number, int offset, int64_t done, int piece) {
    const Row& row = rows_[number];
    const int64_t to_piece = to_at + done;
    if (row.form == kFirst) {
      to.Add(to_piece, firsts_.row(row.place) + offset * value_bytes_, piece, 1);
    } else if (row.form == kWindow && rows != nullptr) {
      rows->AddBlock(to_piece, Window(row), offset, piece);
    } else if (row.form == kWindow) {
      dynamic_cast<ExactSum&>(to).AddBlock(to_piece, Window(row), offset, piece);
    } else if (row.form == kSum) {
      to.AddFrom(to_piece, SumsOf(number), SumAt(row) + offset, piece);
    }
  });
}

void ExactRows::Clear() {
  std::fill(rows_.begin(), rows_.end(), Row{});
  firsts_.Clear();
  windows_.Clear();
  parts_ = {};
  for (Sums& sums : sums_) {
    sums.cells->Clear();
    sums.num_rows = 0;
  }
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

void ExactRows::RoundFirst(const char* first, int count, const ExactDivisors& divisors, char* values) const {
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

void ExactRows::RoundRow(uint32_t number, int offset, int count, const ExactDivisors& divisors, char* values) const {
  const Row& row = rows_[number];
  if (row.form == kFirst) {
    RoundFirst(firsts_.row(row.place) + offset * value_bytes_, count, divisors, values);
  } else if (row.form == kWindow) {
    float* const rounded = reinterpret_cast<float*>(values);
    const ExactBlock window = Window(row);
    divisors.empty() ? window.Round(offset, count, rounded) : window.Divide(offset, count, divisors, rounded);
  } else if (row.form == kSum) {
    SumsOf(number).Round(SumAt(row) + offset, count, divisors, values);
  } else {
    std::memset(values, 0, static_cast<size_t>(count * value_bytes_));
  }
}

int64_t ExactRows::Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const {
  ForEachPiece(at, count, [&](uint32_t number, int offset, int64_t done, int piece) {
    RoundRow(number, offset, piece, divisors.Part(done, piece), values + done * value_bytes_);
  });
  return count;
}

int64_t ExactRows::RoundRows(const RoundedRows& batch, const ExactDivisors& divisors) const {
  SHEAF_CHECK(batch.width == width_);
  char* values = batch.values;
  for (size_t i = 0; i < batch.rows.size(); ++i, values += batch.row_bytes) {
    PrefetchAhead(batch.rows, i);
    RoundRow(batch.rows[i], 0, width_, divisors, values);
  }
  return static_cast<int64_t>(batch.rows.size()) * width_;
}

int64_t ExactRows::memory_bytes() const {
  int64_t bytes = static_cast<int64_t>(sizeof *this + rows_.capacity() * sizeof(Row));
  size_t num_firsts = firsts_.num_rows(), num_windows = windows_.num_rows();
  for (const Part& part : parts_) {
    num_firsts -= part.firsts.num_untouched();
    num_windows -= part.windows.num_untouched();
    bytes += part.firsts.memory_bytes() + part.windows.memory_bytes();
  }
  for (const Sums& sums : sums_) bytes += sums.cells->memory_bytes();
  return bytes + static_cast<int64_t>(num_firsts * firsts_.row_bytes() + num_windows * windows_.row_bytes());
}

int ExactRows::most_bins() const {
  // What is kept as it came may open as many as any floats.
  constexpr int kTop = std::numeric_limits<float>::max_exponent, kLow = -149, kDoubleTop = 1024, kDoubleLow = -1074;
  size_t num_firsts = firsts_.num_rows(), num_windows = windows_.num_rows();
  for (const Part& part : parts_) {
    num_firsts -= part.firsts.num_unused();
    num_windows -= part.windows.num_unused();
  }
  int bins = 0;
  for (const Sums& sums : sums_) bins = std::max(bins, sums.cells->most_bins());
  if (num_windows > 0) bins = std::max(bins, 1);
  if (num_firsts == 0) return bins;
  return std::max(bins, dtype_ == v1::FLOAT32 ? ExactBlock::NewBinsMax(kTop, kLow)
                                              : ExactBlock::NewBinsMax(kDoubleTop, kDoubleLow));
}

}  // namespace sheaf
