// OpenBlobs: the blobs that were read last, kept open and with their headers parsed, because 50 workers select rows of
// the same broadcast.
//
//   ASSIGN_OR_RETURN(auto blob, open_blobs.Open(digest));             // To read ranges of it.
//   ASSIGN_OR_RETURN(auto tensors, open_blobs.OpenTensors(digest));   // To select rows: header() and content().
//   ASSIGN_OR_RETURN(auto bases, open_blobs.FindBases(digest));       // Of a patch; else none.
//
// Whoever asks first opens a blob (which after a restart reads all of it), parses its header or puts it together with
// what it is a patch of; the others wait for that. What is kept is bounded by number, and what was parsed by the memory
// that it takes. A blob that was deleted is not found, although it may still be open here. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  // Of one that OpenTensors gave: the file that it is, or that it stands for if it is a patch.
  const SafetensorsHeader& header() const { return *tensors_->header; }
  const BlobView& content() const { return *tensors_->content; }

 private:
  friend class OpenBlobs;

  using Header = std::shared_ptr<const SafetensorsHeader>;
  struct Tensors {
    Header header;
    std::shared_ptr<const BlobView> content;
  };

  const std::string digest_;
  // Held while the blob is opened, parsed or put together. What is there once it was set does not change.
  Mutex mutex_;
  std::shared_ptr<const BlobView> view_;
  // Of its own bytes.
  std::optional<absl::StatusOr<Header>> header_;
  std::optional<Tensors> tensors_;
};

class OpenBlobs {
 public:
  // Both must outlive it.
  OpenBlobs(PayloadStore& payloads, const Limits& limits) : payloads_(payloads), limits_(limits) {}

  // INVALID_ARGUMENT if `digest` is not one; NOT_FOUND; DATA_LOSS.
  absl::StatusOr<std::shared_ptr<const OpenBlob>> Open(const std::string& digest);
  // FAILED_PRECONDITION also if the blob is not a safetensors file that this server takes; says why. INVALID_ARGUMENT
  // also if what it is a patch of is not stored.
  absl::StatusOr<std::shared_ptr<const OpenBlob>> OpenTensors(const std::string& digest);
  // The digests of what this one is a patch of: of that, of what that is a patch of, and so on to the whole one. None,
  // if it is none. INVALID_ARGUMENT if one of those is not stored; the codes of Open.
  absl::StatusOr<std::vector<std::string>> FindBases(const std::string& digest);

  // Bytes that are to become a broadcast: as CheckBroadcast; and a patch must fit what it is a patch of. As FindBases.
  // RESOURCE_EXHAUSTED also if too many patches would lie one upon the other, or have too many rows.
  absl::StatusOr<std::vector<std::string>> Check(const BlobView& bytes);

  // Memory of the headers, and of the numbers of patched rows, that are kept.
  int64_t header_bytes() const EXCLUDES(mutex_);

 private:
  // A kept one and the memory of what was parsed of it, from when that was.
  struct Kept {
    std::shared_ptr<OpenBlob> blob;
    int64_t header_bytes = 0;
  };
  using Header = OpenBlob::Header;
  // The first is a patch of the second, and so on, and the last is whole.
  struct Chain {
    std::vector<std::string> Digests() const;

    std::vector<std::shared_ptr<OpenBlob>> blobs;
    std::vector<Header> headers;
  };

  absl::StatusOr<std::shared_ptr<OpenBlob>> Find(const std::string& digest) EXCLUDES(mutex_);
  // Of the blob's own bytes. INVALID_ARGUMENT or RESOURCE_EXHAUSTED if they are no safetensors file that is taken.
  absl::StatusOr<Header> ReadHeader(OpenBlob& blob) REQUIRES(blob.mutex_);
  // From what a patch names as its base on. INVALID_ARGUMENT if one is not stored, or no such file; DATA_LOSS.
  absl::StatusOr<Chain> FindChain(std::string base);
  absl::StatusOr<OpenBlob::Tensors> PutTogether(const OpenBlob& blob, const Header& header);
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
