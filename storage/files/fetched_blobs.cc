#include "storage/files/fetched_blobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf {

absl::Status FetchedBlobs::Open() {
  RETURN_IF_ERROR(blobs_.Open());
  ASSIGN_OR_RETURN(const std::vector<PayloadStore::BlobInfo> blobs, blobs_.List());
  for (const PayloadStore::BlobInfo& blob : blobs) NoteUse(blob.digest, blob.size_bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const BlobView>> FetchedBlobs::OpenBlob(const std::string& digest, const Fetch& fetch) {
  std::shared_ptr<Mutex> fetching;
  {
    MutexLock lock(mutex_);
    std::weak_ptr<Mutex>& known = fetching_[digest];
    fetching = known.lock();
    if (fetching == nullptr) known = fetching = std::make_shared<Mutex>();
  }
  const auto open = [&]() -> absl::StatusOr<std::shared_ptr<const BlobView>> {
    MutexLock lock(*fetching);
    absl::StatusOr<std::shared_ptr<const BlobView>> view = blobs_.OpenBlob(digest);
    if (absl::IsDataLoss(view.status())) {
      LogWarning("a fetched blob is fetched again: {}", view.status().ToString());
    } else if (!absl::IsNotFound(view.status())) {
      return view;
    }
    ASSIGN_OR_RETURN(const std::string fetched, blobs_.Write(fetch));
    if (fetched == digest) return blobs_.OpenBlob(digest);
    RETURN_IF_ERROR(blobs_.Delete(fetched).status());
    return absl::DataLossError(fmt::format("the bytes of blob {} have digest {}", digest, fetched));
  };
  absl::StatusOr<std::shared_ptr<const BlobView>> view = open();
  if (view.ok()) NoteUse(digest, (*view)->size_bytes());
  MutexLock lock(mutex_);
  fetching.reset();
  if (const auto found = fetching_.find(digest); found != fetching_.end() && found->second.expired()) {
    fetching_.erase(found);
  }
  return view;
}

void FetchedBlobs::NoteUse(const std::string& digest, int64_t size_bytes) {
  std::vector<std::string> oldest;
  {
    MutexLock lock(mutex_);
    uses_[digest] = {.size_bytes = size_bytes, .number = ++num_uses_};
    int64_t bytes = 0;
    for (const auto& [name, use] : uses_) bytes += use.size_bytes;
    // The newest stays, however large it is.
    while (bytes > bytes_max_ && uses_.size() > 1) {
      const auto first = std::min_element(
          uses_.begin(), uses_.end(), [](const auto& a, const auto& b) { return a.second.number < b.second.number; });
      bytes -= first->second.size_bytes;
      oldest.push_back(first->first);
      uses_.erase(first);
    }
  }
  for (const std::string& name : oldest) Delete(name);
}

void FetchedBlobs::Delete(const std::string& digest) {
  {
    MutexLock lock(mutex_);
    uses_.erase(digest);
  }
  const absl::Status deleted = blobs_.Delete(digest).status();
  if (!deleted.ok()) LogWarning("a fetched blob stays: {}", deleted.ToString());
}

void FetchedBlobs::KeepOnly(const std::set<std::string>& digests) {
  std::vector<std::string> others;
  {
    MutexLock lock(mutex_);
    for (const auto& [digest, use] : uses_) {
      if (!digests.contains(digest)) others.push_back(digest);
    }
  }
  for (const std::string& digest : others) Delete(digest);
}

absl::StatusOr<std::shared_ptr<const BlobView>> FetchedBlobs::OpenOnce(const std::string& digest, const Fetch& fetch) {
  std::string path;
  {
    MutexLock lock(mutex_);
    path = fmt::format("{}/{}.once", directory_, ++num_once_);
  }
  const auto write = [&]() -> absl::StatusOr<std::shared_ptr<const BlobView>> {
    ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files_.Open(path, FileSystem::kCreate));
    RETURN_IF_ERROR(file->Truncate(0));
    Sha256 hash;
    int64_t size_bytes = 0;
    RETURN_IF_ERROR(fetch([&](std::string_view piece) -> absl::Status {
      hash.Update(piece);
      RETURN_IF_ERROR(file->WriteAt(size_bytes, piece));
      size_bytes += static_cast<int64_t>(piece.size());
      return absl::OkStatus();
    }));
    if (const std::string fetched = std::move(hash).Hex(); fetched != digest) {
      return absl::DataLossError(fmt::format("the bytes of upload {} have digest {}", digest, fetched));
    }
    return files_.Map(path);
  };
  absl::StatusOr<std::shared_ptr<const BlobView>> view = write();
  // A file that is mapped keeps its bytes.
  RETURN_IF_ERROR(files_.Unlink(path));
  return view;
}

}  // namespace sheaf
