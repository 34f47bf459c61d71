#include "probe/one_hot.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string>

#include "aggregation/operators.h"
#include "aggregation/output/output_layout.h"
#include "aggregation/wire/safetensors.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr char kDense[] = "counts";
constexpr char kSparse[] = "touched";

template <typename T>
std::string BytesOf(T value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

std::string One(v1::DType dtype) {
  switch (dtype) {
    case v1::FLOAT32:
      return BytesOf(1.0f);
    case v1::FLOAT64:
      return BytesOf(1.0);
    case v1::INT32:
      return BytesOf(int32_t{1});
    default:
      return BytesOf(int64_t{1});
  }
}

void SetShape(const std::vector<int64_t>& shape, v1::Tensor& tensor) {
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
}

void FillDense(const OutputLayout& layout, std::optional<int64_t> index, v1::Tensor& tensor) {
  std::string one = One(layout.dtype);
  tensor.set_dtype(layout.dtype);
  SetShape(layout.shape, tensor);
  tensor.mutable_data()->assign(static_cast<size_t>(layout.width) * one.size(), '\0');
  if (index.has_value()) tensor.mutable_data()->replace(static_cast<size_t>(*index) * one.size(), one.size(), one);
}

// The position of a linear coordinate along each of the leading dimensions.
std::string IndexRow(const OutputLayout& layout, int64_t coordinate) {
  std::string row(static_cast<size_t>(layout.index_dims) * sizeof(int64_t), '\0');
  for (int d = layout.index_dims - 1; d >= 0; --d) {
    int64_t position = coordinate % layout.shape[d];
    coordinate /= layout.shape[d];
    std::memcpy(row.data() + static_cast<size_t>(d) * sizeof(int64_t), &position, sizeof(position));
  }
  return row;
}

// Ones at these coordinates.
void FillSparse(const OutputLayout& layout, const std::vector<int64_t>& coordinates, v1::SparseTensor& tensor) {
  int64_t n = static_cast<int64_t>(coordinates.size());
  tensor.mutable_dense_shape()->Assign(layout.shape.begin(), layout.shape.end());
  tensor.mutable_indices()->set_dtype(v1::INT64);
  SetShape({n, layout.index_dims}, *tensor.mutable_indices());
  std::vector<int64_t> values_shape = {n};
  values_shape.insert(values_shape.end(), layout.trailing_dims().begin(), layout.trailing_dims().end());
  tensor.mutable_values()->set_dtype(layout.dtype);
  SetShape(values_shape, *tensor.mutable_values());
  std::string one = One(layout.dtype);
  for (int64_t coordinate : coordinates) {
    tensor.mutable_indices()->mutable_data()->append(IndexRow(layout, coordinate));
    for (int64_t i = 0; i < layout.width; ++i) tensor.mutable_values()->mutable_data()->append(one);
  }
}

// Ones at the key that is the index, in decimal digits where keys are strings.
void FillKeyed(const OutputLayout& layout, std::optional<int64_t> index, v1::KeyedTable& table) {
  int64_t n = index.has_value() ? 1 : 0;
  if (layout.key_type == v1::STRING_KEYS) {
    if (index.has_value()) table.add_string_keys(std::to_string(*index));
  } else {
    table.mutable_int_keys()->set_dtype(v1::INT64);
    SetShape({n}, *table.mutable_int_keys());
    if (index.has_value()) table.mutable_int_keys()->set_data(reinterpret_cast<const char*>(&*index), sizeof *index);
  }
  std::vector<int64_t> values_shape = {n};
  values_shape.insert(values_shape.end(), layout.shape.begin(), layout.shape.end());
  table.mutable_values()->set_dtype(layout.dtype);
  SetShape(values_shape, *table.mutable_values());
  for (int64_t i = 0; i < n * layout.width; ++i) table.mutable_values()->mutable_data()->append(One(layout.dtype));
}

absl::StatusOr<std::vector<int64_t>> Numbers(const SafetensorsView& file, std::string_view name) {
  ASSIGN_OR_RETURN(const TensorView* tensor, file.Find(name));
  if (tensor->dtype != v1::INT64) return absl::InternalError(fmt::format("output \"{}\" is not INT64", name));
  std::vector<int64_t> numbers(tensor->data.size() / sizeof(int64_t));
  std::memcpy(numbers.data(), tensor->data.data(), numbers.size() * sizeof(int64_t));
  return numbers;
}

absl::StatusOr<v1::Contribution> Contribution(const v1::AggregateSpec& spec, std::optional<int64_t> index,
                                              OneHotForm form) {
  v1::Contribution contribution;
  for (const v1::OutputSpec& output : spec.outputs()) {
    ASSIGN_OR_RETURN(OutputLayout layout, OutputLayout::FromSpec(output, v1::EXACT, Operators()));
    const bool is_keyed = layout.op->operand == Operand::kKeyed;
    const bool is_sparse = layout.op->operand == Operand::kSparse;
    int64_t size = is_sparse ? layout.num_coordinates : layout.width;
    if (index.has_value() && (*index < 0 || (*index >= size && !is_keyed))) {
      return absl::InvalidArgumentError(
          fmt::format("index {} is not in output \"{}\", which has {} coordinates", *index, output.name(), size));
    }
    v1::OutputValue* value = contribution.add_outputs();
    value->set_name(output.name());
    if (is_sparse) {
      std::vector<int64_t> coordinates;
      if (index.has_value() && form == OneHotForm::kMeeting) coordinates.push_back(0);
      if (index.has_value()) coordinates.push_back(*index);
      FillSparse(layout, coordinates, *value->mutable_sparse());
    } else if (is_keyed) {
      FillKeyed(layout, index, *value->mutable_keyed());
    } else {
      FillDense(layout, index, *value->mutable_dense());
    }
  }
  return contribution;
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

absl::StatusOr<v1::Contribution> OneHotContribution(const v1::AggregateSpec& spec, int64_t index, OneHotForm form) {
  return Contribution(spec, index, form);
}

absl::StatusOr<v1::Contribution> ZeroContribution(const v1::AggregateSpec& spec) {
  return Contribution(spec, std::nullopt, OneHotForm::kAlone);
}

absl::StatusOr<std::vector<int64_t>> OneHotCounts(std::string_view aggregate_file, OneHotForm form) {
  ASSIGN_OR_RETURN(const SafetensorsView file, SafetensorsView::Parse(aggregate_file));
  ASSIGN_OR_RETURN(std::vector<int64_t> counts, Numbers(file, kDense));
  ASSIGN_OR_RETURN(std::vector<int64_t> touched, Numbers(file, kSparse));
  if (form == OneHotForm::kMeeting && !touched.empty()) {
    for (int64_t count : counts) touched.front() -= count;
  }
  if (counts == touched) return counts;
  return absl::InternalError(
      fmt::format("the outputs \"{}\" and \"{}\" combine the same contributions and differ", kDense, kSparse));
}

}  // namespace sheaf
