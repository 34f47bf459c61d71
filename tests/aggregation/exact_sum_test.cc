// The exact arithmetic against an independent oracle on inputs that break ordinary sums.
#include "aggregation/cells/exact_sum.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>

#include "aggregation/exact/exact_kernels.h"
#include "aggregation/exact/fixed_point.h"
#include "aggregation/exact/rounding.h"
#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

double RoundToDouble(const ExactBlock& block, int i) {
  double sum = 0;
  block.Round(i, 1, &sum);
  return sum;
}
float RoundToFloat(const ExactBlock& block, int i) {
  float sum = 0;
  block.Round(i, 1, &sum);
  return sum;
}

// One sum kept both ways.
struct Both {
  explicit Both(v1::DType type) : dtype(type), exact(type, 1), exact_wide(v1::FLOAT64, 1) {
    exact.Resize(1);
    exact_wide.Resize(1);
  }

  void Add(double value, float weight = 1) {
    const float narrow = static_cast<float>(value);
    const char* const wide = reinterpret_cast<const char*>(&value);
    exact.Add(0, dtype == v1::FLOAT32 ? reinterpret_cast<const char*>(&narrow) : wide, 1, weight);
    exact_wide.Add(0, wide, 1, weight);
    oracle.AddProduct(value, weight);
  }
  double Wide() const {
    double sum = 0;
    exact_wide.Round(0, 1, {}, reinterpret_cast<char*>(&sum));
    return sum;
  }
  void Check() const {
    REQUIRE(std::bit_cast<uint64_t>(Wide()) == std::bit_cast<uint64_t>(oracle.ToDouble()));
    if (dtype == v1::FLOAT64) return;
    float narrow;
    exact.Round(0, 1, {}, reinterpret_cast<char*>(&narrow));
    REQUIRE(std::bit_cast<uint32_t>(narrow) == std::bit_cast<uint32_t>(oracle.ToFloat()));
  }

  v1::DType dtype;
  ExactSum exact, exact_wide;
  FixedPoint oracle;
};

TEST_CASE("1e-38 beside 1e38 is not lost") {
  Both sum(v1::FLOAT32);
  for (const double value : {1e38, 1e-38, -1e38}) sum.Add(static_cast<double>(static_cast<float>(value)));
  sum.Check();
  REQUIRE(static_cast<float>(sum.Wide()) == 1e-38f);
}

TEST_CASE("A tie is broken by what lies 1000 bits below it") {
  for (const double nudge :
       {0.0, std::numeric_limits<double>::denorm_min(), -std::numeric_limits<double>::denorm_min()}) {
    for (const double sign : {1.0, -1.0}) {
      for (const double base : {1.0, 1.0 + 0x1p-52}) {
        Both sum(v1::FLOAT64);
        for (const double value : {base * sign, 0x1p-53 * sign, nudge}) sum.Add(value);
        sum.Check();
      }
    }
  }
}

TEST_CASE("Sums of subnormals are exact, and weighted ones below the smallest subnormal too") {
  for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64}) {
    const double smallest =
        dtype == v1::FLOAT32 ? std::numeric_limits<float>::denorm_min() : std::numeric_limits<double>::denorm_min();
    Both sum(dtype);
    for (int i = 1; i < 300; ++i) {
      sum.Add(smallest * i, 1e-45f * static_cast<float>(i % 7 + 1));
      sum.Check();
    }
    sum.Add(smallest, 3e38f);
    sum.Check();
  }
}

TEST_CASE("What exceeds the largest finite number is an infinity, and comes back when it cancels") {
  for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64}) {
    const double largest =
        dtype == v1::FLOAT32 ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
    Both sum(dtype);
    for (int i = 0; i < 40; ++i) {
      sum.Add(largest, 3e38f);
      sum.Check();
    }
    for (int i = 0; i < 40; ++i) sum.Add(-largest, 3e38f);
    sum.Add(1);
    sum.Check();
    REQUIRE(sum.Wide() == 1);
  }
}

TEST_CASE("Random sums of any exponents equal the oracle after every addition") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SeededRandom random(seed);
    for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64}) {
      Both sum(dtype);
      double last = 0;
      for (int i = 0; i < 60; ++i) {
        last = random.Chance(0.3) ? -last : AwkwardFloat(random, dtype);
        sum.Add(last,
                random.Chance(0.5) ? 1 : std::fabs(static_cast<float>(AwkwardFloat(random, v1::FLOAT32))) + 1e-45f);
        INFO("seed " << seed << " step " << i);
        sum.Check();
      }
    }
  }
}

TEST_CASE("The vector loops and the one-by-one path give the same digits") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SeededRandom random(seed);
    const int n = 8 + static_cast<int>(random.Below(100));
    // From narrow to all exponents: one bin, two, many.
    const int spread = 1 + static_cast<int>(random.Below(1 + random.Below(270)));
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) {
      const int exponent = static_cast<int>(random.Below(static_cast<uint64_t>(spread))) - 149 + (270 - spread) / 2;
      value = random.Chance(0.1) ? 0 : static_cast<float>(std::ldexp(random.Fraction() - 0.5, exponent));
    }
    const float weight = random.Chance(0.5) ? 1 : static_cast<float>(1 + random.Below(1000)) / 7;
    ExactBlock together(n), apart(n);
    for (int repeat = 0; repeat < 3; ++repeat) {
      together.AddFloats(0, reinterpret_cast<const char*>(values.data()), n, weight);
      for (int i = 0; i < n; ++i)
        apart.AddFloats(i, reinterpret_cast<const char*>(&values[static_cast<size_t>(i)]), 1, weight);
    }
    INFO("seed " << seed);
    for (int i = 0; i < n; ++i) {
      FixedPoint oracle;
      for (int repeat = 0; repeat < 3; ++repeat) oracle.AddProduct(values[static_cast<size_t>(i)], weight);
      REQUIRE(std::bit_cast<uint32_t>(RoundToFloat(together, i)) == std::bit_cast<uint32_t>(oracle.ToFloat()));
      REQUIRE(RoundToDouble(together, i) == oracle.ToDouble());
    }
    together.Normalise();
    apart.Normalise();
    const auto digits_of = [n](const ExactBlock& block) {
      std::map<int, std::vector<int64_t>> digits;
      for (const ExactBlock::Bin& bin : block.bins()) {
        if (LargestMagnitude(bin.digits, n) > 0) digits[bin.exponent].assign(bin.digits, bin.digits + n);
      }
      return digits;
    };
    REQUIRE(digits_of(together) == digits_of(apart));
  }
}

