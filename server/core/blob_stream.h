// BlobStream: a blob as protobuf reads it, so that a large message is parsed without being in memory twice.
//
//   BlobStream stream(*upload);
//   if (!contribution.ParseFromZeroCopyStream(&stream)) {
//     RETURN_IF_ERROR(stream.status());     // The file failed, not its content.
//     ...
//   }
//
// `blob` must outlive it. Not thread-safe.
#pragma once

#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "storage/blob_view.h"

namespace sheaf {

class BlobStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit BlobStream(const BlobView& blob) : blob_(blob) {}

  bool Next(const void** data, int* size) override;
  void BackUp(int count) override { backed_up_ = count; }
  bool Skip(int count) override;
  int64_t ByteCount() const override { return next_ - backed_up_; }

  // Why it ended before its end: a code of BlobView.
  const absl::Status& status() const { return status_; }

 private:
  const BlobView& blob_;
  std::string block_;
  // Of the blob: behind the block.
  int64_t next_ = 0;
  // Bytes at the end of the block that come again.
  int backed_up_ = 0;
  absl::Status status_;
};

}  // namespace sheaf
