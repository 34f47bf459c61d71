// safetensors: the file format of broadcasts and aggregates. 8 bytes of little-endian header length, a JSON header
// {name: {dtype, shape, data_offsets}, "__metadata__": {...}}, then the raw little-endian bytes. No code,
// bounds-checkable, readable in place. Format: https://github.com/huggingface/safetensors#format
//
//   std::string file = EncodeSafetensors(std::vector<NamedTensor>{w}, {{"round", id}});
//   ASSIGN_OR_RETURN(SafetensorsView view, SafetensorsView::Parse(file));
//   ASSIGN_OR_RETURN(const TensorView* found, view.Find("w"));
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/wire/safetensors_header.h"
#include "aggregation/wire/tensor.h"
#include "base/byte_sink.h"

namespace sheaf {

// A tensor whose bytes lie elsewhere.
struct TensorView {
  std::string name;
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  std::string_view data;

  // Rows are along the first dimension; a scalar has one row of one element.
  int64_t num_rows() const;
  int64_t row_bytes() const;
};

// Equal tensors and metadata give equal bytes. Data is 8-byte aligned.
std::string EncodeSafetensors(const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata);
// The same for tensors that lie elsewhere.
std::string EncodeSafetensors(const std::vector<TensorView>& tensors,
                              const std::map<std::string, std::string>& metadata);

// The same file, piece by piece. The first error of a tensor or of `take`.
absl::Status WriteSafetensors(const std::vector<ReleasedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata, const ByteSink& take);

// A whole file in memory. One that need not be there whole is read by its header (safetensors_header.h).
class SafetensorsView {
 public:
  // `file` must outlive the view and is untrusted: the codes of SafetensorsHeader; INVALID_ARGUMENT also if a tensor
  // has a dtype that is not known here.
  static absl::StatusOr<SafetensorsView> Parse(std::string_view file, const SafetensorsLimits& limits = {});

  const std::vector<TensorView>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata(); }
  // O(log n). NOT_FOUND, naming some that exist.
  absl::StatusOr<const TensorView*> Find(std::string_view name) const;

 private:
  SafetensorsHeader header_;
  // In the order of the header's.
  std::vector<TensorView> tensors_;
};

}  // namespace sheaf
