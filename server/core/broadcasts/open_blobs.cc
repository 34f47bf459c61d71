#include "server/core/broadcasts/open_blobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "server/core/broadcasts/broadcast_check.h"

namespace sheaf {
namespace {

// Rounds that run at one time seldom have more broadcasts than this; one costs a file handle and an address range.
constexpr size_t kKeptMax = 64;

}  // namespace

absl::StatusOr<std::shared_ptr<const OpenBlob>> OpenBlobs::Open(const std::string& digest) { return Find(digest); }

absl::StatusOr<std::shared_ptr<const OpenBlob>> OpenBlobs::OpenTensors(const std::string& digest) {
  ASSIGN_OR_RETURN(const std::shared_ptr<OpenBlob> blob, Find(digest));
  MutexLock lock(blob->mutex_);
  if (!blob->header_) {
    absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(*blob->view_, limits_);
    // What the file could not give this time it may give the next.
    if (absl::IsDataLoss(header.status()) || absl::IsInternal(header.status())) return header.status();
    if (header.ok()) Count(*blob, header->memory_bytes());
    blob->header_ = std::move(header);
  }
  if (blob->header_->ok()) return std::shared_ptr<const OpenBlob>(blob);
  return absl::FailedPreconditionError(
      fmt::format("blob {} is not a safetensors file ({}); rows can only be selected from one", digest,
                  std::string(blob->header_->status().message())));
}

int64_t OpenBlobs::header_bytes() const {
  MutexLock lock(mutex_);
  return header_bytes_;
}

absl::StatusOr<std::shared_ptr<OpenBlob>> OpenBlobs::Find(const std::string& digest) {
  if (!IsSha256Hex(digest)) {
    return absl::InvalidArgumentError(
        fmt::format("digest \"{}\" is not a SHA-256 in lower-case hex", digest.substr(0, 128)));
  }
  if (!payloads_.HasBlob(digest)) {
    Forget(digest);
    return absl::NotFoundError(
        fmt::format("there is no blob {}; upload it, or check whether its round has ended", digest));
  }
  std::shared_ptr<OpenBlob> blob = FindOrAdd(digest);
  MutexLock lock(blob->mutex_);
  if (blob->view_ == nullptr) {
    ASSIGN_OR_RETURN(blob->view_, payloads_.OpenBlob(digest));
  }
  return blob;
}

std::shared_ptr<OpenBlob> OpenBlobs::FindOrAdd(const std::string& digest) {
  MutexLock lock(mutex_);
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.blob->digest() == digest; });
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
  } else {
    kept_.push_front({.blob = std::make_shared<OpenBlob>(digest)});
    if (kept_.size() > kKeptMax) DropOldest();
  }
  return kept_.front().blob;
}

void OpenBlobs::Count(const OpenBlob& blob, int64_t header_bytes) {
  MutexLock lock(mutex_);
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.blob.get() == &blob; });
  // Nobody finds it any more.
  if (found == kept_.end()) return;
  found->header_bytes = header_bytes;
  header_bytes_ += header_bytes;
  while (header_bytes_ > limits_.open_header_bytes_max && kept_.size() > 1) DropOldest();
}

void OpenBlobs::Forget(const std::string& digest) {
  MutexLock lock(mutex_);
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.blob->digest() == digest; });
  if (found == kept_.end()) return;
  header_bytes_ -= found->header_bytes;
  kept_.erase(found);
}

void OpenBlobs::DropOldest() {
  header_bytes_ -= kept_.back().header_bytes;
  kept_.pop_back();
}

}  // namespace sheaf
