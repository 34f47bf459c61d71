// What is told of the memory that a contribution will take is no less than what it takes.
#include "aggregation/fold_growth.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "aggregation/exact/exact_block.h"
#include "aggregation/exact/fixed_point.h"
#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

// Values whose exponents lie within `spread` of each other, starting at `low`.
std::string Values(v1::DType dtype, int64_t n, int low, int spread, Random& random) {
  std::string data;
  for (int64_t i = 0; i < n; ++i) {
    const int exponent = low + static_cast<int>(random.Below(static_cast<uint64_t>(spread + 1)));
    const double value = std::ldexp(random.Chance(0.5) ? 1 + random.Fraction() : -1 - random.Fraction(), exponent);
    const float narrow = static_cast<float>(value);
    if (dtype == v1::FLOAT32) data.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
    if (dtype == v1::FLOAT64) data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return data;
}

struct Magnitudes {
  int low;
  int spread;
};

// From one size to all there are, ascending and descending: each contribution is unlike those before.
std::vector<Magnitudes> Rising(v1::DType dtype) {
  const int lowest = dtype == v1::FLOAT32 ? -149 : -1074, highest = dtype == v1::FLOAT32 ? 120 : 1000;
  std::vector<Magnitudes> magnitudes = {{-10, 8}, {-10, 8}};
  for (int low = lowest; low < highest; low += (highest - lowest) / 40) magnitudes.push_back({low, 3});
  magnitudes.push_back({lowest, highest - lowest});
  magnitudes.push_back({lowest, highest - lowest});
  return magnitudes;
}

// Folds and returns what that took; REQUIREs that no more was told, but for what containers round up.
int64_t FoldAndCompare(RoundAccumulator& accumulator, const v1::Contribution& contribution, double rounding) {
  absl::StatusOr<ValidContribution> valid = accumulator.Validate(contribution);
  REQUIRE(valid.ok());
  const int64_t before = accumulator.memory_bytes();
  const std::shared_ptr<const ContributionValidator> validator = accumulator.validator();
  const int64_t rough = validator->GrowthMax(*valid, int64_t{1} << 60);
  const int64_t told = validator->GrowthMax(*valid, 0);
  absl::StatusOr<ValidContribution> prepared = accumulator.Validate(contribution);
  REQUIRE(prepared.ok());
  InlineFor one_by_one;
  validator->PrepareGrowthMax(*prepared, 0, one_by_one);
  REQUIRE(validator->GrowthMax(*prepared, 0) == told);
  accumulator.Accumulate(*valid);
  const int64_t added = accumulator.memory_bytes() - before;
  INFO("held " << before << ", told " << told << ", roughly " << rough << ", added " << added);
  REQUIRE(told <= rough);
  REQUIRE(static_cast<double>(added) <=
          1.02 * static_cast<double>(told) + rounding * static_cast<double>(before + told) + 8192);
  return told;
}

TEST_CASE("Folding a dense contribution adds no more memory than was told, whatever the sizes of its values") {
  constexpr int64_t kElements = 5000;
  for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64}) {
    for (const float weight : {0.0f, 3e-30f, 0.3f}) {
      SeededRandom random(1);
      RoundAccumulator accumulator = Accumulator(ASpec(weight == 0 ? "sum" : "weighted_mean", dtype, {kElements}));
      for (const Magnitudes& magnitudes : Rising(dtype)) {
        INFO(v1::DType_Name(dtype) << ", weight " << weight << ", values from 2^" << magnitudes.low);
        const std::string data = Values(dtype, kElements, magnitudes.low, magnitudes.spread, random);
        FoldAndCompare(accumulator, Contribute(ATensor(dtype, {kElements}, data), weight), 0);
      }
    }
  }
}

TEST_CASE("Of values of one size no more is told than a bin or two") {
  constexpr int64_t kElements = 1 << 16;
  SeededRandom random(2);
  for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64}) {
    RoundAccumulator accumulator = Accumulator(ASpec("sum", dtype, {kElements}));
    const std::string data = Values(dtype, kElements, -10, 9, random);
    const int64_t told = FoldAndCompare(accumulator, Contribute(ATensor(dtype, {kElements}, data)), 0);
    CHECK(told <= (dtype == v1::FLOAT32 ? 8 : 16) * kElements);
  }
}

