#include "tests/aggregation/values.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <iterator>
#include <limits>

#include "aggregation/operators.h"
#include "aggregation/output/output_layout.h"
#include "aggregation/wire/tensor.h"

namespace sheaf {
namespace {

uint64_t RandomBits(Random& random, v1::DType dtype) {
  if (dtype == v1::FLOAT32) {
    const float value = static_cast<float>(AwkwardFloat(random, dtype));
    return std::bit_cast<uint32_t>(value);
  }
  if (dtype == v1::FLOAT64) return std::bit_cast<uint64_t>(AwkwardFloat(random, dtype));
  // Integers: small ones, negative ones, and those near the ends.
  switch (random.Below(4)) {
    case 0:
      return random.Below(5);
    case 1:
      return ~random.Below(5);
    case 2:
      return random.Bits() >> 1;
    default:
      return random.Bits();
  }
}

std::string RandomData(int64_t n, v1::DType dtype, Random& random) {
  std::string data;
  // Often the same value with both signs: sums cancel.
  uint64_t bits = RandomBits(random, dtype);
  const bool is_float = dtype == v1::FLOAT32 || dtype == v1::FLOAT64;
  for (int64_t i = 0; i < n; ++i) {
    if (random.Chance(0.7))
      bits = RandomBits(random, dtype);
    else if (is_float)
      bits ^= uint64_t{1} << (8 * DTypeSize(dtype) - 1);
    data.append(reinterpret_cast<const char*>(&bits), static_cast<size_t>(DTypeSize(dtype)));
  }
  return data;
}

float RandomWeight(Random& random) {
  constexpr float kWeights[] = {0, 1, 2, 3.5f, 0.1f, 1e-45f, 1e-38f, 3e38f, 16777215, 1.0f / 3};
  return kWeights[random.Below(std::size(kWeights))];
}

void PlantNonFinite(std::string& data, v1::DType dtype, Random& random) {
  const size_t size = static_cast<size_t>(DTypeSize(dtype));
  if (data.empty() || !random.Chance(0.3)) return;
  constexpr double kValues[] = {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN()};
  const double value = kValues[random.Below(3)];
  const float narrow = static_cast<float>(value);
  std::memcpy(&data[random.Below(data.size() / size) * size],
              dtype == v1::FLOAT32 ? static_cast<const void*>(&narrow) : &value, size);
}

// In 64 bits, or in 32 if they fit.
v1::Tensor IntegerKeys(const std::vector<int64_t>& keys, Random& random) {
  const int64_t n = static_cast<int64_t>(keys.size());
  const std::vector<int32_t> narrow(keys.begin(), keys.end());
  const bool is_narrow = std::equal(keys.begin(), keys.end(), narrow.begin()) && random.Chance(0.5);
  return is_narrow ? ATensor(v1::INT32, {n}, BytesOf(narrow)) : ATensor(v1::INT64, {n}, BytesOf(keys));
}

// Few keys, so that they repeat.
v1::Contribution RandomTable(const OutputLayout& layout, float weight, Random& random) {
  const int64_t n = static_cast<int64_t>(random.Below(7));
  v1::Contribution contribution;
  contribution.set_weight(weight);
  contribution.add_outputs()->set_name("w");
  v1::KeyedTable& table = *contribution.mutable_outputs(0)->mutable_keyed();
  std::vector<int64_t> integers;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t key = static_cast<int64_t>(random.Below(6)) - 2;
    integers.push_back(random.Chance(0.1) ? key * (int64_t{1} << 61) : key);
    // Empty ones, prefixes of others, bytes beyond ASCII.
    if (layout.key_type == v1::STRING_KEYS)
      table.add_string_keys(std::string(random.Below(3), static_cast<char>(key * 50)));
  }
  if (layout.key_type == v1::INT64_KEYS) *table.mutable_int_keys() = IntegerKeys(integers, random);
  std::vector<int64_t> shape = {n};
  shape.insert(shape.end(), layout.shape.begin(), layout.shape.end());
  std::string data = RandomData(n * layout.width, layout.dtype, random);
  if (layout.propagates_non_finite) PlantNonFinite(data, layout.dtype, random);
  *table.mutable_values() = ATensor(layout.dtype, shape, data);
  return contribution;
}

}  // namespace

