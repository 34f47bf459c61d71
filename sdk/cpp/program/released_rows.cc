#include "sdk/cpp/program/released_rows.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/status_macros.h"

namespace sheaf {
namespace {

static_assert(std::endian::native == std::endian::little);

absl::StatusOr<const TensorView*> FindTensor(const SafetensorsView& aggregate, std::string_view name, v1::DType dtype,
                                             const std::vector<int64_t>& shape) {
  ASSIGN_OR_RETURN(const TensorView* tensor, aggregate.Find(name));
  if (tensor->dtype != dtype || tensor->shape != shape) {
    return absl::InternalError(
        fmt::format("the aggregate's tensor \"{}\" has another type or shape than asked for", name));
  }
  return tensor;
}

template <typename T>
std::vector<T> Copy(const TensorView& tensor) {
  std::vector<T> values(tensor.data.size() / sizeof(T));
  std::memcpy(values.data(), tensor.data.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace

absl::StatusOr<ReleasedRows> ReadReleasedRows(const SafetensorsView& aggregate, std::string_view output,
                                              const RowsShape& model) {
  const std::string indices_name = fmt::format("{}.indices", output);
  ASSIGN_OR_RETURN(const TensorView* any_indices, aggregate.Find(indices_name));
  const int64_t num_released = any_indices->num_rows();
  ASSIGN_OR_RETURN(const TensorView* indices, FindTensor(aggregate, indices_name, v1::INT64, {num_released, 1}));
  ASSIGN_OR_RETURN(const TensorView* values,
                   FindTensor(aggregate, fmt::format("{}.values", output), v1::FLOAT32, {num_released, model.width}));
  ReleasedRows rows{.indices = Copy<int64_t>(*indices), .values = Copy<float>(*values)};
  int64_t previous = -1;
  for (int64_t row : rows.indices) {
    if (row <= previous || row >= model.num_rows) {
      return absl::InternalError(
          fmt::format("the aggregate has row {} after row {}, of a model of {} rows", row, previous, model.num_rows));
    }
    previous = row;
  }
  return rows;
}

absl::StatusOr<std::vector<float>> ReadReleasedVector(const SafetensorsView& aggregate, std::string_view output,
                                                      int64_t size) {
  ASSIGN_OR_RETURN(const TensorView* tensor, FindTensor(aggregate, output, v1::FLOAT32, {size}));
  return Copy<float>(*tensor);
}

}  // namespace sheaf