TEST_CASE("Folding rows, entries and keys adds no more memory than was told, but for what containers round up") {
  for (const char* op : {"sparse_sum", "slices_sum", "keyed_sum", "coordinate_mean", "weighted_coordinate_mean"}) {
    for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64}) {
      for (const v1::Numerics numerics : {v1::EXACT, v1::F64}) {
        SeededRandom random(3);
        const bool is_keyed = std::string(op) == "keyed_sum";
        const int64_t width = std::string(op) == "slices_sum" ? 40 : 1;
        v1::OutputSpec output = AnOutput(op, dtype, {1 << 20});
        if (width > 1) output.add_dense_shape(width);
        if (is_keyed) output.clear_dense_shape();
        if (is_keyed) output.set_key_type(v1::INT64_KEYS);
        v1::AggregateSpec spec = ASpec(output);
        spec.set_numerics(numerics);
        RoundAccumulator accumulator = Accumulator(spec);
        for (const Magnitudes& magnitudes : Rising(dtype)) {
          constexpr int64_t kRows = 3000;
          std::vector<int64_t> keys;
          for (int64_t i = 0; i < kRows; ++i) keys.push_back(static_cast<int64_t>(random.Below(20'000)) * 50);
          const std::string data = Values(dtype, kRows * width, magnitudes.low, magnitudes.spread, random);
          const v1::Tensor values =
              ATensor(dtype, width > 1 ? std::vector<int64_t>{kRows, width} : std::vector<int64_t>{kRows}, data);
          v1::Contribution contribution;
          if (is_keyed) {
            v1::OutputValue& value = *contribution.add_outputs();
            value.set_name("w");
            *value.mutable_keyed()->mutable_int_keys() = ATensor(v1::INT64, {kRows}, BytesOf(keys));
            *value.mutable_keyed()->mutable_values() = values;
          } else {
            const std::vector<int64_t> shape(output.dense_shape().begin(), output.dense_shape().end());
            contribution = Contribute(Sparse(shape, ATensor(v1::INT64, {kRows, 1}, BytesOf(keys)), values), 0.7f);
          }
          INFO(op << " " << v1::DType_Name(dtype) << " " << v1::Numerics_Name(numerics) << ", values from 2^"
                  << magnitudes.low);
          FoldAndCompare(accumulator, contribution, 1);
        }
      }
    }
  }
}

TEST_CASE("A partial aggregate adds no more memory than was told") {
  for (const char* op : {"sum", "sparse_sum"}) {
    SeededRandom random(4);
    const v1::AggregateSpec spec = ASpec(op, v1::FLOAT32, {4000});
    RoundAccumulator accumulator = Accumulator(spec);
    for (const Magnitudes& magnitudes : Rising(v1::FLOAT32)) {
      RoundAccumulator partial = Accumulator(spec);
      std::vector<int64_t> keys(4000);
      for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
      const v1::Tensor values =
          ATensor(v1::FLOAT32, {4000}, Values(v1::FLOAT32, 4000, magnitudes.low, magnitudes.spread, random));
      const v1::Contribution contribution =
          std::string(op) == "sum" ? Contribute(values)
                                   : Contribute(Sparse({4000}, ATensor(v1::INT64, {4000, 1}, BytesOf(keys)), values));
      REQUIRE(Fold(partial, contribution).ok());
      INFO(op << ", values from 2^" << magnitudes.low);
      FoldAndCompare(accumulator, partial.PartialAggregate(), 0.02);
    }
  }
}

TEST_CASE("Numbers of all magnitudes, times weights of all magnitudes, take 18 or 76 bins") {
  for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64}) {
    const int lowest = dtype == v1::FLOAT32 ? -149 : -1074, highest = dtype == v1::FLOAT32 ? 127 : 1023;
    for (const int at_once : {1, 16}) {
      SeededRandom random(5);
      ExactBlock block(16);
      size_t most = 0;
      for (int i = 0; i < 20'000; ++i) {
        const int spread = highest - lowest;
        const std::string data =
            Values(dtype, at_once, lowest + static_cast<int>(random.Below(static_cast<uint64_t>(spread))), 0, random);
        const float weight = std::ldexp(1.0f, static_cast<int>(random.Below(277)) - 149);
        dtype == v1::FLOAT32 ? block.AddFloats(0, data.data(), at_once, weight)
                             : block.AddDoubles(0, data.data(), at_once, weight);
        most = std::max(most, block.bins().size());
      }
      INFO(v1::DType_Name(dtype) << ", " << at_once << " at once: " << most);
      CHECK(most <= (dtype == v1::FLOAT32 ? 18 : 76));
    }
  }
}