v1::OutputSpec AnOutput(const std::string& op, v1::DType dtype, const std::vector<int64_t>& shape,
                        const std::string& name) {
  v1::OutputSpec output;
  output.set_name(name);
  output.set_operator_(op);
  output.set_dtype(dtype);
  output.mutable_dense_shape()->Add(shape.begin(), shape.end());
  return output;
}

v1::AggregateSpec ASpec(const v1::OutputSpec& output) {
  v1::AggregateSpec spec;
  *spec.add_outputs() = output;
  return spec;
}

v1::AggregateSpec ASpec(const std::string& op, v1::DType dtype, const std::vector<int64_t>& shape) {
  return ASpec(AnOutput(op, dtype, shape));
}

v1::Tensor ATensor(v1::DType dtype, const std::vector<int64_t>& shape, const std::string& bytes) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  tensor.set_data(bytes);
  return tensor;
}

v1::Tensor Floats(const std::vector<float>& values) {
  return ATensor(v1::FLOAT32, {static_cast<int64_t>(values.size())}, BytesOf(values));
}

v1::SparseTensor Sparse(const std::vector<int64_t>& dense_shape, const v1::Tensor& indices, const v1::Tensor& values) {
  v1::SparseTensor sparse;
  sparse.mutable_dense_shape()->Add(dense_shape.begin(), dense_shape.end());
  *sparse.mutable_indices() = indices;
  *sparse.mutable_values() = values;
  return sparse;
}

v1::SparseTensor SparseFloats(const std::vector<int64_t>& indices, const std::vector<float>& values) {
  return Sparse({10}, ATensor(v1::INT64, {static_cast<int64_t>(indices.size()), 1}, BytesOf(indices)), Floats(values));
}

v1::Contribution Contribute(const v1::Tensor& dense, float weight) {
  v1::Contribution contribution;
  contribution.add_outputs()->set_name("w");
  *contribution.mutable_outputs(0)->mutable_dense() = dense;
  contribution.set_weight(weight);
  return contribution;
}

v1::Contribution Contribute(const v1::SparseTensor& sparse, float weight) {
  v1::Contribution contribution;
  contribution.add_outputs()->set_name("w");
  *contribution.mutable_outputs(0)->mutable_sparse() = sparse;
  contribution.set_weight(weight);
  return contribution;
}

RoundAccumulator Accumulator(const v1::AggregateSpec& spec) {
  absl::StatusOr<RoundAccumulator> accumulator = RoundAccumulator::Create(spec);
  INFO(accumulator.status().ToString());
  REQUIRE(accumulator.ok());
  return *std::move(accumulator);
}

absl::Status Fold(RoundAccumulator& accumulator, const v1::Contribution& contribution) {
  const absl::StatusOr<ValidContribution> valid = accumulator.Validate(contribution);
  if (valid.ok()) accumulator.Accumulate(*valid);
  return valid.status();
}

