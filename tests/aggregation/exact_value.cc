#include "tests/aggregation/exact_value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace sheaf {
namespace {

constexpr mpfr_prec_t kBits = 2752;

// Exponent of the unit in the last place of a Float that lies at `value`.
template <typename Float>
long UlpExponent(mpfr_srcptr value) {
  using Limits = std::numeric_limits<Float>;
  constexpr long kLowest = Limits::min_exponent - Limits::digits;
  if (mpfr_zero_p(value)) return kLowest;
  return std::max(mpfr_get_exp(value) - Limits::digits, kLowest);
}

}  // namespace

ExactValue::ExactValue() {
  mpfr_init2(value_, kBits);
  mpfr_set_zero(value_, +1);
}

ExactValue::~ExactValue() { mpfr_clear(value_); }

void ExactValue::AddProduct(double value, float weight) {
  mpfr_t product;
  mpfr_init2(product, 77);  // 53 bits times 24.
  int rounded = mpfr_set_d(product, value, MPFR_RNDN);
  rounded |= mpfr_mul_d(product, product, static_cast<double>(weight), MPFR_RNDN);
  rounded |= mpfr_add(value_, value_, product, MPFR_RNDN);
  mpfr_clear(product);
  SHEAF_CHECK(rounded == 0, "the oracle has too few bits");
}

void ExactValue::DivideBy(const ExactValue& divisor) { mpfr_div(value_, value_, divisor.value_, MPFR_RNDN); }

template <>
float ExactValue::Nearest<float>() const {
  return mpfr_get_flt(value_, MPFR_RNDN);
}

template <>
double ExactValue::Nearest<double>() const {
  return mpfr_get_d(value_, MPFR_RNDN);
}

template <typename Float>
double ExactValue::ErrorInUlps(double found) const {
  if (found == static_cast<double>(Nearest<Float>()) && !std::isfinite(found)) return 0;
  if (!std::isfinite(found)) return std::numeric_limits<double>::infinity();
  mpfr_t error;
  mpfr_init2(error, kBits);
  mpfr_sub_d(error, value_, found, MPFR_RNDN);
  mpfr_mul_2si(error, error, -UlpExponent<Float>(value_), MPFR_RNDN);
  const double ulps = std::fabs(mpfr_get_d(error, MPFR_RNDA));
  mpfr_clear(error);
  return ulps;
}

template double ExactValue::ErrorInUlps<float>(double found) const;
template double ExactValue::ErrorInUlps<double>(double found) const;

}  // namespace sheaf
