// OpenBlobs: the blobs that were read last, kept open and with their headers parsed, because 50 workers select rows of
// the same broadcast.
//
//   ASSIGN_OR_RETURN(auto blob, open_blobs.Open(digest));             // To read ranges of it.
//   ASSIGN_OR_RETURN(auto tensors, open_blobs.OpenTensors(digest));   // To select rows: tensors->header().
//
// Whoever asks first opens a blob (which after a restart reads all of it) or parses its header; the others wait for
// that. What is kept is bounded by number, and headers by the memory that they take. A blob that was deleted is not
// found, although it may still be open here. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "aggregation/wire/safetensors_header.h"
#include "base/mutex.h"
#include "server/core/limits/limits.h"
#include "storage/payload_store.h"

namespace sheaf {

class OpenBlob {
 public:
  explicit OpenBlob(std::string digest) : digest_(std::move(digest)) {}

  // Of one that OpenBlobs gave.
  const std::string& digest() const { return digest_; }
  const BlobView& bytes() const { return *view_; }
  // Of one that OpenTensors gave.
  const SafetensorsHeader& header() const { return **header_; }

 private:
  friend class OpenBlobs;

  const std::string digest_;
  // Held while the blob is opened, or its header parsed. What is there once it was set does not change.
  Mutex mutex_;
  std::shared_ptr<const BlobView> view_;
  std::optional<absl::StatusOr<SafetensorsHeader>> header_;
};

class OpenBlobs {
 public:
  // Both must outlive it.
  OpenBlobs(PayloadStore& payloads, const Limits& limits) : payloads_(payloads), limits_(limits) {}

  // INVALID_ARGUMENT if `digest` is not one; NOT_FOUND; DATA_LOSS.
  absl::StatusOr<std::shared_ptr<const OpenBlob>> Open(const std::string& digest);
  // FAILED_PRECONDITION also if the blob is not a safetensors file that this server takes; says why.
  absl::StatusOr<std::shared_ptr<const OpenBlob>> OpenTensors(const std::string& digest);

  // Memory of the headers that are kept.
  int64_t header_bytes() const EXCLUDES(mutex_);

 private:
  // A kept one and the memory of its header, which counts from when it was parsed.
  struct Kept {
    std::shared_ptr<OpenBlob> blob;
    int64_t header_bytes = 0;
  };

  absl::StatusOr<std::shared_ptr<OpenBlob>> Find(const std::string& digest) EXCLUDES(mutex_);
  // The one that is kept, which then counts as used now; or a new one.
  std::shared_ptr<OpenBlob> FindOrAdd(const std::string& digest) EXCLUDES(mutex_);
  void Count(const OpenBlob& blob, int64_t header_bytes) EXCLUDES(mutex_);
  void Forget(const std::string& digest) EXCLUDES(mutex_);
  void DropOldest() REQUIRES(mutex_);

  PayloadStore& payloads_;
  const Limits& limits_;
  mutable Mutex mutex_;
  // Last used first.
  std::list<Kept> kept_ GUARDED_BY(mutex_);
  int64_t header_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sheaf
