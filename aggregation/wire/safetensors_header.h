// SafetensorsHeader: which tensors a safetensors file has, and where in the file their bytes lie. It takes the header's
// text alone: the file may be larger than memory.
//
//   ASSIGN_OR_RETURN(const int64_t size, SafetensorsHeader::TextBytes(first_8_bytes, file_bytes, limits));
//   ASSIGN_OR_RETURN(SafetensorsHeader header, SafetensorsHeader::Parse(text, file_bytes, limits));
//   ASSIGN_OR_RETURN(const TensorEntry* w, header.Find("w"));     // Bytes [w->begin, w->end) of the file.
//
// Text and offsets are untrusted. Parsing takes O(n log n) time for n bytes, at most a few bytes of memory for each,
// and no stack, however deep the JSON is nested. Immutable once parsed.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/wire/tensor.h"
#include "sheaf/v1/tensor.pb.h"

namespace sheaf {

// What a file may have. Errors name the limits as the server does: safetensors_header_bytes_max and so on. The defaults
// are the format's own; a server that parses for strangers sets lower ones.
struct SafetensorsLimits {
  int64_t header_bytes_max = 100'000'000;
  // Tensors, and entries of the metadata, together.
  int64_t tensors_max = std::numeric_limits<int64_t>::max();
  int64_t name_bytes_max = std::numeric_limits<int64_t>::max();
};

struct TensorEntry {
  std::string name;
  // UNSPECIFIED if the file has a type that is not known here (BF16, BOOL, ...): then nothing holds its bytes to its
  // shape.
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  // Offsets in the file.
  int64_t begin = 0;
  int64_t end = 0;

  int64_t num_rows() const { return shape.empty() ? 1 : shape.front(); }
  int64_t row_bytes() const { return RowBytes(dtype, shape); }
};

class SafetensorsHeader {
 public:
  // Bytes before the text, which say how long it is.
  static constexpr int64_t kPrefixBytes = 8;

  // The text's length, from the first bytes of the file. INVALID_ARGUMENT if the file ends before its header does;
  // RESOURCE_EXHAUSTED if the header is over its limit.
  static absl::StatusOr<int64_t> TextBytes(std::string_view prefix, int64_t file_bytes,
                                           const SafetensorsLimits& limits);
  // INVALID_ARGUMENT if the text is malformed, names something twice, or an offset, shape or dtype does not fit; says
  // which tensor. RESOURCE_EXHAUSTED over a limit, naming it.
  static absl::StatusOr<SafetensorsHeader> Parse(std::string_view text, int64_t file_bytes,
                                                 const SafetensorsLimits& limits);

  // In the order of their bytes.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // O(log n). NOT_FOUND, naming some that exist.
  absl::StatusOr<const TensorEntry*> Find(std::string_view name) const;
  // Memory that it takes.
  int64_t memory_bytes() const;

 private:
  std::vector<TensorEntry> tensors_;
  // Positions in `tensors_`, in the order of the names.
  std::vector<uint32_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace sheaf
