// ContributionValidator: whether a contribution fits a round's spec, and how much memory folding it may take.
//
//   const std::shared_ptr<const ContributionValidator> validator = sum.validator();
//   ASSIGN_OR_RETURN(const ValidContribution valid, validator->Validate(std::move(contribution)));
//   const int64_t growth_max = validator->GrowthMax(valid, room);
//
// It knows the round's spec, and of its accumulator no more than how large that was. Const methods may be called on any
// thread, whatever goes on with the accumulator, and when that was released.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/output/output_layout.h"
#include "base/parallel_for.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

struct CheckedContribution;
enum class GrowthDetail;

// A contribution that fits a spec: right outputs, dtypes, shapes, index ranges, finite values, limits. Only a
// ContributionValidator makes one. Holds the contribution's bytes.
class ValidContribution {
 public:
  ValidContribution(ValidContribution&&) noexcept;
  ValidContribution& operator=(ValidContribution&&) noexcept;
  ~ValidContribution();

  const v1::Contribution& contribution() const;
  // The same, for whoever only wanted to know; nothing is left.
  v1::Contribution Take() &&;
  // 1 unless it is a partial aggregate.
  int64_t num_clients() const;
  // Bytes of memory that the states of a partial aggregate hold, which may be many times those it came in; else 0.
  int64_t memory_bytes() const;
  // It carries states, which have their weights inside, and not values.
  bool is_partial() const;
  // Multiplies the weight that it has in weighted operators, and rounds the product to FLOAT32, up where that would be
  // 0. 0 < factor <= 1; it is no partial aggregate.
  void Discount(float factor);

 private:
  friend class ContributionValidator;
  friend class RoundAccumulator;
  explicit ValidContribution(std::unique_ptr<CheckedContribution> checked);
  std::unique_ptr<CheckedContribution> checked_;
};

class ContributionValidator {
 public:
  explicit ContributionValidator(std::vector<OutputLayout> layouts);

  // Checks the whole contribution. INVALID_ARGUMENT naming the output and the position; RESOURCE_EXHAUSTED over a
  // limit, naming it.
  absl::StatusOr<ValidContribution> Validate(v1::Contribution contribution) const;
  // The same, with a large one shared out: for servers.
  absl::StatusOr<ValidContribution> Validate(v1::Contribution contribution, ParallelFor& parallel) const;
  // The most memory that folding it would add, about (see FoldGrowth). No more exact than it takes to see whether it
  // is at most `room`: then it costs nothing, else a look at every value.
  int64_t GrowthMax(const ValidContribution& valid, int64_t room) const;
  // Has GrowthMax look at no value later on, if it may have to where states may take `memory_max`: for a thread that
  // has the time. Not beside another call with the same contribution.
  void PrepareGrowthMax(ValidContribution& valid, int64_t memory_max, ParallelFor& parallel) const;

  // In the order of the spec.
  const std::vector<OutputLayout>& layouts() const { return layouts_; }

  // For the accumulator. Notes what its output `i` holds.
  void SetHeldBytes(size_t i, int64_t bytes) { held_bytes_[i].store(bytes, std::memory_order_relaxed); }
  // Somebody asked for more than a rough bound: from then on nothing may wait to be folded, because nobody knows what
  // it would take.
  bool is_tight() const { return is_tight_.load(std::memory_order_relaxed); }

 private:
  int64_t Growth(const ValidContribution& valid, GrowthDetail detail) const;

  const std::vector<OutputLayout> layouts_;
  std::vector<std::atomic<int64_t>> held_bytes_;
  mutable std::atomic<bool> is_tight_ = false;
};

}  // namespace sheaf
