// CellVector: many running values of one reduction, addressed by number. What operators keep; cells know nothing of
// coordinates, operators nothing of arithmetic.
//
//   cells.Resize(n);                        // All are the reduction's identity.
//   cells.Add(0, bytes, n, weight);         // Of one contribution.
//   cells.AddFrom(0, other, 0, n);          // Of another vector.
//   cells.Round(0, n, divisors, released);  // As released; the cells stay.
//
// MakeCells makes them. All but FloatSum have the same bits whatever the order of Add, AddScattered and AddFrom. Not
// thread-safe, but for lanes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "aggregation/exact/exact_divisor.h"
#include "aggregation/exact/float_range.h"
#include "aggregation/wire/state_bytes.h"
#include "aggregation/wire/state_origin.h"

namespace sheaf {

// Cells are serialised in chunks of this many.
inline constexpr int kCellChunk = 1024;

// A value of any dtype in eight bytes: the bits of a double (FLOAT32 and FLOAT64, weight included), or of an int64
// (INT32, INT64) or uint64.
using WideValue = uint64_t;

// Rows of cells to be added to. Row r is cells r * width, r * width + 1, ...; rows may repeat.
struct RowBatch {
  std::span<const uint32_t> rows;
  // Which row of the values is for each; empty: they are in order.
  std::span<const uint32_t> positions;
  int64_t width = 1;
  // One row of `row_bytes` after the other.
  const char* values = nullptr;
  int64_t row_bytes = 0;
  // Whose memory rows get that move: threads that add rows at once have parts 0, 1, ..., each another.
  int part = 0;

  const char* values_of(size_t i) const {
    return values + static_cast<int64_t>(positions.empty() ? i : positions[i]) * row_bytes;
  }
  // Says that the values of row i will be asked for soon; those that are in order come by themselves. Inline, always:
  // gcc drops calls of functions that only prefetch.
  [[gnu::always_inline]] void PrefetchValues(size_t i) const {
    if (i >= positions.size()) return;
    constexpr int64_t kLine = 64, kLines = 8;
    const char* const begin = values_of(i);
    for (int64_t at = 0; at < std::min(row_bytes, kLines * kLine); at += kLine) __builtin_prefetch(begin + at);
  }
};
// Rows of cells to be rounded, into one row of `row_bytes` after the other.
struct RoundedRows {
  std::span<const uint32_t> rows;
  int64_t width = 1;
  char* values = nullptr;
  int64_t row_bytes = 0;
};

// Rows are dealt to lanes: AddRows of rows of one lane touches nothing that it touches for another's.
inline constexpr int kLanes = 8;
// Neighbours share a lane: what is kept for them lies together.
inline constexpr int kLaneRun = 32;
constexpr int LaneOf(uint32_t row) { return static_cast<int>(row / kLaneRun % kLanes); }

class CellVector {
 public:
  virtual ~CellVector() = default;
  CellVector() = default;
  CellVector(const CellVector&) = delete;
  CellVector& operator=(const CellVector&) = delete;

  virtual int64_t size() const = 0;
  // Grows, with identities. Cheap until cells are touched.
  virtual void Resize(int64_t size) = 0;
  // Takes weight * values[i] into cell at + i. `values` are little-endian and need no alignment. Weight is finite and
  // > 0, and 1 for everything but sums of floats.
  virtual void Add(int64_t at, const char* values, int64_t count, float weight) = 0;
  // The same of values of which it is known what each ExactBlock::kRunMax of them in turn span; at is a multiple of
  // that.
  virtual void AddScanned(int64_t at, const char* values, int64_t count, float weight, std::span<const FloatRange>) {
    Add(at, values, count, weight);
  }
  // Add of each row of a batch, one after the other.
  virtual void AddRows(const RowBatch& batch, float weight);
  // Whether AddRows of different lanes may be called at once, by several threads; so many rows altogether, for which
  // ReserveRows has made room.
  virtual bool has_lanes() const { return true; }
  virtual void ReserveRows(int64_t) {}
  // Takes values[i] into cell cells[i]; a cell may occur repeatedly. Floats are multiples of 2^(exponent - precision +
  // 1).
  virtual void AddScattered(const uint32_t* cells, const WideValue* values, int count, int precision) = 0;
  // Says that cells at, at + 1, ... will be asked for soon.
  virtual void Prefetch(int64_t, int64_t) const {}
  // Takes other's cell other_at + i into cell at + i. `other` is of the same type.
  virtual void AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) = 0;
  // The same the other way round: takes cell at + i into cell to_at + i of `to`. Of vectors that may keep their cells
  // in several ways: these know how, and AddFrom of others does not.
  virtual void AddTo(CellVector& to, int64_t to_at, int64_t at, int64_t count) const {
    to.AddFrom(to_at, *this, at, count);
  }

  // Back to identities; the size stays.
  virtual void Clear() = 0;
  // Writes the `count` <= kCellChunk cells from `at` on. Equal values give equal bytes.
  virtual void WriteChunk(int64_t at, int count, StateWriter& out) const = 0;
  // Takes what WriteChunk wrote of `count` cells into cells at, at + 1, ... which must be identities. DATA_LOSS if it
  // is not canonical.
  virtual absl::Status ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) = 0;

  // Writes `count` values as released, where they are aligned: the cells, or their quotients by divisors (one for all
  // or one for each), rounded once to the output's type; a sum of floats that does not fit is an infinity. FloatSum
  // rounds the divisor and the quotient to double, first. Returns the offset of the first integer that does not fit,
  // else `count`.
  virtual int64_t Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const = 0;
  // Round of each row of a batch, one after the other; `divisors` are none, or one for all. Returns the number of cells
  // before the first integer that does not fit, else that of all.
  virtual int64_t RoundRows(const RoundedRows& batch, const ExactDivisors& divisors) const;
  // Sets the divisors to the sums of `count` cells; 0 where nothing was added. Of sums of floats.
  virtual void ToDivisors(int64_t at, int64_t count, ExactDivisorColumns& divisors) const;

  virtual int64_t memory_bytes() const = 0;
  // Of ExactSum: the most bins that one of its blocks has.
  virtual int most_bins() const { return 0; }
};

}  // namespace sheaf
