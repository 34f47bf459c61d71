// Contributions that several threads fold together, against the same ones folded one after the other.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/aggregation/values.h"
#include "tests/conformance/shuffled_for.h"

namespace sheaf {
namespace {

struct Case {
  std::string op;
  v1::Numerics numerics = v1::EXACT;
  v1::DType dtype = v1::FLOAT32;
  std::vector<int64_t> shape;
  int64_t rows = 0;
  int min_contributors = 0;
  // Rows lie close together, in so many, and come again and again.
  int64_t narrow_range = 0;
};

std::string Name(const Case& c) {
  return fmt::format("{} {} {} of {} rows, at least {} contributors{}", c.op, v1::Numerics_Name(c.numerics),
                     v1::DType_Name(c.dtype), c.rows, c.min_contributors, c.narrow_range > 0 ? ", narrow" : "");
}

v1::AggregateSpec SpecOf(const Case& c) {
  v1::OutputSpec output = AnOutput(c.op, c.dtype, c.shape);
  output.set_index_dims(1);
  output.set_min_contributors(c.min_contributors);
  v1::AggregateSpec spec = ASpec(output);
  spec.set_numerics(c.numerics);
  return spec;
}

// Half of the rows are the same for all; a row may occur twice. No sum is too large for a float.
v1::Contribution Make(const Case& c, Random& random) {
  std::vector<int64_t> indices;
  const auto range = static_cast<uint64_t>(c.narrow_range > 0 ? c.narrow_range : c.shape[0]);
  for (int64_t i = 0; i < c.rows; ++i) {
    indices.push_back(
        static_cast<int64_t>(i % 2 == 0 ? (static_cast<uint64_t>(i) * 7919) % range : random.Below(range)));
  }
  const int64_t width = c.shape.size() > 1 ? c.shape[1] : 1;
  std::string data;
  for (int64_t i = 0; i < c.rows * width; ++i) {
    const double value = random.Chance(0.01) ? AwkwardFloat(random, v1::FLOAT32) / 1e6 : random.Fraction() - 0.5;
    const auto narrow = static_cast<float>(value);
    const auto integer = static_cast<int32_t>(random.Below(1000)) - 500;
    if (c.dtype == v1::FLOAT64) data.append(reinterpret_cast<const char*>(&value), sizeof value);
    if (c.dtype == v1::FLOAT32) data.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
    if (c.dtype == v1::INT32) data.append(reinterpret_cast<const char*>(&integer), sizeof integer);
  }
  std::vector<int64_t> values_shape = c.shape;
  values_shape[0] = c.rows;
  const bool is_weighted = c.op.find("weighted") != std::string::npos;
  const float weight = is_weighted ? static_cast<float>(random.Below(1000) + 1) / 7 : 0;
  return Contribute(
      Sparse(c.shape, ATensor(v1::INT64, {c.rows, 1}, BytesOf(indices)), ATensor(c.dtype, values_shape, data)), weight);
}

void CheckCase(const Case& c, uint64_t seed) {
  INFO(Name(c) << ", seed " << seed);
  SeededRandom random(seed);
  const v1::AggregateSpec spec = SpecOf(c);
  RoundAccumulator one_by_one = Accumulator(spec), partial = Accumulator(spec);
  REQUIRE(Fold(partial, Make(c, random)).ok());
  std::vector<ValidContribution> all;
  for (int i = 0; i < 12; ++i) {
    absl::StatusOr<ValidContribution> valid =
        one_by_one.Validate(i == 5 ? partial.PartialAggregate() : Make(c, random));
    INFO(valid.status().ToString());
    REQUIRE(valid.ok());
    all.push_back(*std::move(valid));
  }
  for (const ValidContribution& valid : all) one_by_one.Accumulate(valid);
  const std::string state = one_by_one.Serialize();
  const AggregateReport report = one_by_one.Report().value();
  for (const int num_threads : {2, 3, 7}) {
    ShuffledFor parallel(seed, num_threads);
    RoundAccumulator together = Accumulator(spec);
    // In groups of any size.
    for (size_t begin = 0; begin < all.size();) {
      const size_t end = std::min(all.size(), begin + 1 + random.Below(all.size()));
      std::vector<const ValidContribution*> group;
      for (size_t i = begin; i < end; ++i) group.push_back(&all[i]);
      together.Accumulate(group, parallel);
      begin = end;
    }
    CHECK(together.num_clients() == one_by_one.num_clients());
    CHECK((together.Serialize() == state));
    const AggregateReport parallel_report = together.Report().value();
    REQUIRE(parallel_report.tensors.size() == report.tensors.size());
    for (size_t i = 0; i < report.tensors.size(); ++i) {
      CHECK((parallel_report.tensors[i].data == report.tensors[i].data));
    }
  }
}

TEST_CASE("Rows that several threads fold have the bits of rows folded by one") {
  uint64_t seed = 1;
  for (const auto& [op, dtype] :
       std::vector<std::pair<std::string, v1::DType>>{{"sparse_sum", v1::FLOAT32},
                                                      {"slices_sum", v1::FLOAT32},
                                                      {"slices_sum", v1::FLOAT64},
                                                      {"slices_sum", v1::INT32},
                                                      {"sparse_max", v1::FLOAT32},
                                                      {"coordinate_mean", v1::FLOAT32},
                                                      {"weighted_coordinate_mean", v1::FLOAT32},
                                                      {"sparse_sum_to_dense", v1::FLOAT32}}) {
    for (const v1::Numerics numerics : {v1::EXACT, v1::F64, v1::F32}) {
      if (numerics == v1::F32 && dtype == v1::FLOAT64) continue;
      for (const int64_t narrow_range : {0, 3000}) {
        CheckCase({.op = op,
                   .numerics = numerics,
                   .dtype = dtype,
                   .shape = {100'000, 24},
                   .rows = 700,
                   .min_contributors = static_cast<int>(seed % 2) * 2,
                   .narrow_range = narrow_range},
                  seed++);
      }
    }
  }
  // Rows that share their bins with neighbours, which one thread folds.
  CheckCase({.op = "slices_sum", .shape = {5000, 5}, .rows = 4000}, seed++);
}

TEST_CASE("Single values that several threads fold have the bits of values folded by one") {
  uint64_t seed = 100;
  for (const auto& [op, dtype] :
       std::vector<std::pair<std::string, v1::DType>>{{"sparse_sum", v1::FLOAT32},
                                                      {"sparse_sum", v1::INT32},
                                                      {"coordinate_mean", v1::FLOAT32},
                                                      {"weighted_coordinate_mean", v1::FLOAT32}}) {
    for (const v1::Numerics numerics : {v1::EXACT, v1::F64}) {
      for (const int64_t range : {int64_t{100'000}, int64_t{1'000'000}, int64_t{1} << 40}) {
        CheckCase({.op = op,
                   .numerics = numerics,
                   .dtype = dtype,
                   .shape = {range},
                   .rows = 15'000,
                   .min_contributors = static_cast<int>(seed % 2) * 2},
                  seed);
        ++seed;
      }
    }
  }
}

TEST_CASE("Many single values that several threads fold have the bits of values folded by one, in crowded parts too") {
  uint64_t seed = 200;
  // Four of the root's children.
  for (const int64_t narrow_range : {0, 60'000}) {
    for (const char* op : {"sparse_sum", "weighted_coordinate_mean"}) {
      CheckCase({.op = op,
                 .numerics = v1::F64,
                 .shape = {3'000'000},
                 .rows = 100'000,
                 .min_contributors = 2,
                 .narrow_range = narrow_range},
                seed++);
    }
  }
}

}  // namespace
}  // namespace sheaf
