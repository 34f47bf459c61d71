#include "sdk/cpp/computation/contribution.h"

#include <bit>
#include <functional>
#include <numeric>

#include "base/check.h"

namespace sheaf {
namespace {

static_assert(std::endian::native == std::endian::little);

void FillFloats(const std::vector<int64_t>& shape, const std::vector<float>& values, v1::Tensor& tensor) {
  const int64_t size = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  SHEAF_CHECK(static_cast<int64_t>(values.size()) == size, "{} values for {} elements", values.size(), size);
  tensor.set_dtype(v1::FLOAT32);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  tensor.set_data(values.data(), values.size() * sizeof(float));
}

v1::OutputValue& Add(std::string_view output, v1::Contribution& contribution) {
  v1::OutputValue& value = *contribution.add_outputs();
  value.set_name(std::string(output));
  return value;
}

}  // namespace

void AddDense(std::string_view output, const std::vector<int64_t>& shape, const std::vector<float>& values,
              v1::Contribution& contribution) {
  FillFloats(shape, values, *Add(output, contribution).mutable_dense());
}

void AddRows(std::string_view output, const std::vector<int64_t>& shape, const std::vector<int64_t>& rows,
             const std::vector<float>& values, v1::Contribution& contribution) {
  v1::SparseTensor& sparse = *Add(output, contribution).mutable_sparse();
  sparse.mutable_dense_shape()->Add(shape.begin(), shape.end());
  const auto num_rows = static_cast<int64_t>(rows.size());
  v1::Tensor& indices = *sparse.mutable_indices();
  indices.set_dtype(v1::INT64);
  indices.add_shape(num_rows);
  indices.set_data(rows.data(), rows.size() * sizeof(int64_t));
  std::vector<int64_t> values_shape = shape;
  SHEAF_CHECK(!shape.empty(), "a scalar has no rows");
  values_shape.front() = num_rows;
  FillFloats(values_shape, values, *sparse.mutable_values());
}

}  // namespace sheaf
