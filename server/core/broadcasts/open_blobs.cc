#include "server/core/broadcasts/open_blobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "aggregation/wire/safetensors_patch.h"
#include "base/checksum.h"
#include "base/status_macros.h"
#include "server/core/broadcasts/broadcast_check.h"
#include "server/core/broadcasts/patched_blob.h"

namespace sheaf {
namespace {

// Rounds that run at one time seldom have more broadcasts than this; one costs a file handle and an address range.
constexpr size_t kKeptMax = 64;

// What ReadSafetensorsHeader says of other files.
bool IsNoTensors(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status);
}

absl::Status NoBase(const std::string& base, const absl::Status& why) {
  return absl::InvalidArgumentError(
      fmt::format("the broadcast is a patch (sheaf.base) of {}, which is not there to be patched ({}); upload the "
                  "whole one",
                  base.substr(0, 128), std::string(why.message())));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const OpenBlob>> OpenBlobs::Open(const std::string& digest) { return Find(digest); }

absl::StatusOr<std::shared_ptr<const OpenBlob>> OpenBlobs::OpenTensors(const std::string& digest) {
  ASSIGN_OR_RETURN(const std::shared_ptr<OpenBlob> blob, Find(digest));
  MutexLock lock(blob->mutex_);
  if (blob->tensors_) return std::shared_ptr<const OpenBlob>(blob);
  const absl::StatusOr<Header> header = ReadHeader(*blob);
  if (IsNoTensors(header.status())) {
    return absl::FailedPreconditionError(
        fmt::format("blob {} is not a safetensors file ({}); rows can only be selected from one", digest,
                    std::string(header.status().message())));
  }
  RETURN_IF_ERROR(header.status());
  ASSIGN_OR_RETURN(blob->tensors_, PutTogether(*blob, *header));
  return std::shared_ptr<const OpenBlob>(blob);
}

absl::StatusOr<std::vector<std::string>> OpenBlobs::FindBases(const std::string& digest) {
  ASSIGN_OR_RETURN(const std::shared_ptr<OpenBlob> blob, Find(digest));
  MutexLock lock(blob->mutex_);
  const absl::StatusOr<Header> header = ReadHeader(*blob);
  if (IsNoTensors(header.status())) return std::vector<std::string>();
  RETURN_IF_ERROR(header.status());
  const std::string* base = PatchBase(**header);
  if (base == nullptr) return std::vector<std::string>();
  ASSIGN_OR_RETURN(const Chain chain, FindChain(*base));
  return chain.Digests();
}

absl::StatusOr<std::vector<std::string>> OpenBlobs::Check(const BlobView& bytes) {
  ASSIGN_OR_RETURN(const std::optional<SafetensorsHeader> header, CheckBroadcast(bytes, limits_));
  const std::string* base = header ? PatchBase(*header) : nullptr;
  if (base == nullptr) return std::vector<std::string>();
  ASSIGN_OR_RETURN(const Chain chain, FindChain(*base));
  const SafetensorsHeader& whole = *chain.headers.back();
  RETURN_IF_ERROR(CheckPatch(bytes, *header, whole));
  const std::string& whole_digest = chain.blobs.back()->digest();
  const auto num_patches = static_cast<int64_t>(chain.blobs.size());
  if (num_patches > limits_.broadcast_patches_max) {
    return limits_.Refuse(&Limits::broadcast_patches_max,
                          fmt::format("this is patch {} upon the broadcast {}, over", num_patches, whole_digest));
  }
  int64_t num_rows = CountPatchRows(*header, whole);
  for (size_t i = 0; i + 1 < chain.headers.size(); ++i) num_rows += CountPatchRows(*chain.headers[i], whole);
  if (num_rows > limits_.patched_rows_max) {
    return limits_.Refuse(&Limits::patched_rows_max,
                          fmt::format("the patches upon the broadcast {} have {} rows, over", whole_digest, num_rows));
  }
  return chain.Digests();
}

absl::StatusOr<OpenBlobs::Header> OpenBlobs::ReadHeader(OpenBlob& blob) {
  if (!blob.header_) {
    absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(*blob.view_, limits_);
    // What the file could not give this time it may give the next.
    if (absl::IsDataLoss(header.status()) || absl::IsInternal(header.status())) return header.status();
    if (header.ok()) {
      Count(blob, header->memory_bytes());
      blob.header_ = std::make_shared<const SafetensorsHeader>(*std::move(header));
    } else {
      blob.header_ = header.status();
    }
  }
  return *blob.header_;
}

absl::StatusOr<OpenBlobs::Chain> OpenBlobs::FindChain(std::string base) {
  Chain chain;
  // It ends: no file has the digest of one that names it.
  while (true) {
    const absl::StatusOr<std::shared_ptr<OpenBlob>> blob = Find(base);
    if (absl::IsNotFound(blob.status()) || absl::IsInvalidArgument(blob.status())) return NoBase(base, blob.status());
    RETURN_IF_ERROR(blob.status());
    MutexLock lock((*blob)->mutex_);
    const absl::StatusOr<Header> header = ReadHeader(**blob);
    if (IsNoTensors(header.status())) return NoBase(base, header.status());
    RETURN_IF_ERROR(header.status());
    chain.blobs.push_back(*blob);
    chain.headers.push_back(*header);
    const std::string* next = PatchBase(**header);
    if (next == nullptr) return chain;
    base = *next;
  }
}

std::vector<std::string> OpenBlobs::Chain::Digests() const {
  std::vector<std::string> digests;
  for (const std::shared_ptr<OpenBlob>& blob : blobs) digests.push_back(blob->digest());
  return digests;
}

absl::StatusOr<OpenBlob::Tensors> OpenBlobs::PutTogether(const OpenBlob& blob, const Header& header) {
  const std::string* base = PatchBase(*header);
  if (base == nullptr) return OpenBlob::Tensors{.header = header, .content = blob.view_};
  ASSIGN_OR_RETURN(const Chain chain, FindChain(*base));
  std::vector<SafetensorsBlob> layers;
  for (size_t i = chain.blobs.size(); i > 0; --i) {
    layers.push_back({.bytes = chain.blobs[i - 1]->view_, .header = chain.headers[i - 1].get()});
  }
  layers.push_back({.bytes = blob.view_, .header = header.get()});
  ASSIGN_OR_RETURN(const std::shared_ptr<const PatchedBlob> content,
                   PatchedBlob::Open(layers.front(), std::span(layers).subspan(1)));
  Count(blob, content->memory_bytes());
  return OpenBlob::Tensors{.header = chain.headers.back(), .content = content};
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
  if (const absl::Status stored = payloads_.GetBlobSize(digest).status(); !stored.ok()) {
    // What a far store cannot say is not that there is none.
    if (!absl::IsNotFound(stored)) return stored;
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
  found->header_bytes += header_bytes;
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
