// IntegerSum: running sums of INT32, INT64 or UINT64 values in 128 bits: they never wrap, and are checked against the
// dtype only when they are released.
#pragma once

#include "aggregation/cells/cell_vector.h"
#include "aggregation/memory/paged_array.h"

namespace sheaf {

template <typename Integer>
class IntegerSum final : public CellVector {
 public:
  // `pool`: as CellUse.
  explicit IntegerSum(ZeroedPool* pool) : sums_(pool) {}

  int64_t size() const override { return sums_.size(); }
  void Resize(int64_t size) override { sums_.Resize(size, 0); }
  void Add(int64_t at, const char* values, int64_t count, float weight) override;
  void AddScattered(const uint32_t* cells, const WideValue* values, int count, int precision) override;
  void AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) override;
  void Clear() override { sums_.Fill(0); }
  void WriteChunk(int64_t at, int count, StateWriter& out) const override;
  absl::Status ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) override;
  int64_t Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const override;
  int64_t memory_bytes() const override { return static_cast<int64_t>(sizeof *this) + sums_.memory_bytes(); }

 private:
  PagedArray<__int128> sums_;
};

extern template class IntegerSum<int32_t>;
extern template class IntegerSum<int64_t>;
extern template class IntegerSum<uint64_t>;

}  // namespace sheaf
