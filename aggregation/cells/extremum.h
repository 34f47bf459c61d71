// Extremum: the smallest or largest of the values a cell took in, in the values' own type.
//
// A cell that took in nothing holds the identity: the largest value of the type (an infinity, for floats) for a
// minimum, the smallest for a maximum. -0 is taken as +0, and any NaN makes the cell a quiet NaN, so order does not
// matter.
#pragma once

#include "aggregation/cells/cell_vector.h"
#include "aggregation/memory/paged_array.h"

namespace sheaf {

template <typename Value, bool kIsMax>
class Extremum final : public CellVector {
 public:
  // `pool`: as CellUse.
  explicit Extremum(ZeroedPool* pool) : cells_(pool) {}

  int64_t size() const override { return cells_.size(); }
  void Resize(int64_t size) override { cells_.Resize(size, Identity()); }
  void Add(int64_t at, const char* values, int64_t count, float weight) override;
  void AddScattered(const uint32_t* cells, const WideValue* values, int count, int precision) override;
  void AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) override;
  void Clear() override { cells_.Fill(Identity()); }
  void WriteChunk(int64_t at, int count, StateWriter& out) const override;
  absl::Status ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) override;
  int64_t Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const override;
  int64_t memory_bytes() const override { return static_cast<int64_t>(sizeof *this) + cells_.memory_bytes(); }

 private:
  static Value Identity();
  static Value Better(Value a, Value b);

  PagedArray<Value> cells_;
};

}  // namespace sheaf
