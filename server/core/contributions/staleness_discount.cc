#include "server/core/contributions/staleness_discount.h"

#include <cmath>

namespace sheaf {

float StalenessDiscount(const v1::StalenessPolicy& policy, int32_t staleness) {
  if (policy.function() != v1::POLYNOMIAL) return 1;
  // The smallest is 101^-10, which FLOAT32 has in full precision.
  return static_cast<float>(std::pow(1.0 + staleness, -policy.exponent()));
}

void DiscountStale(const v1::StalenessPolicy& policy, int32_t staleness, ValidContribution& valid) {
  const float factor = StalenessDiscount(policy, staleness);
  if (factor < 1) valid.Discount(factor);
}

}  // namespace sheaf
