// ExactValue: a sum of products without any rounding, by GNU MPFR. The oracle that shares nothing with Sheaf.
//
//   ExactValue sum;
//   sum.AddProduct(1e38, 3.5f);
//   float nearest = sum.Nearest<float>();   // Half to even, subnormals at their own precision.
//   double error = sum.ErrorInUlps<float>(found);
//
// 2752 bits hold any sum of fewer than 2^100 products of a double and a float; that no addition was rounded is checked
// by MPFR's own flag. Not thread-safe.
#pragma once

#include <mpfr.h>

namespace sheaf {

class ExactValue {
 public:
  ExactValue();
  ~ExactValue();
  ExactValue(const ExactValue&) = delete;
  ExactValue& operator=(const ExactValue&) = delete;

  // Both finite.
  void AddProduct(double value, float weight);
  // this / divisor, to 2752 bits: some 2700 more than what is compared with it.
  void DivideBy(const ExactValue& divisor);

  template <typename Float>
  Float Nearest() const;
  // |found - this| in units of the last place of a Float at this value; infinity if `found` is not finite and
  // Nearest is.
  template <typename Float>
  double ErrorInUlps(double found) const;

 private:
  mpfr_t value_;
};

}  // namespace sheaf
