// ExactDivisor: what a sum is divided by, without any rounding: a number of clients, or a sum of weights.
// ExactDivisors: what many are.
//
//   cells.Round(0, n, ExactDivisor::OfCount(3), bytes);
//
//   ExactDivisorColumns columns;
//   weights.ToDivisors(0, n, columns);
//   cells.Round(0, n, columns, bytes);
//
// Two doubles hold nearly every such number whole; `whole` says where the rest is of those that they do not. Value
// types that point into the sum of weights: as long as that lives and does not change.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sheaf {

class ExactBlock;

// One number of a block; of none if that is null.
struct ExactCell {
  const ExactBlock* block = nullptr;
  int cell = 0;
};

struct ExactDivisor {
  // The nearest double; > 0.
  double upper = 1;
  // The double that is nearest to what is left.
  double lower = 0;
  // The number, if upper + lower is not all of it.
  ExactCell whole;

  // 0 < count <= 2^62.
  static ExactDivisor OfCount(int64_t count) {
    const double upper = static_cast<double>(count);
    return {.upper = upper, .lower = static_cast<double>(count - static_cast<int64_t>(upper)), .whole = {}};
  }
};

// Many of them.
struct ExactDivisorColumns {
  std::vector<double> upper;
  // One each, or none if nothing is left of any.
  std::vector<double> lower;
  // One each, or none if upper + lower is all of every one.
  std::vector<ExactCell> whole;
};

// Nothing, one number for all, or one for each. A view.
class ExactDivisors {
 public:
  ExactDivisors() = default;
  ExactDivisors(const ExactDivisor& all)  // NOLINT(google-explicit-constructor)
      : upper_(&all.upper, 1), lower_(&all.lower, 1), whole_(&all.whole, 1) {}
  ExactDivisors(const ExactDivisorColumns& each)  // NOLINT(google-explicit-constructor)
      : upper_(each.upper), lower_(each.lower), whole_(each.whole) {}

  bool empty() const { return upper_.empty(); }
  bool is_one() const { return upper_.size() == 1; }
  std::span<const double> upper() const { return upper_; }
  std::span<const double> lower() const { return lower_; }
  // Of the sum at `i`.
  ExactDivisor At(int64_t i) const {
    const auto at = static_cast<size_t>(is_one() ? 0 : i);
    return {.upper = upper_[at],
            .lower = lower_.empty() ? 0 : lower_[at],
            .whole = whole_.empty() ? ExactCell{} : whole_[at]};
  }
  // Those of `count` sums from `begin` on.
  ExactDivisors Part(int64_t begin, int64_t count) const {
    if (upper_.size() <= 1) return *this;
    ExactDivisors part;
    const auto at = static_cast<size_t>(begin), n = static_cast<size_t>(count);
    part.upper_ = upper_.subspan(at, n);
    if (!lower_.empty()) part.lower_ = lower_.subspan(at, n);
    if (!whole_.empty()) part.whole_ = whole_.subspan(at, n);
    return part;
  }

 private:
  std::span<const double> upper_;
  std::span<const double> lower_;
  std::span<const ExactCell> whole_;
};

}  // namespace sheaf
