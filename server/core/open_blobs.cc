#include "server/core/open_blobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// Rounds that run at one time seldom have more broadcasts than this; one costs a file handle and an address range.
constexpr size_t kKeptMax = 16;

}  // namespace

absl::StatusOr<const SafetensorsView*> OpenBlob::tensors() const {
  if (tensors_.ok()) return &*tensors_;
  return absl::FailedPreconditionError(
      fmt::format("blob {} is not a safetensors file ({}); rows can only be selected from one", digest_,
                  std::string(tensors_.status().message())));
}

absl::StatusOr<std::shared_ptr<const OpenBlob>> OpenBlobs::Open(const std::string& digest) {
  if (!IsSha256Hex(digest)) {
    return absl::InvalidArgumentError(fmt::format("digest \"{}\" is not a SHA-256 in lower-case hex", digest));
  }
  if (!payloads_.HasBlob(digest)) {
    Forget(digest);
    return absl::NotFoundError(
        fmt::format("there is no blob {}; upload it, or check whether its round has ended", digest));
  }
  if (std::shared_ptr<const OpenBlob> kept = Find(digest)) return kept;
  ASSIGN_OR_RETURN(std::shared_ptr<const BlobView> view, payloads_.OpenBlob(digest));
  auto blob = std::make_shared<const OpenBlob>(digest, std::move(view));
  Keep(blob);
  return blob;
}

std::shared_ptr<const OpenBlob> OpenBlobs::Find(const std::string& digest) {
  MutexLock lock(mutex_);
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const auto& blob) { return blob->digest() == digest; });
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return kept_.front();
}

void OpenBlobs::Keep(std::shared_ptr<const OpenBlob> blob) {
  MutexLock lock(mutex_);
  kept_.push_front(std::move(blob));
  if (kept_.size() > kKeptMax) kept_.pop_back();
}

void OpenBlobs::Forget(const std::string& digest) {
  MutexLock lock(mutex_);
  kept_.remove_if([&](const auto& blob) { return blob->digest() == digest; });
}

}  // namespace sheaf
