// RoundAccumulator: the running state of all outputs of one round.
//
//   ASSIGN_OR_RETURN(RoundAccumulator sum, RoundAccumulator::Create(spec));
//   ASSIGN_OR_RETURN(const ValidContribution valid, sum.Validate(std::move(contribution)));
//   sum.Accumulate(valid);                                                      // Cannot fail: all was checked.
//   ASSIGN_OR_RETURN(const AggregateReport report, sum.Report());               // So far; folding may go on.
//   ASSIGN_OR_RETURN(const AggregateRelease release, std::move(sum).Release());  // For good: `sum` is consumed.
//
// Accumulate, Merge, Serialize and Restore commute: under EXACT numerics, and for all but sums of floats under any, the
// report has the same bits however the contributions arrived, were grouped into partial aggregates, or were
// interrupted. Equal states have equal serialised bytes. A mean of no contributions is released as zeros.
//
// A worker that combines several clients sends PartialAggregate(); Validate and Accumulate take that like any
// contribution. Not thread-safe; validator() is.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/contribution_validator.h"
#include "aggregation/output/operator.h"
#include "aggregation/output/release.h"
#include "base/byte_sink.h"
#include "base/parallel_for.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

class RoundAccumulator {
 public:
  // INVALID_ARGUMENT as LayoutsOf.
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

  // As ContributionValidator; changes nothing.
  absl::StatusOr<ValidContribution> Validate(v1::Contribution contribution) const;
  // To validate on any thread, whatever goes on here; it does not keep the state in memory.
  std::shared_ptr<const ContributionValidator> validator() const;
  void Accumulate(const ValidContribution& valid);
  // The same by several threads; and of several contributions, in this order: for servers.
  void Accumulate(const ValidContribution& valid, ParallelFor& parallel);
  void Accumulate(std::span<const ValidContribution* const> valid, ParallelFor& parallel);
  // Consumes `other`, which has the same spec.
  void Merge(RoundAccumulator&& other);

  // Canonical, versioned, checksummed.
  std::string Serialize() const;
  // The same in pieces, in little memory beyond the state's own: for servers. The error of `take`.
  absl::Status Write(const ByteSink& take) const;
  // OUT_OF_RANGE, naming output and coordinate, if a sum does not fit its dtype: an integer, or a float where
  // infinities do not propagate.
  absl::StatusOr<AggregateReport> Report() const;
  // The same result in pieces. Consumes the accumulator, also where it fails; its state lives as long as one of the
  // tensors, which may be written more than once.
  absl::StatusOr<AggregateRelease> Release() &&;
  // The same, made by several threads whenever a tensor is written: for servers. `parallel` outlives the tensors. The
  // thread that hands a piece over may be any of them; one does at a time.
  absl::StatusOr<AggregateRelease> Release(ParallelFor& parallel) &&;

  int64_t num_contributions() const;
  int64_t num_clients() const;
  // Bytes of memory the state holds, for limits and inspection.
  int64_t memory_bytes() const;
  // The serialised state of each output, keyed by name.
  std::map<std::string, std::string> OutputStates() const;
  // The contribution by which a worker hands in what it has combined. Metrics are the caller's to add.
  v1::Contribution PartialAggregate() const;
  // The same, serialised, in pieces: for servers. The error of `take`.
  absl::Status WritePartialAggregate(const ByteSink& take) const;

 private:
  struct State;
  explicit RoundAccumulator(std::unique_ptr<State> state);
  // CHECKs that there is one.
  State& state();
  const State& state() const;
  // Null once the accumulator was consumed.
  std::unique_ptr<State> state_;
};

}  // namespace sheaf
