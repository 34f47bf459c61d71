#include "workloads/logistic.h"

#include <algorithm>
#include <bit>

namespace sheaf {
namespace {

constexpr float kSaturation = 30.0f;
// The probability at -kSaturation: where the loss stops growing, because 1 - p rounds to 0 on the other side.
constexpr double kLeastProbability = 9.3e-14;

// exp(x) for |x| <= kSaturation: 2^n * exp(r), where r = x - n ln 2 is at most half of ln 2 and exp(r) is a polynomial.
// ln 2 is split so that n * kLn2High is exact.
inline float Exp(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits: a rounding that the compiler can vectorise.
  constexpr float kRounder = 12582912.0f;
  const float rounded = x * kLog2E + kRounder;
  const float n = rounded - kRounder;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(rounded) - std::bit_cast<int32_t>(kRounder);
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) + exponent * (1 << 23));
}

// The natural logarithm of a positive, normal x: exponent * ln 2 + log(m) with m in [sqrt(1/2), sqrt(2)), by the series
// of atanh.
double Log(double x) {
  constexpr double kLn2 = 0.693147180559945309417;
  constexpr double kSqrt2 = 1.41421356237309504880;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffff) | 0x3ff0000000000000);
  if (m > kSqrt2) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double series = 0;
  for (int k = 15; k >= 1; k -= 2) series = series * s2 + 1.0 / k;
  return exponent * kLn2 + 2 * s * series;
}

double Unlikelihood(float p) { return std::max(1.0 - static_cast<double>(p), kLeastProbability); }

}  // namespace

float Sigmoid(float x) {
  const float clamped = std::min(std::max(x, -kSaturation), kSaturation);
  return 1.0f / (1.0f + Exp(-clamped));
}

double ScoresToGradient(std::span<float> scores, std::span<const uint16_t> positives) {
  for (float& score : scores) score = Sigmoid(score);
  // The loss is -log of the product of the probabilities given to the truth; the product is taken in portions that
  // cannot underflow.
  constexpr size_t kPortion = 16;
  double loss = 0;
  for (size_t begin = 0; begin < scores.size(); begin += kPortion) {
    double product = 1;
    for (size_t i = begin; i < std::min(begin + kPortion, scores.size()); ++i) {
      product *= Unlikelihood(scores[i]);
    }
    loss -= Log(product);
  }
  for (uint16_t positive : positives) {
    loss += Log(Unlikelihood(scores[positive])) - Log(scores[positive]);
    scores[positive] -= 1.0f;
  }
  return loss;
}

}  // namespace sheaf
