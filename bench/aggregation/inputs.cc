#include "bench/aggregation/inputs.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "base/random.h"

namespace sheaf {
namespace {

// Roughly normal: what the numbers are matters to exact sums, their tails do not.
float Normal(Random& random) {
  double sum = 0;
  for (int i = 0; i < 6; ++i) sum += random.Fraction();
  return static_cast<float>((sum - 3) * 1.4142135);
}

int64_t Index(const SparseShape& shape, Random& random) {
  if (!shape.is_zipf) return static_cast<int64_t>(random.Below(static_cast<uint64_t>(shape.dimension)));
  // The continuous law of density 1 / x on [1, D].
  const double x = std::pow(static_cast<double>(shape.dimension), random.Fraction());
  return std::min(shape.dimension, static_cast<int64_t>(x)) - 1;
}

template <typename T>
void SetTensor(v1::DType dtype, const std::vector<int64_t>& shape, const std::vector<T>& values, v1::Tensor& tensor) {
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  tensor.set_data(values.data(), values.size() * sizeof(T));
}

}  // namespace

const SparseInput& MakeSparseInput(const SparseShape& shape) {
  static std::vector<std::unique_ptr<SparseInput>> made;
  for (const auto& input : made) {
    const SparseShape& known = input->shape;
    if (known.dimension == shape.dimension && known.width == shape.width && known.is_zipf == shape.is_zipf &&
        known.entries == shape.entries && known.num_contributions == shape.num_contributions) {
      return *input;
    }
  }
  // One at a time: they are large.
  made.clear();
  auto input = std::make_unique<SparseInput>();
  input->shape = shape;
  SeededRandom random(1);
  std::vector<float> values(static_cast<size_t>(shape.entries * shape.width));
  for (float& value : values) value = Normal(random);
  for (int c = 0; c < shape.num_contributions; ++c) {
    std::vector<int64_t> indices(static_cast<size_t>(shape.entries));
    for (int64_t& index : indices) index = Index(shape, random);
    v1::Contribution& contribution = input->contributions.emplace_back();
    contribution.add_outputs()->set_name("w");
    v1::SparseTensor& sparse = *contribution.mutable_outputs(0)->mutable_sparse();
    sparse.add_dense_shape(shape.dimension);
    if (shape.width > 1) sparse.add_dense_shape(shape.width);
    SetTensor(v1::INT64, {shape.entries, 1}, indices, *sparse.mutable_indices());
    std::vector<int64_t> values_shape = {shape.entries};
    if (shape.width > 1) values_shape.push_back(shape.width);
    SetTensor(v1::FLOAT32, values_shape, values, *sparse.mutable_values());
    if (shape.width > 1) continue;
    input->indices.insert(input->indices.end(), indices.begin(), indices.end());
    input->values.insert(input->values.end(), values.begin(), values.end());
  }
  made.push_back(std::move(input));
  return *made.back();
}

v1::Contribution MakeDenseInput(int64_t elements) {
  SeededRandom random(1);
  std::vector<float> values(static_cast<size_t>(elements));
  for (float& value : values) value = Normal(random);
  v1::Contribution contribution;
  contribution.add_outputs()->set_name("w");
  SetTensor(v1::FLOAT32, {elements}, values, *contribution.mutable_outputs(0)->mutable_dense());
  return contribution;
}

absl::Status Copy(std::string_view piece) {
  static std::vector<char> buffer;
  if (buffer.size() < piece.size()) buffer.resize(piece.size());
  std::memcpy(buffer.data(), piece.data(), piece.size());
  benchmark::DoNotOptimize(buffer.data());
  return absl::OkStatus();
}

absl::Status Take(std::string_view piece) {
  benchmark::DoNotOptimize(piece.data());
  return absl::OkStatus();
}

v1::AggregateSpec MakeSpec(const std::string& op, const std::vector<int64_t>& dense_shape, v1::Numerics numerics) {
  v1::AggregateSpec spec;
  spec.set_numerics(numerics);
  v1::OutputSpec& output = *spec.add_outputs();
  output.set_name("w");
  output.set_operator_(op);
  output.set_dtype(v1::FLOAT32);
  output.mutable_dense_shape()->Add(dense_shape.begin(), dense_shape.end());
  return spec;
}

}  // namespace sheaf