AggregateReport Aggregate(const v1::AggregateSpec& spec, const std::vector<v1::Contribution>& contributions) {
  RoundAccumulator accumulator = Accumulator(spec);
  for (const v1::Contribution& contribution : contributions) {
    const absl::Status status = Fold(accumulator, contribution);
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  const absl::StatusOr<AggregateReport> report = accumulator.Report();
  INFO(report.status().ToString());
  REQUIRE(report.ok());
  return *report;
}

const NamedTensor& Find(const AggregateReport& report, const std::string& name) {
  for (const NamedTensor& tensor : report.tensors) {
    if (tensor.name == name) return tensor;
  }
  FAIL("no tensor " << name);
  return report.tensors.front();
}

double AwkwardFloat(Random& random, v1::DType dtype) {
  const bool is_narrow = dtype == v1::FLOAT32;
  const double sign = random.Chance(0.5) ? -1 : 1;
  switch (random.Below(8)) {
    case 0:
      return sign * 0.0;
    case 1:
      return sign * static_cast<double>(random.Below(4));
    case 2:  // The ends.
      return sign *
             (is_narrow ? static_cast<double>(std::numeric_limits<float>::max()) : std::numeric_limits<double>::max());
    case 3:
      return sign * (is_narrow ? static_cast<double>(std::numeric_limits<float>::denorm_min())
                               : std::numeric_limits<double>::denorm_min());
    case 4:
    case 5: {  // Any exponent.
      const int exponent =
          is_narrow ? static_cast<int>(random.Below(276)) - 149 : static_cast<int>(random.Below(2096)) - 1074;
      const double value = sign * std::ldexp(1 + random.Fraction(), exponent);
      return is_narrow ? static_cast<double>(static_cast<float>(value)) : value;
    }
    default: {
      const double value = sign * random.Fraction();
      return is_narrow ? static_cast<double>(static_cast<float>(value)) : value;
    }
  }
}

v1::Contribution RandomContribution(const v1::AggregateSpec& spec, Random& random) {
  const OutputLayout layout = OutputLayout::FromSpec(spec.outputs(0), spec.numerics(), Operators()).value();
  const float weight = RandomWeight(random);
  if (layout.op->operand == Operand::kKeyed) return RandomTable(layout, weight, random);
  if (layout.op->operand == Operand::kDense) {
    std::string data = RandomData(layout.width, layout.dtype, random);
    if (layout.propagates_non_finite) PlantNonFinite(data, layout.dtype, random);
    return Contribute(ATensor(layout.dtype, layout.shape, data), weight);
  }
  const int64_t num_rows = layout.num_coordinates == 0 ? 0 : static_cast<int64_t>(random.Below(7));
  const bool is_wide = random.Chance(0.5);
  std::string indices;
  for (int64_t i = 0; i < num_rows; ++i) {
    for (const int64_t size : layout.leading_dims()) {
      const int64_t index = static_cast<int64_t>(random.Below(static_cast<uint64_t>(size)));
      indices.append(reinterpret_cast<const char*>(&index), is_wide ? 8 : 4);
    }
  }
  std::vector<int64_t> values_shape = {num_rows};
  values_shape.insert(values_shape.end(), layout.trailing_dims().begin(), layout.trailing_dims().end());
  std::string data = RandomData(num_rows * layout.width, layout.dtype, random);
  if (layout.propagates_non_finite) PlantNonFinite(data, layout.dtype, random);
  return Contribute(
      Sparse(layout.shape, ATensor(is_wide ? v1::INT64 : v1::INT32, {num_rows, layout.index_dims}, indices),
             ATensor(layout.dtype, values_shape, data)),
      weight);
}

v1::AggregateSpec RandomSpec(const Operator& op, v1::DType dtype, v1::Numerics numerics, Random& random) {
  std::vector<int64_t> shape(random.Below(4));
  if (op.default_index_dims > 0 && shape.empty()) shape.resize(1);
  for (int64_t& size : shape) size = random.Chance(0.05) ? 0 : 1 + static_cast<int64_t>(random.Below(5));
  // Wide rows are kept in other ways than narrow ones.
  if (shape.size() > 1 && random.Chance(0.2)) shape.back() = 16 + static_cast<int64_t>(random.Below(24));
  v1::OutputSpec output = AnOutput(std::string(op.symbol), dtype, shape);
  if (op.operand == Operand::kKeyed) output.set_key_type(random.Chance(0.5) ? v1::STRING_KEYS : v1::INT64_KEYS);
  bool releases_dense = op.releases_dense;
  if (op.operand == Operand::kSparse) {
    if (!shape.empty() && random.Chance(0.5)) output.set_index_dims(1 + static_cast<int>(random.Below(shape.size())));
    if (random.Chance(0.2)) output.set_form(v1::SPARSE);
    if (random.Chance(0.2) && op.reduction == Reduction::kSum) output.set_form(v1::DENSE);
    if (output.form() != v1::OUTPUT_FORM_UNSPECIFIED) releases_dense = output.form() == v1::DENSE;
  }
  if (op.operand != Operand::kDense) {
    if (random.Chance(0.3)) output.set_min_contributors(static_cast<int64_t>(random.Below(4)));
    if (random.Chance(0.3) && !releases_dense) output.set_drop_zeros(true);
    if (random.Chance(0.1)) output.set_nnz_max(100);
  }
  const bool is_float = dtype == v1::FLOAT32 || dtype == v1::FLOAT64;
  if (is_float && random.Chance(0.3)) output.set_non_finite(v1::PROPAGATE_NON_FINITE);
  v1::AggregateSpec spec = ASpec(output);
  spec.set_numerics(numerics);
  return spec;
}

}  // namespace sheaf
