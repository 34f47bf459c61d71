// PatchedBlob: what a patch of a broadcast stands for, read as if it were a file of its own: the bytes of the whole one
// at the bottom, and those that its patches have put in their place.
//
//   RETURN_IF_ERROR(CheckPatch(*patch.bytes, *patch.header, *whole.header));   // Before it is stored.
//   ASSIGN_OR_RETURN(const auto blob, PatchedBlob::Open(whole, {&patch, 1}));
//   RETURN_IF_ERROR(blob->Append(ranges, rows));
//
// Opening it reads the numbers of the rows of all patches: O(n log n) time for n of them, and 24 bytes of memory each.
// Reading takes O(log n) for each row, however many patches there are. Immutable, and thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/wire/safetensors_header.h"
#include "storage/blob_view.h"

namespace sheaf {

// A stored safetensors file and its header. What is referred to lives as long as this is used.
struct SafetensorsBlob {
  std::shared_ptr<const BlobView> bytes;
  const SafetensorsHeader* header = nullptr;
};

// The patch fits a file with this header, and its rows are ascending. INVALID_ARGUMENT; the codes of BlobView.
absl::Status CheckPatch(const BlobView& patch, const SafetensorsHeader& header, const SafetensorsHeader& base);
// Rows that it has of tensors that it has not whole.
int64_t CountPatchRows(const SafetensorsHeader& patch, const SafetensorsHeader& base);

class PatchedBlob final : public BlobView {
 public:
  // The codes of CheckPatch. The headers are needed only until it returns.
  static absl::StatusOr<std::shared_ptr<const PatchedBlob>> Open(const SafetensorsBlob& whole,
                                                                 std::span<const SafetensorsBlob> patches);

  int64_t size_bytes() const override { return layers_.front()->size_bytes(); }
  absl::Status Append(std::span<const ByteRange> ranges, std::string& to) const override;
  absl::Status Visit(const std::function<absl::Status(std::string_view bytes)>& read) const override;

  // Memory that it takes, beside what is open.
  int64_t memory_bytes() const;

 private:
  // Where bytes are instead: in which layer, and from where on.
  struct Place {
    int32_t layer = 0;
    int64_t offset = 0;
  };
  struct PatchedRow {
    int64_t row = 0;
    Place place;
  };
  // A tensor with bytes of patches.
  struct Tensor {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t row_bytes = 0;
    // Of its first byte, as far as no row is patched.
    Place whole;
    // Ascending.
    std::vector<PatchedRow> rows;
  };
  // Ranges of one layer, one after the other in what is read.
  class Reader;

  PatchedBlob() = default;
  absl::Status AddPatch(const SafetensorsBlob& patch, const SafetensorsHeader& base);
  // From the tensor on; they lie in it.
  absl::Status ReadTensor(const Tensor& tensor, const ByteRange& range, Reader& reader) const;

  // The whole first.
  std::vector<std::shared_ptr<const BlobView>> layers_;
  // In the order of their bytes.
  std::vector<Tensor> tensors_;
};

}  // namespace sheaf
