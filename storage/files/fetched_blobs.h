// FetchedBlobs: blobs that are kept elsewhere, as files of this machine, so that each is fetched once, and read as
// often as workers ask for it.
//
//   ASSIGN_OR_RETURN(auto view, fetched.OpenBlob(digest, [&](const ByteSink& take) { return Read(digest, take);
//   }));
//
// A file is checked against its digest when it is fetched and when a process opens it first; one that is damaged is
// fetched again. Those that were opened longest ago go when all together have more than `bytes_max`; who reads one
// keeps its bytes. The directory is this process's own, and may be deleted while no server runs. Thread-safe; who asks
// for a blob that is being fetched waits for it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_sink.h"
#include "base/mutex.h"
#include "storage/blob_view.h"
#include "storage/files/blob_files.h"
#include "storage/files/file_system.h"

namespace sheaf {

class FetchedBlobs {
 public:
  FetchedBlobs(FileSystem& files, const std::string& directory, int64_t bytes_max)
      : files_(files), directory_(directory), bytes_max_(bytes_max), blobs_(files, directory) {}

  absl::Status Open();

  using Fetch = std::function<absl::Status(const ByteSink& take)>;
  // DATA_LOSS if what was fetched has another digest; the codes of `fetch`, and of the file system.
  absl::StatusOr<std::shared_ptr<const BlobView>> OpenBlob(const std::string& digest, const Fetch& fetch);
  void Delete(const std::string& digest);
  // Deletes all others.
  void KeepOnly(const std::set<std::string>& digests);

  // Bytes that no file is to keep: they are gone with the view.
  absl::StatusOr<std::shared_ptr<const BlobView>> OpenOnce(const std::string& digest, const Fetch& fetch);

 private:
  struct Use {
    int64_t size_bytes = 0;
    // The newest has the highest.
    int64_t number = 0;
  };
  void NoteUse(const std::string& digest, int64_t size_bytes) EXCLUDES(mutex_);

  FileSystem& files_;
  const std::string directory_;
  const int64_t bytes_max_;
  BlobFiles blobs_;
  Mutex mutex_;
  // Held by who fetches a blob, or waits for that.
  std::map<std::string, std::weak_ptr<Mutex>> fetching_ GUARDED_BY(mutex_);
  std::map<std::string, Use> uses_ GUARDED_BY(mutex_);
  int64_t num_uses_ GUARDED_BY(mutex_) = 0;
  int64_t num_once_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sheaf