TEST_CASE("A partial aggregate of one coordinate adds no more memory than was told, where it opens a bin for all") {
  constexpr int64_t kRange = 20'000;
  const v1::AggregateSpec spec = ASpec("sparse_sum", v1::FLOAT32, {kRange});
  RoundAccumulator accumulator = Accumulator(spec);
  std::vector<int64_t> keys(kRange);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  const auto fold = [&](RoundAccumulator& into, const std::vector<int64_t>& at, float value) {
    const v1::Tensor values = Floats(std::vector<float>(at.size(), value));
    const auto n = static_cast<int64_t>(at.size());
    REQUIRE(Fold(into, Contribute(Sparse({kRange}, ATensor(v1::INT64, {n, 1}, BytesOf(at)), values))).ok());
  };
  fold(accumulator, keys, 1);
  REQUIRE(accumulator.Report().ok());
  RoundAccumulator partial = Accumulator(spec);
  fold(partial, {7}, 0x1p+100f);
  FoldAndCompare(accumulator, partial.PartialAggregate(), 0.02);
}

TEST_CASE("Where the room for rows was counted out, each contribution takes its own when it is folded, and not later") {
  // Of all sizes, but not so many that they are folded for their number.
  constexpr int64_t kRows = 3000;
  SeededRandom random(5);
  std::vector<int64_t> keys(kRows);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i) * 50;
  const v1::Tensor values = ATensor(v1::FLOAT32, {kRows}, Values(v1::FLOAT32, kRows, -149, 269, random));
  RoundAccumulator accumulator = Accumulator(ASpec("sparse_sum", v1::FLOAT32, {1 << 20}));
  FoldAndCompare(accumulator, Contribute(Sparse({1 << 20}, ATensor(v1::INT64, {kRows, 1}, BytesOf(keys)), values)), 1);
  const int64_t held = accumulator.memory_bytes();
  REQUIRE(accumulator.Report().ok());
  CHECK(accumulator.memory_bytes() == held);
}

TEST_CASE("Numbers of all magnitudes take 13 or 71 bins, in whatever order they come") {
  for (const v1::DType dtype : {v1::FLOAT32, v1::FLOAT64}) {
    const int lowest = dtype == v1::FLOAT32 ? -149 : -1074, highest = dtype == v1::FLOAT32 ? 127 : 1023;
    for (const bool is_rising : {true, false}) {
      for (const int at_once : {1, 16}) {
        ExactBlock block(16);
        FixedPoint oracle;
        for (int i = 0; i <= highest - lowest; i += 5) {
          const double value = std::ldexp(1, is_rising ? lowest + i : highest - i);
          std::string data;
          for (int k = 0; k < at_once; ++k) {
            const float narrow = static_cast<float>(value);
            if (dtype == v1::FLOAT32) data.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
            if (dtype == v1::FLOAT64) data.append(reinterpret_cast<const char*>(&value), sizeof value);
          }
          dtype == v1::FLOAT32 ? block.AddFloats(0, data.data(), at_once, 1)
                               : block.AddDoubles(0, data.data(), at_once, 1);
          oracle.AddProduct(value, 1);
          double sum = 0;
          block.Round(0, 1, &sum);
          REQUIRE(sum == oracle.ToDouble());
        }
        INFO(v1::DType_Name(dtype) << (is_rising ? " rising " : " falling ") << at_once << " at once");
        CHECK(block.bins().size() <= (dtype == v1::FLOAT32 ? 13 : 71));
      }
    }
  }
}

}  // namespace
}  // namespace sheaf
