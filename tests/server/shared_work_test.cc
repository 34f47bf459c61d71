// What several threads validate, fold and release has the bits, and the errors, of what one does.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aggregation/operators.h"
#include "aggregation/round_accumulator.h"
#include "base/random.h"
#include "server/threads/aggregation_pool.h"
#include "tests/conformance/shuffled_for.h"

namespace sheaf {
namespace {

// Coordinates, rows, keys or elements of one contribution: many parts of work.
constexpr int64_t kElements = 600'000, kEntries = 300'000, kRows = 20'000, kKeys = 30'000;
constexpr int kContributions = 3;

// A round of one output, and what comes.
struct Round {
  v1::AggregateSpec spec;
  std::vector<v1::Contribution> contributions;
};

v1::OutputSpec AnOutput(const std::string& op, v1::DType dtype, const std::vector<int64_t>& shape) {
  v1::OutputSpec output;
  output.set_name("w");
  output.set_operator_(op);
  output.set_dtype(dtype);
  output.mutable_dense_shape()->Add(shape.begin(), shape.end());
  return output;
}

template <typename T>
v1::Tensor ATensor(v1::DType dtype, const std::vector<int64_t>& shape, const std::vector<T>& values) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  tensor.set_data(values.data(), values.size() * sizeof(T));
  return tensor;
}

v1::Tensor RandomValues(v1::DType dtype, const std::vector<int64_t>& shape, Random& random) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  if (dtype == v1::INT32) {
    std::vector<int32_t> values(static_cast<size_t>(n));
    for (int32_t& value : values) value = static_cast<int32_t>(random.Below(7)) - 3;
    return ATensor(dtype, shape, values);
  }
  // Of many magnitudes: sums in another order have other bits.
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values)
    value = static_cast<float>((random.Fraction() - 0.5) * static_cast<double>(1 + random.Below(1000)));
  return ATensor(dtype, shape, values);
}

// Sets value `i` of a tensor.
template <typename T>
void Set(v1::Tensor& tensor, int64_t i, T value) {
  std::memcpy(tensor.mutable_data()->data() + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
}

v1::OutputValue RandomValue(const v1::OutputSpec& output, Random& random) {
  const std::vector<int64_t> shape(output.dense_shape().begin(), output.dense_shape().end());
  v1::OutputValue value;
  value.set_name(output.name());
  if (output.operator_().starts_with("keyed")) {
    v1::KeyedTable& table = *value.mutable_keyed();
    std::vector<int64_t> keys(kKeys);
    for (int64_t& key : keys) key = static_cast<int64_t>(random.Below(2 * kKeys)) - kKeys;
    if (output.key_type() == v1::STRING_KEYS) {
      for (const int64_t key : keys) table.add_string_keys(fmt::format("key {}", key));
    } else {
      *table.mutable_int_keys() = ATensor(v1::INT64, {kKeys}, keys);
    }
    std::vector<int64_t> values_shape = shape;
    values_shape.insert(values_shape.begin(), kKeys);
    *table.mutable_values() = RandomValues(output.dtype(), values_shape, random);
    return value;
  }
  if (output.operator_() == "sum" || output.operator_() == "weighted_mean") {
    *value.mutable_dense() = RandomValues(output.dtype(), shape, random);
    return value;
  }
  const auto dims = static_cast<size_t>(output.index_dims());
  const int64_t n = dims == shape.size() ? kEntries : kRows;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < n; ++i) {
    // More of them at the front: there are crowded parts, and empty ones.
    for (size_t d = 0; d < dims; ++d) {
      const auto size = static_cast<uint64_t>(shape[d]);
      indices.push_back(static_cast<int64_t>(random.Below(random.Chance(0.5) ? size : size / 10 + 1)));
    }
  }
  v1::SparseTensor& sparse = *value.mutable_sparse();
  sparse.mutable_dense_shape()->Add(shape.begin(), shape.end());
  *sparse.mutable_indices() = ATensor(v1::INT64, {n, output.index_dims()}, indices);
  std::vector<int64_t> values_shape = {n};
  values_shape.insert(values_shape.end(), shape.begin() + output.index_dims(), shape.end());
  *sparse.mutable_values() = RandomValues(output.dtype(), values_shape, random);
  return value;
}

