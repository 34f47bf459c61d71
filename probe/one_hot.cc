#include "probe/one_hot.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "aggregation/wire/safetensors.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr char kDense[] = "counts";
constexpr char kSparse[] = "touched";

std::string BytesOf(int64_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

absl::StatusOr<std::vector<int64_t>> Numbers(const SafetensorsView& file, std::string_view name) {
  ASSIGN_OR_RETURN(const TensorView* tensor, file.Find(name));
  if (tensor->dtype != v1::INT64) return absl::InternalError(fmt::format("output \"{}\" is not INT64", name));
  std::vector<int64_t> numbers(tensor->data.size() / sizeof(int64_t));
  std::memcpy(numbers.data(), tensor->data.data(), numbers.size() * sizeof(int64_t));
  return numbers;
}

}  // namespace

v1::AggregateSpec OneHotAggregate(int64_t size) {
  v1::AggregateSpec spec;
  for (const auto& [name, symbol] : {std::pair(kDense, "sum"), {kSparse, "sparse_sum_to_dense"}}) {
    v1::OutputSpec& output = *spec.add_outputs();
    output.set_name(name);
    output.set_operator_(symbol);
    output.set_dtype(v1::INT64);
    output.add_dense_shape(size);
  }
  return spec;
}

v1::Contribution OneHotContribution(int64_t size, int64_t index) {
  v1::Contribution contribution;
  v1::OutputValue& counts = *contribution.add_outputs();
  counts.set_name(kDense);
  v1::Tensor& dense = *counts.mutable_dense();
  dense.set_dtype(v1::INT64);
  dense.add_shape(size);
  dense.mutable_data()->assign(static_cast<size_t>(size) * sizeof(int64_t), '\0');
  dense.mutable_data()->replace(static_cast<size_t>(index) * sizeof(int64_t), sizeof(int64_t), BytesOf(1));

  v1::OutputValue& touched = *contribution.add_outputs();
  touched.set_name(kSparse);
  v1::SparseTensor& sparse = *touched.mutable_sparse();
  sparse.add_dense_shape(size);
  sparse.mutable_indices()->set_dtype(v1::INT64);
  sparse.mutable_indices()->add_shape(1);
  sparse.mutable_indices()->add_shape(1);
  sparse.mutable_indices()->set_data(BytesOf(index));
  sparse.mutable_values()->set_dtype(v1::INT64);
  sparse.mutable_values()->add_shape(1);
  sparse.mutable_values()->set_data(BytesOf(1));
  return contribution;
}

absl::StatusOr<std::vector<int64_t>> OneHotCounts(std::string_view aggregate_file) {
  ASSIGN_OR_RETURN(const SafetensorsView file, SafetensorsView::Parse(aggregate_file));
  ASSIGN_OR_RETURN(std::vector<int64_t> counts, Numbers(file, kDense));
  ASSIGN_OR_RETURN(const std::vector<int64_t> touched, Numbers(file, kSparse));
  if (counts == touched) return counts;
  return absl::InternalError(
      fmt::format("the outputs \"{}\" and \"{}\" combine the same contributions and differ", kDense, kSparse));
}

}  // namespace sheaf
