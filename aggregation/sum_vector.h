// SumVector: many running sums, addressed by element number. What operators keep; they know nothing of arithmetic.
//
//   std::unique_ptr<SumVector> sums = MakeSumVector(v1::FLOAT32, width);
//   sums->Resize(n);
//   sums->Add(at, bytes, count, weight);
//
// ExactSum holds floats, IntegerSum integers. Sums never depend on the order of Add and AddFrom. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "aggregation/state_bytes.h"
#include "sheaf/v1/tensor.pb.h"

namespace sheaf {

// Whose bytes a state is restored from. Both are untrusted; a worker's is held to tighter bounds, so
// that no number of them can overflow a sum.
enum class StateOrigin { kCheckpoint, kPartialAggregate };

// Neighbouring elements.
struct ElementRun {
  int64_t at = 0;
  int64_t count = 0;
};

class SumVector {
 public:
  virtual ~SumVector() = default;

  virtual int64_t size() const = 0;
  // Grows, with zeros. Cheap until elements are touched.
  virtual void Resize(int64_t size) = 0;
  // Element at + i += weight * values[i]. `values` are little-endian and need no alignment. Weight is 1 for integers.
  virtual void Add(int64_t at, const char* values, int64_t count, float weight) = 0;
  // Element at + i += other's element other_at + i. `other` is of the same type.
  virtual void AddFrom(int64_t at, const SumVector& other, int64_t other_at, int64_t count) = 0;

  // Writes the runs one after the other. Equal sums in equal order give equal bytes.
  virtual void Write(std::span<const ElementRun> order, StateWriter& out) const = 0;
  // Adds what Write wrote of size() elements to this, which must be all zero. DATA_LOSS if it is not canonical.
  virtual absl::Status Read(StateReader& in, StateOrigin origin) = 0;

  // Writes `count` values as released: the sum rounded once to the output's type; or, with a divisor, the sum rounded
  // to double, divided, and rounded to the output's type. Returns the offset of the first that does not fit (integers
  // only), else `count`.
  virtual int64_t Round(int64_t at, int64_t count, std::optional<double> divisor, char* values) const = 0;
  // One sum as a double.
  virtual double RoundToDouble(int64_t at) const = 0;

  virtual int64_t memory_bytes() const = 0;
};

// `element_hint`: how many elements there will be, if known; small vectors take small blocks.
std::unique_ptr<SumVector> MakeSumVector(v1::DType dtype, std::optional<int64_t> element_hint);

}  // namespace sheaf
