// IntegerSum: running sums of INT32, INT64 or UINT64 in 128 bits. They cannot wrap: it would take 2^63 contributions
// of the largest value. A sum that does not fit its type is an error when it is released, and only then.
#pragma once

#include <memory>
#include <vector>

#include "aggregation/sum_vector.h"

namespace sheaf {

class IntegerSum final : public SumVector {
 public:
  explicit IntegerSum(v1::DType dtype);

  int64_t size() const override { return size_; }
  void Resize(int64_t size) override;
  void Add(int64_t at, const char* values, int64_t count, float weight) override;
  void AddFrom(int64_t at, const SumVector& other, int64_t other_at, int64_t count) override;
  void Write(std::span<const ElementRun> order, StateWriter& out) const override;
  absl::Status Read(StateReader& in, StateOrigin origin) override;
  int64_t Round(int64_t at, int64_t count, std::optional<double> divisor, char* values) const override;
  double RoundToDouble(int64_t at) const override;
  int64_t memory_bytes() const override;

 private:
  // Two's complement; unsigned, so that no state from outside can make an addition undefined.
  using Sum = unsigned __int128;
  static constexpr int kBlock = 1024;

  Sum& At(int64_t element);
  Sum ValueAt(int64_t element) const;

  v1::DType dtype_;
  int64_t size_ = 0;
  // Each null until an element of it is touched.
  std::vector<std::unique_ptr<Sum[]>> blocks_;
};

}  // namespace sheaf
