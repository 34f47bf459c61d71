// safetensors files that say what of another one is different: a patch of a broadcast (blob_service.proto says how it
// is made up), so that a model of which some rows moved need not be sent again.
//
//   const std::string patch = EncodeSafetensorsPatch(base_digest, changes);
//   const bool is_patch = PatchBase(header) != nullptr;
//   RETURN_IF_ERROR(ApplySafetensorsPatch(patch, file));   // The base's file becomes what the patch stands for.
//
// Patches are untrusted: each is held to its base before a byte of it is used.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/wire/safetensors_header.h"
#include "sheaf/v1/tensor.pb.h"

namespace sheaf {

// What of one tensor is different.
struct TensorChange {
  // Its name in the base.
  std::string tensor;
  // Rows that are different, ascending and unique; nothing: all of it is.
  std::optional<std::span<const int64_t>> rows;
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  // Of `data`: [rows, shape of one row...], or the tensor's.
  std::vector<int64_t> shape;
  std::string_view data;
};

// `base` is the digest of the file that it is a patch of.
std::string EncodeSafetensorsPatch(const std::string& base, std::span<const TensorChange> changes);

// The digest of the file that this one is a patch of; null if it is none. Points into the header.
const std::string* PatchBase(const SafetensorsHeader& header);

// Where a tensor of the base is different. Points into the headers.
struct PatchedTensor {
  const TensorEntry* tensor = nullptr;
  // Of the patch: the numbers of the rows and the rows, or nothing and all of the tensor.
  const TensorEntry* indices = nullptr;
  const TensorEntry* values = nullptr;
};

// One for each tensor that is different, in the base's order. O(n log n) for n tensors. INVALID_ARGUMENT, naming
// the tensor, if it is not one of the base's, has another dtype or shape, or is there whole and in rows.
absl::StatusOr<std::vector<PatchedTensor>> FitPatch(const SafetensorsHeader& patch, const SafetensorsHeader& base);

// `rows` are `tensor`'s, each above the one before, of which the first is above `before`. INVALID_ARGUMENT.
absl::Status CheckPatchRows(const TensorEntry& tensor, std::span<const int64_t> rows, int64_t before = -1);

// Puts what is different into its place in `file`, which is the base's. INVALID_ARGUMENT, and nothing has changed, if
// either is malformed or the patch does not fit.
absl::Status ApplySafetensorsPatch(std::string_view patch, std::string& file);

}  // namespace sheaf