Round ARound(const v1::OutputSpec& output, v1::Numerics numerics = v1::EXACT) {
  Round round;
  *round.spec.add_outputs() = output;
  round.spec.set_numerics(numerics);
  SeededRandom random(1);
  for (int i = 0; i < kContributions; ++i) {
    v1::Contribution& contribution = round.contributions.emplace_back();
    if (FindOperator(Operators(), output.operator_())->is_weighted())
      contribution.set_weight(static_cast<float>(i + 1) / 3);
    *contribution.add_outputs() = RandomValue(output, random);
  }
  return round;
}

// All that is said: each refusal, what folding was told to take, and each tensor, or the error that there is instead.
std::string Outcome(const Round& round, ParallelFor& parallel) {
  RoundAccumulator sum = RoundAccumulator::Create(round.spec).value();
  std::string outcome;
  for (const v1::Contribution& contribution : round.contributions) {
    const std::shared_ptr<const ContributionValidator> validator = sum.validator();
    absl::StatusOr<ValidContribution> valid = validator->Validate(contribution, parallel);
    outcome += valid.status().ToString() + "\n";
    if (!valid.ok()) continue;
    validator->PrepareGrowthMax(*valid, 0, parallel);
    outcome += fmt::format("grows by {}\n", validator->GrowthMax(*valid, 0));
    sum.Accumulate(*valid, parallel);
  }
  const absl::StatusOr<AggregateRelease> release = std::move(sum).Release(parallel);
  if (!release.ok()) return outcome + release.status().ToString();
  for (const v1::OutputSummary& output : release->outputs) outcome += output.ShortDebugString() + "\n";
  for (const ReleasedTensor& tensor : release->tensors) {
    outcome += fmt::format("{} of {} bytes\n", tensor.name, tensor.size_bytes());
    const absl::Status written = tensor.write([&outcome](std::string_view piece) {
      outcome += piece;
      return absl::OkStatus();
    });
    outcome += written.ToString() + "\n";
  }
  return outcome;
}

// Returns the outcome.
std::string CheckEverywhere(const Round& round) {
  INFO(round.spec.ShortDebugString());
  InlineFor one_by_one;
  std::string expected = Outcome(round, one_by_one);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    ShuffledFor shuffled(seed);
    INFO("seed " << seed);
    CHECK((Outcome(round, shuffled) == expected));
  }
  for (const int num_helpers : {2, 7}) {
    AggregationPool pool(num_helpers);
    INFO(num_helpers << " helpers");
    CHECK((Outcome(round, pool) == expected));
  }
  return expected;
}

TEST_CASE("A dense result has the same bits however many threads fold and release it") {
  for (const v1::Numerics numerics : {v1::EXACT, v1::F64}) {
    for (const char* op : {"sum", "weighted_mean"})
      CheckEverywhere(ARound(AnOutput(op, v1::FLOAT32, {kElements}), numerics));
  }
  CheckEverywhere(ARound(AnOutput("sum", v1::INT32, {kElements})));
}

TEST_CASE("Single values have the same bits however many threads fold and release them, sparse or dense, all or some") {
  for (const char* op : {"sparse_sum", "weighted_coordinate_mean"}) {
    for (const v1::OutputForm form : {v1::SPARSE, v1::DENSE}) {
      v1::OutputSpec output = AnOutput(op, v1::FLOAT32, {2000, 1500});
      output.set_index_dims(2);
      output.set_form(form);
      CheckEverywhere(ARound(output));
      output.set_min_contributors(2);
      CheckEverywhere(ARound(output));
    }
  }
  v1::OutputSpec output = AnOutput("sparse_sum", v1::INT32, {3'000'000});
  output.set_index_dims(1);
  output.set_drop_zeros(true);
  CheckEverywhere(ARound(output));
}

