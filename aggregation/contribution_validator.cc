#include "aggregation/contribution_validator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "aggregation/contribution_check.h"
#include "aggregation/fold_growth.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {

ValidContribution::ValidContribution(std::unique_ptr<CheckedContribution> checked) : checked_(std::move(checked)) {}
ValidContribution::ValidContribution(ValidContribution&&) noexcept = default;
ValidContribution& ValidContribution::operator=(ValidContribution&&) noexcept = default;
ValidContribution::~ValidContribution() = default;
const v1::Contribution& ValidContribution::contribution() const { return checked_->contribution; }
v1::Contribution ValidContribution::Take() && { return std::move(checked_->contribution); }
int64_t ValidContribution::num_clients() const { return checked_->num_clients; }

int64_t ValidContribution::memory_bytes() const {
  int64_t bytes = 0;
  for (const CheckedOutput& output : checked_->outputs) {
    if (output.partial != nullptr) bytes += output.partial->memory_bytes();
  }
  return bytes;
}

bool ValidContribution::is_partial() const { return checked_->outputs.front().partial != nullptr; }

void ValidContribution::Discount(float factor) {
  SHEAF_CHECK(factor > 0 && factor <= 1, "a discount of {}", factor);
  SHEAF_CHECK(!is_partial(), "a partial aggregate is discounted");
  for (CheckedOutput& output : checked_->outputs) {
    output.value.weight = std::max(output.value.weight * factor, std::numeric_limits<float>::denorm_min());
  }
}

ContributionValidator::ContributionValidator(std::vector<OutputLayout> layouts)
    : layouts_(std::move(layouts)), held_bytes_(layouts_.size()) {}

absl::StatusOr<ValidContribution> ContributionValidator::Validate(v1::Contribution contribution) const {
  InlineFor one_by_one;
  return Validate(std::move(contribution), one_by_one);
}

absl::StatusOr<ValidContribution> ContributionValidator::Validate(v1::Contribution contribution,
                                                                  ParallelFor& parallel) const {
  auto checked = std::make_unique<CheckedContribution>();
  checked->contribution = std::move(contribution);
  RETURN_IF_ERROR(CheckContribution(layouts_, parallel, *checked));
  return ValidContribution(std::move(checked));
}

int64_t ContributionValidator::Growth(const ValidContribution& valid, GrowthDetail detail) const {
  const std::vector<CheckedOutput>& outputs = valid.checked_->outputs;
  int64_t bytes = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int64_t held_bytes = held_bytes_[i].load(std::memory_order_relaxed);
    bytes += outputs[i].partial != nullptr ? FoldGrowth(*outputs[i].partial, held_bytes)
                                           : FoldGrowth(layouts_[i], outputs[i].value, held_bytes, detail);
  }
  return bytes;
}

int64_t ContributionValidator::GrowthMax(const ValidContribution& valid, int64_t room) const {
  const int64_t worst = Growth(valid, GrowthDetail::kWorst);
  if (worst <= room) return worst;
  is_tight_.store(true, std::memory_order_relaxed);
  return Growth(valid, GrowthDetail::kScanned);
}

void ContributionValidator::PrepareGrowthMax(ValidContribution& valid, int64_t memory_max,
                                             ParallelFor& parallel) const {
  int64_t held = 0;
  for (const std::atomic<int64_t>& bytes : held_bytes_) held += bytes.load(std::memory_order_relaxed);
  // Others like it may be on their way.
  constexpr int64_t kOthers = 16;
  if (Growth(valid, GrowthDetail::kWorst) <= (memory_max - held) / kOthers) return;
  std::vector<CheckedOutput>& outputs = valid.checked_->outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].partial == nullptr) outputs[i].value.bins = CountBins(layouts_[i], outputs[i].value, parallel);
  }
}

}  // namespace sheaf
