// OutputAccumulator: the running state of one output, whatever its operator.
//
// The laws are in operators.h. Values that reach it were checked (see contribution_check.h): Accumulate and Merge
// cannot fail. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "aggregation/output/checked_value.h"
#include "aggregation/output/output_layout.h"
#include "aggregation/output/release.h"
#include "aggregation/wire/state_bytes.h"
#include "aggregation/wire/state_origin.h"
#include "base/parallel_for.h"

namespace sheaf {

class OutputAccumulator {
 public:
  explicit OutputAccumulator(const OutputLayout& layout) : layout_(layout) {}
  virtual ~OutputAccumulator() = default;
  OutputAccumulator(const OutputAccumulator&) = delete;
  OutputAccumulator& operator=(const OutputAccumulator&) = delete;

  // Of one contribution each, in this order.
  void Accumulate(CheckedValues values, ParallelFor& parallel);
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
  // Appends the released tensors, which are written from this as it is then, by the threads of `parallel`; the summary;
  // and, if there are any, the counters of the fold. OUT_OF_RANGE if a sum does not fit: here, or when a tensor is
  // written.
  absl::Status AppendTo(AggregateRelease& release, ParallelFor& parallel) const;
  virtual int64_t memory_bytes() const = 0;
  // Folds what waits to be folded, so that memory_bytes tells all.
  virtual void Settle() {}
  // The most bins that one of its blocks of exact sums has; 0 if it has none.
  virtual int most_bins() const { return 0; }

  const OutputLayout& layout() const { return layout_; }
  int64_t num_clients() const { return num_clients_; }

 protected:
  // What comes out does not depend on how many threads there are.
  virtual void DoAccumulate(CheckedValues values, ParallelFor& parallel) = 0;
  virtual void DoMerge(const OutputAccumulator& other) = 0;
  virtual void DoWrite(StateWriter& out) const = 0;
  virtual absl::Status DoRead(StateReader& in, StateOrigin origin) = 0;
  // Appends the tensors, which may refer to this and to `parallel`; fills in the summary's divisor_value, touched and
  // released. What comes out does not depend on how many threads there are.
  virtual absl::Status DoRelease(AggregateRelease& release, v1::OutputSummary& summary,
                                 ParallelFor& parallel) const = 0;

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
