// Tensors as bytes: element types, shapes, and named tensors that lie in memory or are still to be written.
//
//   NamedTensor w{.name = "w", .dtype = v1::FLOAT32, .shape = {3, 4}, .data = bytes};
//   const ReleasedTensor released = ReleaseWhole(std::move(w));
//   RETURN_IF_ERROR(released.write(take));   // 48 bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/byte_sink.h"
#include "sheaf/v1/tensor.pb.h"

namespace sheaf {

// Dimensions of a tensor.
inline constexpr int kRankMax = 32;

// Size in bytes of one element; 0 for DTYPE_UNSPECIFIED.
int64_t DTypeSize(v1::DType dtype);
// "F32", "F64", "I32", "I64", "U64", "U8", as in a safetensors header.
std::string_view DTypeName(v1::DType dtype);
// Bytes of one row of a tensor of this shape. Rows are along the first dimension; a scalar is one row.
int64_t RowBytes(v1::DType dtype, std::span<const int64_t> shape);
// Product of sizes that are >= 0; nothing if it exceeds 2^63 - 1. A zero anywhere makes it 0.
std::optional<int64_t> Product(std::span<const int64_t> sizes);
// "[3, 4]".
std::string ShapeText(std::span<const int64_t> shape);

struct NamedTensor {
  std::string name;
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  // Little-endian, row-major.
  std::string data;
};

// The same, before its bytes are made: a large one never lies in memory as a whole.
struct ReleasedTensor {
  std::string name;
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  // Gives NamedTensor.data in pieces, in order; may be called again. OUT_OF_RANGE, naming output and coordinate, if a
  // sum does not fit its dtype; else what `take` returned.
  std::function<absl::Status(const ByteSink& take)> write;

  int64_t size_bytes() const;
};
// Of bytes that are made already.
ReleasedTensor ReleaseWhole(NamedTensor tensor);

}  // namespace sheaf