TEST_CASE("A million additions overflow no digit") {
  constexpr int kTimes = 1'000'000;
  // Just under the top of a bin: the case in which digits fill up fastest.
  const std::vector<float> values(16, std::ldexp(1.0f - 0x1p-24f, 16));
  ExactBlock block(16);
  for (int i = 0; i < kTimes; ++i) block.AddFloats(0, reinterpret_cast<const char*>(values.data()), 16, 1);
  const double expected = std::ldexp(1.0 - 0x1p-24, 16) * kTimes;  // 44 bits: exact.
  for (int i = 0; i < 16; ++i) REQUIRE(RoundToDouble(block, i) == expected);
}

TEST_CASE("Sums that are merged and doubled again and again stay exact") {
  ExactBlock block(1);
  const float third = 1.0f / 3;
  block.AddFloats(0, reinterpret_cast<const char*>(&third), 1, 1);
  for (int i = 1; i <= 100; ++i) {
    ExactBlock doubled(1);
    doubled.AddBlock(0, block, 0, 1);
    doubled.AddBlock(0, block, 0, 1);
    block = std::move(doubled);
    REQUIRE(RoundToDouble(block, 0) == std::ldexp(static_cast<double>(third), i));
  }
}

TEST_CASE("Integers are rounded half to even at every precision") {
  REQUIRE(RoundInteger<float>((__int128{1} << 24) + 1, 0) == 16777216.0f);
  REQUIRE(RoundInteger<float>((__int128{1} << 24) + 3, 0) == 16777220.0f);
  REQUIRE(RoundInteger<float>(-((__int128{1} << 24) + 3), 0) == -16777220.0f);
  REQUIRE(RoundInteger<double>(1, -1075) == 0);
  REQUIRE(RoundInteger<double>(3, -1075) == std::ldexp(2.0, -1074));
  REQUIRE(RoundInteger<float>(1, 128) == std::numeric_limits<float>::infinity());
  REQUIRE(RoundInteger<float>((__int128{1} << 25) - 1, 103) == std::numeric_limits<float>::infinity());
  REQUIRE(RoundInteger<float>(1, -3000) == 0);
  REQUIRE(std::signbit(RoundInteger<float>(-1, -3000)));
}

TEST_CASE("Digits are scaled exactly on both sides of what a fast conversion takes") {
  // The first number opens a bin whose unit is 2^-44; with the others its digit is 2^51 + step, of either sign.
  for (const double sign : {1.0, -1.0}) {
    for (const int step : {-1, 0, 1}) {
      Both sum(v1::FLOAT64);
      for (const double value : {1.0, -1.0, 64.0, 64.0, step * 0x1p-44}) sum.Add(sign * value);
      sum.Check();
      const double expected = sign * (128 + step * 0x1p-44) / 3;
      double mean = 0;
      sum.exact.Round(0, 1, ExactDivisor::OfCount(3), reinterpret_cast<char*>(&mean));
      REQUIRE(mean == expected);
    }
  }
}

TEST_CASE("Counts of contributors that a double does not hold divide as they are") {
  const double value = 0x1p60;
  ExactSum sum(v1::FLOAT64, 1);
  sum.Resize(1);
  sum.Add(0, reinterpret_cast<const char*>(&value), 1, 1);
  for (const int64_t count : {(int64_t{1} << 53) + 1, (int64_t{1} << 62) - 1}) {
    double quotient = 0;
    sum.Round(0, 1, ExactDivisor::OfCount(count), reinterpret_cast<char*>(&quotient));
    REQUIRE(quotient == static_cast<double>(0x1p60L / static_cast<long double>(count)));
  }
}

TEST_CASE("A mean of floats is within half a unit of the true mean") {
  SeededRandom random(5);
  for (int repeat = 0; repeat < 200; ++repeat) {
    ExactSum sum(v1::FLOAT32, 1);
    sum.Resize(1);
    __int128 true_sum = 0;  // In units of 2^-40.
    const int n = 1 + static_cast<int>(random.Below(50));
    for (int i = 0; i < n; ++i) {
      const float value = static_cast<float>(random.Below(1 << 24)) * 0x1p-24f;
      sum.Add(0, reinterpret_cast<const char*>(&value), 1, 1);
      true_sum += static_cast<__int128>(std::ldexp(static_cast<double>(value), 40));
    }
    float mean;
    const ExactDivisor divisor = ExactDivisor::OfCount(n);
    sum.Round(0, 1, divisor, reinterpret_cast<char*>(&mean));
    const long double exact_mean = static_cast<long double>(true_sum) / n / 0x1p40L;
    const long double ulp = std::nextafter(mean, 2.0f) - mean;
    REQUIRE(std::fabs(static_cast<long double>(mean) - exact_mean) <= 0.5L * ulp);
  }
}

}  // namespace
}  // namespace sheaf