TEST_CASE("Rows have the same bits however many threads fold and release them, sparse or dense, all or some") {
  for (const v1::Numerics numerics : {v1::EXACT, v1::F64, v1::F32}) {
    for (const v1::OutputForm form : {v1::SPARSE, v1::DENSE}) {
      v1::OutputSpec output = AnOutput("slices_sum", v1::FLOAT32, {100'000, 16});
      output.set_index_dims(1);
      output.set_form(form);
      CheckEverywhere(ARound(output, numerics));
      output.set_min_contributors(2);
      CheckEverywhere(ARound(output, numerics));
    }
  }
  // Of a table that is hashed; and of rows that are wide.
  v1::OutputSpec output = AnOutput("slices_sum", v1::FLOAT32, {1'000'000'000, 3});
  output.set_index_dims(1);
  CheckEverywhere(ARound(output));
}

TEST_CASE("A keyed table has the same bits however many threads fold and release it") {
  for (const v1::KeyType type : {v1::INT64_KEYS, v1::STRING_KEYS}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>(), std::vector<int64_t>{9}}) {
      v1::OutputSpec output = AnOutput("keyed_sum", v1::FLOAT32, shape);
      output.set_key_type(type);
      CheckEverywhere(ARound(output));
      output.set_min_contributors(2);
      CheckEverywhere(ARound(output));
    }
  }
}

TEST_CASE("Of many sums that do not fit, the first is named, however many threads look for it") {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  Round dense = ARound(AnOutput("sum", v1::INT32, {kElements}));
  for (v1::Contribution& contribution : dense.contributions) {
    for (const int64_t i : {int64_t{590'000}, int64_t{300'001}, int64_t{300'002}, int64_t{599'999}}) {
      Set(*contribution.mutable_outputs(0)->mutable_dense(), i, kMost);
    }
  }
  CHECK_THAT(CheckEverywhere(dense), Catch::Contains("w[300001]: the sum does not fit"));
  for (const bool is_dense : {false, true}) {
    v1::OutputSpec output = AnOutput("sparse_sum", v1::INT32, {3'000'000});
    output.set_index_dims(1);
    output.set_form(is_dense ? v1::DENSE : v1::SPARSE);
    Round sparse = ARound(output);
    for (v1::Contribution& contribution : sparse.contributions) {
      v1::SparseTensor& tensor = *contribution.mutable_outputs(0)->mutable_sparse();
      for (int64_t i = 0; i < 5; ++i) {
        Set(*tensor.mutable_indices(), i, 2'900'000 - 400'000 * i);
        Set(*tensor.mutable_values(), i, kMost);
      }
    }
    CHECK_THAT(CheckEverywhere(sparse), Catch::Contains("w[1300000]: the sum does not fit"));
  }
}

TEST_CASE("Of many values that are refused, the first is named, however many threads look for it") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  Round dense = ARound(AnOutput("sum", v1::FLOAT32, {kElements}));
  Set(*dense.contributions[1].mutable_outputs(0)->mutable_dense(), 599'999, kNan);
  Set(*dense.contributions[1].mutable_outputs(0)->mutable_dense(), 270'000, kInf);
  CHECK_THAT(CheckEverywhere(dense), Catch::Contains("w[270000] is inf"));

  v1::OutputSpec output = AnOutput("sparse_sum", v1::FLOAT32, {2000, 1500});
  output.set_index_dims(2);
  Round sparse = ARound(output);
  v1::SparseTensor& tensor = *sparse.contributions[0].mutable_outputs(0)->mutable_sparse();
  Set(*tensor.mutable_values(), 290'000, kNan);
  Set(*tensor.mutable_values(), 280'000, -kInf);
  CHECK_THAT(CheckEverywhere(sparse), Catch::Contains("values row 280000") && Catch::Contains("is -inf"));
  // Indices come before values, and the first column of indices before the second.
  Set(*tensor.mutable_indices(), 2 * 10 + 1, int64_t{1500});
  Set(*tensor.mutable_indices(), 2 * 299'999, int64_t{2000});
  Set(*tensor.mutable_indices(), 2 * 299'998, int64_t{-1});
  CHECK_THAT(CheckEverywhere(sparse), Catch::Contains("indices[299998, 0] is -1, outside [0, 2000)"));
}

}  // namespace
}  // namespace sheaf
