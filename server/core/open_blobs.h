// OpenBlobs: the broadcasts that were read last, kept open and with their headers parsed, because 50 workers select
// rows of the same one.
//
//   ASSIGN_OR_RETURN(auto blob, open_blobs.Open(digest));
//   ASSIGN_OR_RETURN(const SafetensorsView* tensors, blob->tensors());
//
// A blob that was deleted is not found, although it may still be open here. Thread-safe.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "aggregation/safetensors.h"
#include "base/mutex.h"
#include "storage/payload_store.h"

namespace sheaf {

class OpenBlob {
 public:
  OpenBlob(std::string digest, std::shared_ptr<const BlobView> view)
      : digest_(std::move(digest)), view_(std::move(view)), tensors_(SafetensorsView::Parse(view_->bytes())) {}

  const std::string& digest() const { return digest_; }
  std::string_view bytes() const { return view_->bytes(); }
  // FAILED_PRECONDITION if the blob is not a safetensors file.
  absl::StatusOr<const SafetensorsView*> tensors() const;

 private:
  const std::string digest_;
  const std::shared_ptr<const BlobView> view_;
  const absl::StatusOr<SafetensorsView> tensors_;
};

class OpenBlobs {
 public:
  // `payloads` must outlive it.
  explicit OpenBlobs(PayloadStore& payloads) : payloads_(payloads) {}

  // INVALID_ARGUMENT if `digest` is not one; NOT_FOUND; DATA_LOSS.
  absl::StatusOr<std::shared_ptr<const OpenBlob>> Open(const std::string& digest);

 private:
  // Null if it is not kept; else it counts as used now.
  std::shared_ptr<const OpenBlob> Find(const std::string& digest);
  void Keep(std::shared_ptr<const OpenBlob> blob);
  void Forget(const std::string& digest);

  PayloadStore& payloads_;
  Mutex mutex_;
  // Last used first.
  std::list<std::shared_ptr<const OpenBlob>> kept_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
