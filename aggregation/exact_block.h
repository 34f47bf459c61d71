// ExactBlock: the exact sums of up to 1024 neighbouring elements.
//
// A sum is kept as integer digits in bins at absolute positions: bin k counts units of 2^(32k).
//
//      value  =  ... + digit[1] * 2^32 + digit[0] * 1 + digit[-1] * 2^-32 + digit[-2] * 2^-64 + ...
//
// Adding a number means cutting it into integers, one per bin, and adding integers: nothing is ever rounded, no bin is
// ever dropped, so the digits stand for the true sum in whatever order the numbers came. A block holds only the bins
// that some number touched (two for most tensors). Digits are 64-bit, far wider than 32: carries wait until a bin could
// overflow, which takes at least 2^12 adds. `load` is the bound that says when.
//
//   ExactBlock block(1024);
//   block.AddFloats(0, bytes, 1024, 3.0f);   // += 3 * value, exactly
//   float rounded = block.RoundToFloat(17);  // the only rounding there is
//
// The weighted product of two floats has 48 bits, exact in a double; that of a double and a float has 77, cut as an
// integer. Zeros add nothing, whatever their sign; an exact zero rounds to +0. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace sheaf {

class ExactBlock {
 public:
  static constexpr int kSizeMax = 1024;
  // Bins that finite numbers, weighted, summed 2^31 times, can reach. 2^(32 * -39) <= 2^-1223 and 2^1152 < 2^(32 * 37).
  static constexpr int kBinMin = -40;
  static constexpr int kBinMax = 40;

  struct Bin {
    int index = 0;
    // No digit is larger in magnitude.
    int64_t load = 0;
    std::unique_ptr<int64_t[]> digits;
  };

  // 0 < size <= kSizeMax.
  explicit ExactBlock(int size) : size_(size) {}

  // Adds weight * values[i] to element at + i. Values are finite, little-endian, unaligned; weight is finite and > 0.
  void AddFloats(int at, const char* values, int n, float weight);
  void AddDoubles(int at, const char* values, int n, float weight);
  // Adds elements of another block.
  void AddBlock(int at, const ExactBlock& other, int other_at, int n);
  // Adds digits of one bin, as Normalise leaves them.
  void AddDigits(int at, int index, const int32_t* digits, int n);

  // Carries, until every digit lies in [-2^31, 2^31), and forgets bins of zeros: the one canonical form of these sums.
  void Normalise();

  // The sum, rounded once, half to even; beyond the largest finite number an infinity.
  double RoundToDouble(int i) const;
  float RoundToFloat(int i) const;

  int size() const { return size_; }
  // In ascending order of index.
  const std::vector<Bin>& bins() const { return bins_; }
  int64_t memory_bytes() const;

 private:
  // The bin's digits; created if need be. The caller adds at most `amount` to each.
  int64_t* Open(int index, int64_t amount);
  Bin& FindBin(int index);
  // Carries if a bin is so full that one more call of Add might overflow it.
  void MakeRoom();
  void AddTerm(int at, bool is_negative, unsigned __int128 magnitude, int exponent);
  template <typename Float>
  Float Round(int i) const;

  int size_;
  std::vector<Bin> bins_;
};

}  // namespace sheaf
