// NonzeroCount: how many of the values a cell took in are not zero (NaN is not zero, -0 is). Released as INT64.
#pragma once

#include "aggregation/cells/cell_vector.h"
#include "aggregation/memory/paged_array.h"
#include "sheaf/v1/tensor.pb.h"

namespace sheaf {

class NonzeroCount final : public CellVector {
 public:
  NonzeroCount(v1::DType dtype, ZeroedPool* pool) : dtype_(dtype), counts_(pool) {}

  int64_t size() const override { return counts_.size(); }
  void Resize(int64_t size) override { counts_.Resize(size, 0); }
  void Add(int64_t at, const char* values, int64_t count, float weight) override;
  void AddScattered(const uint32_t* cells, const WideValue* values, int count, int precision) override;
  void AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) override;
  void Clear() override { counts_.Fill(0); }
  void WriteChunk(int64_t at, int count, StateWriter& out) const override;
  absl::Status ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) override;
  int64_t Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const override;
  int64_t memory_bytes() const override { return static_cast<int64_t>(sizeof *this) + counts_.memory_bytes(); }

 private:
  v1::DType dtype_;
  PagedArray<int64_t> counts_;
};

}  // namespace sheaf
