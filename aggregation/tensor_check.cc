#include "aggregation/tensor_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "aggregation/exact/exact_block.h"
#include "aggregation/exact/exact_kernels.h"
#include "aggregation/refusal.h"
#include "aggregation/wire/tensor.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// Bytes that are looked at by one thread.
constexpr int64_t kPartBytes = int64_t{1} << 20;

template <typename... Args>
absl::Status Refuse(RefusalKind kind, const OutputLayout& layout, fmt::format_string<Args...> format, Args&&... args) {
  return RefusedAs(kind, layout.name,
                   absl::InvalidArgumentError(
                       fmt::format("output '{}': {}", layout.name, fmt::format(format, std::forward<Args>(args)...))));
}

template <typename T>
T Load(const char* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// Dtype, and bytes against shape.
absl::Status CheckBytes(const OutputLayout& layout, const char* part, const v1::Tensor& tensor, v1::DType dtype) {
  if (tensor.dtype() != dtype) {
    return Refuse(RefusalKind::kDType, layout, "{} is {}, expected {}", part, v1::DType_Name(tensor.dtype()),
                  v1::DType_Name(dtype));
  }
  const std::span<const int64_t> shape(tensor.shape().data(), static_cast<size_t>(tensor.shape_size()));
  for (const int64_t size : shape) {
    if (size < 0)
      return Refuse(RefusalKind::kShape, layout, "the shape {} of {} has a negative size", ShapeText(shape), part);
  }
  const std::optional<int64_t> elements = Product(shape);
  int64_t bytes = 0;
  const bool overflows = !elements.has_value() || __builtin_mul_overflow(*elements, DTypeSize(dtype), &bytes);
  if (overflows || static_cast<int64_t>(tensor.data().size()) != bytes) {
    return Refuse(RefusalKind::kNumBytes, layout, "{} has {} bytes, but its shape {} of {} takes {}", part,
                  tensor.data().size(), ShapeText(shape), v1::DType_Name(dtype),
                  overflows ? "more than there can be" : std::to_string(bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckIndexType(const OutputLayout& layout, const char* part, const v1::Tensor& tensor) {
  if (tensor.dtype() == v1::INT32 || tensor.dtype() == v1::INT64) return absl::OkStatus();
  return Refuse(RefusalKind::kDType, layout, "{} is {}, expected INT64 or INT32", part, v1::DType_Name(tensor.dtype()));
}

// Of floats.
bool IsAllFinite(const char* values, int64_t n, v1::DType dtype) {
  return dtype == v1::FLOAT32 ? AllFinite32(values, n) : AllFinite64(values, n);
}

// The position of the first NaN or infinity, or -1.
int64_t FirstNonFinite(const std::string& data, v1::DType dtype, ParallelFor& parallel) {
  if (dtype != v1::FLOAT32 && dtype != v1::FLOAT64) return -1;
  const int64_t size = DTypeSize(dtype), n = static_cast<int64_t>(data.size()) / size;
  std::atomic<bool> is_finite = true;
  RunInParts(parallel, n, kPartBytes / size, [&](int64_t begin, int64_t end) {
    if (!IsAllFinite(data.data() + begin * size, end - begin, dtype)) is_finite.store(false, std::memory_order_relaxed);
  });
  if (is_finite.load(std::memory_order_relaxed)) return -1;
  int64_t first = 0;
  while (IsAllFinite(data.data() + first * size, 1, dtype)) ++first;
  return first;
}

std::vector<FloatRange> RangesOf(const std::string& floats, ParallelFor& parallel) {
  constexpr int64_t kRun = ExactBlock::kRunMax, kPart = kPartBytes / static_cast<int64_t>(sizeof(float));
  static_assert(kPart % kRun == 0);
  const int64_t n = static_cast<int64_t>(floats.size() / sizeof(float));
  std::vector<FloatRange> ranges(static_cast<size_t>((n + kRun - 1) / kRun));
  RunInParts(parallel, n, kPart, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kRun) {
      const auto size = static_cast<int>(std::min(kRun, end - at));
      ranges[static_cast<size_t>(at / kRun)] =
          ScanFloats(floats.data() + at * static_cast<int64_t>(sizeof(float)), size);
    }
  });
  return ranges;
}

const char* NonFiniteName(const std::string& data, v1::DType dtype, int64_t position) {
  double value = 0;
  if (dtype == v1::FLOAT32) {
    float narrow;
    std::memcpy(&narrow, data.data() + 4 * position, sizeof narrow);
    value = narrow;
  } else {
    std::memcpy(&value, data.data() + 8 * position, sizeof value);
  }
  return std::isnan(value) ? "NaN" : value > 0 ? "inf" : "-inf";
}

// "index 7, column 1 is 12": which index is outside its dimension.
absl::Status CheckIndex(const OutputLayout& layout, int64_t row, size_t column, int64_t index) {
  const int64_t size = layout.shape[column];
  if (0 <= index && index < size) return absl::OkStatus();
  return Refuse(RefusalKind::kIndex, layout, "indices[{}, {}] is {}, outside [0, {})", row, column, index, size);
}

// The linear coordinates of rows from `begin` up to `end`; false, and they are not set right, if an index is outside.
template <typename Index>
bool SetLinearKeys(const OutputLayout& layout, const char* data, int64_t begin, int64_t end, int64_t* keys) {
  const int64_t columns = layout.index_dims;
  if (columns == 0) std::fill(keys + begin, keys + end, 0);
  // All are looked at before one is judged: loops without a way out are fast, and errors are rare.
  bool is_inside = true;
  for (int64_t column = 0; column < columns; ++column) {
    const auto size = static_cast<uint64_t>(layout.shape[static_cast<size_t>(column)]);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t index = Load<Index>(data, row * columns + column);
      is_inside &= static_cast<uint64_t>(index) < size;
      // Wraps where an index is outside.
      const uint64_t before = column == 0 ? 0 : static_cast<uint64_t>(keys[row]) * size;
      keys[row] = static_cast<int64_t>(before + static_cast<uint64_t>(index));
    }
  }
  return is_inside;
}

template <typename Index>
absl::Status LinearKeys(const OutputLayout& layout, const std::string& data, int64_t num_rows, ParallelFor& parallel,
                        RawVector<int64_t>& keys) {
  const int64_t columns = layout.index_dims;
  keys.resize(static_cast<size_t>(num_rows));
  std::atomic<bool> is_inside = true;
  RunInParts(parallel, num_rows, kPartBytes / static_cast<int64_t>(sizeof(int64_t)), [&](int64_t begin, int64_t end) {
    if (!SetLinearKeys<Index>(layout, data.data(), begin, end, keys.data())) {
      is_inside.store(false, std::memory_order_relaxed);
    }
  });
  if (is_inside.load(std::memory_order_relaxed)) return absl::OkStatus();
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < num_rows; ++row) {
      RETURN_IF_ERROR(
          CheckIndex(layout, row, static_cast<size_t>(column), Load<Index>(data.data(), row * columns + column)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckIndicesShape(const OutputLayout& layout, const v1::Tensor& indices) {
  const bool is_flat = indices.shape_size() == 1 && layout.index_dims == 1;
  const bool is_table = indices.shape_size() == 2 && indices.shape(1) == layout.index_dims;
  if (is_flat || is_table) return absl::OkStatus();
  return Refuse(RefusalKind::kShape, layout, "indices have shape {}, expected [n, {}]",
                ShapeText({indices.shape().data(), static_cast<size_t>(indices.shape_size())}), layout.index_dims);
}

// Shape, type and bytes of one row of values per key or coordinate; and their number, and that of their NaNs.
absl::Status CheckRows(const OutputLayout& layout, int64_t num_rows, const v1::Tensor& values) {
  if (layout.nnz_max > 0 && num_rows > layout.nnz_max) {
    return RefusedAs(RefusalKind::kTooManyRows, layout.name,
                     absl::ResourceExhaustedError(
                         fmt::format("output '{}': the contribution has {} rows; nnz_max of this output is {}",
                                     layout.name, num_rows, layout.nnz_max)));
  }
  std::vector<int64_t> expected = {num_rows};
  expected.insert(expected.end(), layout.trailing_dims().begin(), layout.trailing_dims().end());
  const std::span<const int64_t> shape(values.shape().data(), static_cast<size_t>(values.shape_size()));
  if (!std::equal(shape.begin(), shape.end(), expected.begin(), expected.end())) {
    return Refuse(RefusalKind::kShape, layout, "values have shape {}, expected {} (one row per {})", ShapeText(shape),
                  ShapeText(expected), layout.op->operand == Operand::kKeyed ? "key" : "index");
  }
  return CheckBytes(layout, "the tensor of values", values, layout.dtype);
}

// `name_of(row, offset)` says which element is meant.
template <typename NameOf>
absl::Status CheckFinite(const OutputLayout& layout, const v1::Tensor& values, ParallelFor& parallel, NameOf name_of) {
  if (layout.propagates_non_finite) return absl::OkStatus();
  const int64_t position = FirstNonFinite(values.data(), layout.dtype, parallel);
  if (position < 0) return absl::OkStatus();
  const int64_t row = position / layout.width;
  return Refuse(RefusalKind::kNonFinite, layout, "values row {}, that is {}, is {}; only finite values are taken", row,
                name_of(row, position % layout.width), NonFiniteName(values.data(), layout.dtype, position));
}

}  // namespace

absl::Status CheckDense(const OutputLayout& layout, const v1::Tensor& tensor, ParallelFor& parallel,
                        std::vector<FloatRange>& ranges) {
  const std::span<const int64_t> shape(tensor.shape().data(), static_cast<size_t>(tensor.shape_size()));
  if (!std::equal(shape.begin(), shape.end(), layout.shape.begin(), layout.shape.end())) {
    return Refuse(RefusalKind::kShape, layout, "the tensor has shape {}, expected {}", ShapeText(shape),
                  ShapeText(layout.shape));
  }
  RETURN_IF_ERROR(CheckBytes(layout, "the tensor", tensor, layout.dtype));
  if (layout.dtype == v1::FLOAT32 && layout.is_exact_sum()) {
    ranges = RangesOf(tensor.data(), parallel);
    const auto is_finite = [](const FloatRange& range) { return range.is_finite; };
    if (std::all_of(ranges.begin(), ranges.end(), is_finite)) return absl::OkStatus();
  }
  if (layout.propagates_non_finite) return absl::OkStatus();
  const int64_t position = FirstNonFinite(tensor.data(), layout.dtype, parallel);
  if (position < 0) return absl::OkStatus();
  return Refuse(RefusalKind::kNonFinite, layout, "{} is {}; only finite values are taken",
                layout.ElementName(0, position), NonFiniteName(tensor.data(), layout.dtype, position));
}

absl::Status CheckSparse(const OutputLayout& layout, const v1::SparseTensor& tensor, ParallelFor& parallel,
                         RawVector<int64_t>& keys) {
  const std::span<const int64_t> shape(tensor.dense_shape().data(), static_cast<size_t>(tensor.dense_shape_size()));
  if (!std::equal(shape.begin(), shape.end(), layout.shape.begin(), layout.shape.end())) {
    return Refuse(RefusalKind::kShape, layout, "dense_shape is {}, expected {}", ShapeText(shape),
                  ShapeText(layout.shape));
  }
  const v1::Tensor& indices = tensor.indices();
  const v1::DType index_type = indices.dtype();
  RETURN_IF_ERROR(CheckIndicesShape(layout, indices));
  RETURN_IF_ERROR(CheckIndexType(layout, "the tensor of indices", indices));
  RETURN_IF_ERROR(CheckBytes(layout, "the tensor of indices", indices, index_type));
  const int64_t num_rows = indices.shape(0);
  RETURN_IF_ERROR(CheckRows(layout, num_rows, tensor.values()));
  // Every row took bytes, of indices or (a scalar has none) of values: the keys are no larger than what was sent, or
  // twice.
  RETURN_IF_ERROR(index_type == v1::INT32 ? LinearKeys<int32_t>(layout, indices.data(), num_rows, parallel, keys)
                                          : LinearKeys<int64_t>(layout, indices.data(), num_rows, parallel, keys));
  return CheckFinite(layout, tensor.values(), parallel, [&](int64_t row, int64_t offset) {
    return layout.ElementName(keys[static_cast<size_t>(row)], offset);
  });
}

absl::Status CheckKeyed(const OutputLayout& layout, const v1::KeyedTable& table, ParallelFor& parallel,
                        RawVector<int64_t>& keys) {
  const bool is_string = layout.key_type == v1::STRING_KEYS;
  if (is_string ? table.has_int_keys() : table.string_keys_size() > 0) {
    return Refuse(RefusalKind::kKeyType, layout, "the table has {} keys, expected {}", is_string ? "integer" : "string",
                  v1::KeyType_Name(layout.key_type));
  }
  int64_t num_rows = table.string_keys_size();
  if (is_string) {
    for (int row = 0; row < table.string_keys_size(); ++row) {
      const int64_t size = static_cast<int64_t>(table.string_keys(row).size());
      if (size <= kKeyBytesMax) continue;
      return RefusedAs(RefusalKind::kKeyLength, layout.name,
                       absl::ResourceExhaustedError(fmt::format("output '{}': key {} has {} bytes; the most is {}",
                                                                layout.name, row, size, kKeyBytesMax)));
    }
  } else {
    const v1::Tensor& integers = table.int_keys();
    if (integers.shape_size() != 1) {
      return Refuse(RefusalKind::kShape, layout, "keys have shape {}, expected [n]",
                    ShapeText({integers.shape().data(), static_cast<size_t>(integers.shape_size())}));
    }
    const v1::DType type = integers.dtype();
    RETURN_IF_ERROR(CheckIndexType(layout, "the tensor of keys", integers));
    RETURN_IF_ERROR(CheckBytes(layout, "the tensor of keys", integers, type));
    num_rows = integers.shape(0);
    keys.resize(static_cast<size_t>(num_rows));
    RunInParts(parallel, num_rows, kPartBytes / static_cast<int64_t>(sizeof(int64_t)), [&](int64_t begin, int64_t end) {
      const char* const from = integers.data().data();
      for (int64_t row = begin; row < end; ++row) {
        keys[static_cast<size_t>(row)] = type == v1::INT32 ? Load<int32_t>(from, row) : Load<int64_t>(from, row);
      }
    });
  }
  RETURN_IF_ERROR(CheckRows(layout, num_rows, table.values()));
  return CheckFinite(layout, table.values(), parallel, [&](int64_t row, int64_t offset) {
    const std::string key =
        is_string ? KeyText(table.string_keys(static_cast<int>(row))) : std::to_string(keys[static_cast<size_t>(row)]);
    return fmt::format("{}[{}], element {}", layout.name, key, offset);
  });
}

}  // namespace sheaf
