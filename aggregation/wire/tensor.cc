#include "aggregation/wire/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

namespace sheaf {

int64_t DTypeSize(v1::DType dtype) {
  switch (dtype) {
    case v1::FLOAT32:
    case v1::INT32:
      return 4;
    case v1::FLOAT64:
    case v1::INT64:
    case v1::UINT64:
      return 8;
    case v1::UINT8:
      return 1;
    default:
      return 0;
  }
}

std::string_view DTypeName(v1::DType dtype) {
  switch (dtype) {
    case v1::FLOAT32:
      return "F32";
    case v1::FLOAT64:
      return "F64";
    case v1::INT32:
      return "I32";
    case v1::INT64:
      return "I64";
    case v1::UINT64:
      return "U64";
    case v1::UINT8:
      return "U8";
    default:
      return "";
  }
}

int64_t RowBytes(v1::DType dtype, std::span<const int64_t> shape) {
  const std::span<const int64_t> row = shape.subspan(std::min<size_t>(shape.size(), 1));
  const std::optional<int64_t> elements = Product(row);
  int64_t bytes = 0;
  // Of rows that no number of bytes holds there are none.
  const bool overflows = !elements.has_value() || __builtin_mul_overflow(*elements, DTypeSize(dtype), &bytes);
  return overflows ? 0 : bytes;
}

std::optional<int64_t> Product(std::span<const int64_t> sizes) {
  int64_t product = 1;
  bool overflows = false;
  for (const int64_t size : sizes) {
    if (size == 0) return 0;
    overflows |= __builtin_mul_overflow(product, size, &product);
  }
  if (overflows) return std::nullopt;
  return product;
}

std::string ShapeText(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int64_t ReleasedTensor::size_bytes() const {
  // A shape of no elements may have any other dimensions.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  return std::accumulate(shape.begin(), shape.end(), DTypeSize(dtype), std::multiplies<int64_t>());
}

ReleasedTensor ReleaseWhole(NamedTensor tensor) {
  auto data = std::make_shared<const std::string>(std::move(tensor.data));
  return {std::move(tensor.name), tensor.dtype, std::move(tensor.shape),
          [data](const ByteSink& take) { return take(*data); }};
}

}  // namespace sheaf
