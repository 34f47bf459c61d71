// OutputAccumulator: the running state of one output, whatever its operator.
//
// The laws are in operators.h. Values that reach it were checked (see contribution_check.h): Accumulate and Merge
// cannot fail. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "aggregation/cell_vector.h"
#include "aggregation/exact/exact_kernels.h"
#include "aggregation/output_layout.h"
#include "aggregation/round_accumulator.h"
#include "base/parallel_for.h"

namespace sheaf {

// One contribution's value of one output. Does not own its bytes.
struct CheckedValue {
  // Row-major elements: all of a dense output, or one row of `width` per key.
  std::string_view data;
  // Sparse outputs: the linear coordinate of each row; keyed outputs of INT64_KEYS: its key. In any order, repeats
  // allowed.
  std::span<const int64_t> keys;
  // Keyed outputs of STRING_KEYS.
  const google::protobuf::RepeatedPtrField<std::string>* string_keys = nullptr;
  // Finite and > 0.
  float weight = 1;
  // Dense outputs of FLOAT32 that are summed EXACT: what each ExactBlock::kRunMax elements in turn span.
  std::span<const FloatRange> ranges;
  // See fold_growth.h; nothing if nobody counted them.
  std::optional<int64_t> bins;
};

class OutputAccumulator {
 public:
  explicit OutputAccumulator(const OutputLayout& layout) : layout_(layout) {}
  virtual ~OutputAccumulator() = default;
  OutputAccumulator(const OutputAccumulator&) = delete;
  OutputAccumulator& operator=(const OutputAccumulator&) = delete;

  void Accumulate(const CheckedValue& value, ParallelFor& parallel);
  // `other` is of an equal layout.
  void Merge(const OutputAccumulator& other);
  // Canonical, checksummed, with the layout's signature.
  std::string Serialize() const;
  // The same in pieces: `body_bytes` is MeasureBody().
  int64_t MeasureBody() const;
  int64_t SerializedBytes(int64_t body_bytes) const;
  void Write(int64_t body_bytes, StateWriter& out) const;
  // Into an accumulator of nothing. INVALID_ARGUMENT if `state` belongs to another output or version, DATA_LOSS if its
  // checksum or structure is wrong; after an error the accumulator is not to be used.
  absl::Status Restore(std::string_view state, StateSource source);
  // Appends the released tensors, the summary and, if there are any, the counters of the fold. OUT_OF_RANGE if a
  // sum does not fit: here, or when a tensor is written.
  absl::Status Release(AggregateRelease& release) const;
  virtual int64_t memory_bytes() const = 0;
  // Folds what waits to be folded, so that memory_bytes tells all.
  virtual void Settle() {}
  // The most bins that one of its blocks of exact sums has; 0 if it has none.
  virtual int most_bins() const { return 0; }

  const OutputLayout& layout() const { return layout_; }
  int64_t num_clients() const { return num_clients_; }

 protected:
  virtual void DoAccumulate(const CheckedValue& value) = 0;
  // For operators whose elements are independent: as DoAccumulate, with its parts at once.
  virtual void DoAccumulateInParts(const CheckedValue& value, ParallelFor&) { DoAccumulate(value); }
  virtual void DoMerge(const OutputAccumulator& other) = 0;
  virtual void DoWrite(StateWriter& out) const = 0;
  virtual absl::Status DoRead(StateReader& in, StateOrigin origin) = 0;
  // Appends the tensors, which may refer to this; fills in the summary's divisor_value, touched and released.
  virtual absl::Status DoRelease(AggregateRelease& release, v1::OutputSummary& summary) const = 0;

  void WriteBody(StateWriter& out) const {
    out.Put(num_clients_);
    DoWrite(out);
  }
  absl::Status OutOfRange(int64_t coordinate, int64_t offset) const;

 private:
  const OutputLayout layout_;
  int64_t num_clients_ = 0;
};

}  // namespace sheaf
