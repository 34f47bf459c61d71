// RoundAccumulator: the running state of all outputs of one round.
//
//   ASSIGN_OR_RETURN(RoundAccumulator sum, RoundAccumulator::Create(spec));
//   ASSIGN_OR_RETURN(ValidContribution valid, sum.Validate(std::move(contribution)));
//   sum.Accumulate(valid);                      // Cannot fail: everything was checked.
//   ASSIGN_OR_RETURN(AggregateReport report, sum.Report());
//
// Accumulate, Merge, Serialize and Restore commute: under EXACT numerics, and for all but sums of floats under any, the
// report has the same bits however the contributions arrived, were grouped into partial aggregates, or were
// interrupted. Equal states have equal serialised bytes. A mean of no contributions is released as zeros.
//
// A worker that combines several clients sends PartialAggregate(); Validate and Accumulate take that like any
// contribution. Not thread-safe; Validate alone may run beside itself, and beside everything else.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_sink.h"
#include "base/parallel_for.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

// One released tensor. A sparse output w is released as w.indices (INT64 [n, r], sorted, unique), w.values and
// w.dense_shape (INT64 [rank]); a dense one under its own name; a keyed one as w.keys (INT64 [n], or UINT8 [bytes] with
// w.key_offsets, INT64 [n + 1]: key i is bytes offsets[i] to offsets[i + 1]) and w.values, sorted by key.
struct NamedTensor {
  std::string name;
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  // Little-endian, row-major.
  std::string data;
};

// The same, before its bytes are made: a large one never lies in memory as a whole.
struct ReleasedTensor {
  std::string name;
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  // Gives NamedTensor.data in pieces, in order. OUT_OF_RANGE, naming output and coordinate, if a sum does not fit its
  // dtype; else what `take` returned.
  std::function<absl::Status(const ByteSink& take)> write;

  int64_t size_bytes() const;
};
// Of bytes that are made already.
ReleasedTensor ReleaseWhole(NamedTensor tensor);

// What is said of a result, beside its tensors.
struct AggregateSummary {
  // One per output, in the order of the spec.
  std::vector<v1::OutputSummary> outputs;
  // One per sparse output: what its data structures decided. Not part of the result.
  std::vector<v1::FoldCounters> folds;
  int64_t num_contributions = 0;
  int64_t num_clients = 0;
};
struct AggregateReport : AggregateSummary {
  std::vector<NamedTensor> tensors;
};
struct AggregateRelease : AggregateSummary {
  std::vector<ReleasedTensor> tensors;
};

// OK if every output names a known operator, has a name, dtype and shape this operator takes, and modifiers that
// mean something there. INVALID_ARGUMENT naming the output, the operator and the reason; an unknown operator's message
// lists those that exist.
absl::Status ValidateAggregateSpec(const v1::AggregateSpec& spec);

// Memory that the state of each output takes before anybody contributes, in the usual case, in bytes: of dense results.
// What sparse and keyed outputs will take depends on what comes. `spec` is valid.
std::vector<int64_t> EstimateStateBytes(const v1::AggregateSpec& spec);

// The symbols of Sheaf's operator table, in its order.
std::vector<std::string> OperatorSymbols();

class OutputAccumulator;
enum class GrowthDetail;
struct Operator;

// A contribution that fits a spec: right outputs, dtypes, shapes, index ranges, finite values, limits. Only
// RoundAccumulator::Validate makes one. Holds the contribution's bytes.
class ValidContribution {
 public:
  ValidContribution(ValidContribution&&) noexcept;
  ValidContribution& operator=(ValidContribution&&) noexcept;
  ~ValidContribution();

  const v1::Contribution& contribution() const;
  // 1 unless it is a partial aggregate.
  int64_t num_clients() const;
  // Bytes of memory that the states of a partial aggregate hold, which may be many times those it came in; else 0.
  int64_t memory_bytes() const;

 private:
  friend class RoundAccumulator;
  struct Parsed;
  explicit ValidContribution(std::unique_ptr<Parsed> parsed);
  std::unique_ptr<Parsed> parsed_;
};

class RoundAccumulator {
 public:
  // INVALID_ARGUMENT as ValidateAggregateSpec.
  static absl::StatusOr<RoundAccumulator> Create(const v1::AggregateSpec& spec);
  // With operators of the caller's own, which must outlive the accumulator.
  static absl::StatusOr<RoundAccumulator> Create(const v1::AggregateSpec& spec, std::span<const Operator> operators);
  // From Serialize() of an accumulator of the same spec. `state` is untrusted: INVALID_ARGUMENT if it belongs to
  // another spec or version, DATA_LOSS if its checksum or structure is wrong.
  static absl::StatusOr<RoundAccumulator> Restore(const v1::AggregateSpec& spec, std::string_view state);
  static absl::StatusOr<RoundAccumulator> Restore(const v1::AggregateSpec& spec, std::span<const Operator> operators,
                                                  std::string_view state);

  RoundAccumulator(RoundAccumulator&&) noexcept;
  RoundAccumulator& operator=(RoundAccumulator&&) noexcept;
  ~RoundAccumulator();

  // Checks the whole contribution; changes nothing. INVALID_ARGUMENT naming the output and the position;
  // RESOURCE_EXHAUSTED over a limit, naming it.
  absl::StatusOr<ValidContribution> Validate(v1::Contribution contribution) const;
  // The most memory that folding it would add, about (see FoldGrowth). No more exact than it takes to see whether it
  // is at most `room`: then it costs nothing, else a look at every value. May run beside Accumulate: it goes by what
  // memory_bytes told last.
  int64_t GrowthMax(const ValidContribution& valid, int64_t room) const;
  // Has GrowthMax look at no value later on, if it may have to where states may take `memory_max`: for a thread that
  // has the time. Not beside another call with the same contribution.
  void PrepareGrowthMax(ValidContribution& valid, int64_t memory_max) const;
  void Accumulate(const ValidContribution& valid);
  // The same, with large outputs in parts: for servers.
  void Accumulate(const ValidContribution& valid, ParallelFor& parallel);
  // `other` has the same spec.
  void Merge(RoundAccumulator&& other);

  // Canonical, versioned, checksummed.
  std::string Serialize() const;
  // The same in pieces, in little memory beyond the state's own: for servers. The error of `take`.
  absl::Status Write(const ByteSink& take) const;
  // OUT_OF_RANGE, naming output and coordinate, if a sum does not fit its dtype: an integer, or a float where
  // infinities do not propagate.
  absl::StatusOr<AggregateReport> Report() const;
  // The same result in pieces: for servers. Its tensors can be written, more than once, until the accumulator changes.
  absl::StatusOr<AggregateRelease> Release() const;

  int64_t num_contributions() const;
  int64_t num_clients() const;
  // Bytes of memory the state holds, for limits and inspection.
  int64_t memory_bytes() const;
  // The serialised state of each output, keyed by name.
  std::map<std::string, std::string> OutputStates() const;
  // The contribution by which a worker hands in what it has combined. Metrics are the caller's to add.
  v1::Contribution PartialAggregate() const;

 private:
  struct State;
  explicit RoundAccumulator(std::unique_ptr<State> state);
  int64_t Growth(const ValidContribution& valid, GrowthDetail detail) const;
  std::unique_ptr<State> state_;
};

}  // namespace sheaf
