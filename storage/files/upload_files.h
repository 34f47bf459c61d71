// UploadFiles: files that grow chunk by chunk until they have the announced size and digest.
//
// A file's name says all that is known of it, "<id>.<size>.<digest>.part" (the id as EncodeFileName writes it), then
// ".done" once its bytes are checked and durable; so a restart resumes it from its length, knows whose it is, and there
// is nothing else that could disagree. While chunks arrive in this process the digest is computed on the way, so that
// finishing reads nothing again. (0.1 wrote the SHA-256 of the id instead: such a file is found by its id, but until
// somebody asks for it nobody knows whose it is.)
//
// How long an upload has not been used is measured by the times that DeleteStale is told, never by those of files: a
// wall clock that is set deletes nothing.
//
// Uploads in memory have no file at all: they end with the process.
//
// Thread-safe. A chunk is written and hashed under its own upload's lock only, and Start and Get, which the core's
// thread calls, do not take it: they tell what was there before the chunk that is being written. Whoever sent it may
// hear before that it was taken, and sends the next one meanwhile: that waits for the lock. If the write then fails the
// next chunk leaves a gap, and is refused with the place to continue at; the one that comes there is only taken once it
// is written, so that its sender hears the reason. So nobody is ever told that an upload is finished of which a byte
// was not written.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/checksum.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "storage/files/file_system.h"
#include "storage/payload_store.h"

namespace sheaf {

enum class UploadMedium { kDisk, kMemory };

// What the name of an upload's file says.
struct UploadFileName {
  // The id as EncodeFileName writes it; of 0.1 its SHA-256.
  std::string key;
  int64_t size_bytes = 0;
  std::string digest;
  bool is_finished = false;

  // Nothing if the name is no upload's.
  static std::optional<UploadFileName> Parse(const std::string& name);
};

class UploadFiles {
 public:
  UploadFiles(FileSystem& files, std::string directory) : files_(files), directory_(std::move(directory)) {}

  // Creates the directory and finds the uploads of an earlier process. What else is there is deleted, or if it cannot
  // be, named in the log. FAILED_PRECONDITION if the file system has no hard links.
  absl::Status Open();

  absl::StatusOr<PayloadStore::Upload> Start(const UploadId& id, int64_t size_bytes, const std::string& digest,
                                             UploadMedium medium);
  absl::StatusOr<PayloadStore::Upload> Get(const UploadId& id);
  PayloadStore::UploadUse GetUse(std::string_view id_suffix) EXCLUDES(mutex_);
  absl::StatusOr<int64_t> WriteChunk(const UploadId& id, int64_t offset, std::string_view data,
                                     const PayloadStore::ChunkTaken& taken);
  absl::Status Finish(const UploadId& id);
  absl::StatusOr<std::shared_ptr<const BlobView>> OpenView(const UploadId& id);
  absl::Status Delete(const UploadId& id);
  int64_t DeleteStale(absl::Time now, absl::Duration keep) EXCLUDES(mutex_);

  // Hands a finished upload's file to `take(path, upload)`, which renames it away; the upload is gone if that succeeds.
  template <typename Take>
  absl::Status MoveAway(const UploadId& id, Take take) {
    ASSIGN_OR_RETURN(std::shared_ptr<Entry> entry, Find(id));
    MutexLock lock(entry->mutex);
    RETURN_IF_ERROR(CheckMovable(id, *entry));
    RETURN_IF_ERROR(take(PathOf(*entry), entry->Seen(id)));
    Forget(*entry);
    return files_.SyncDirectory(directory_);
  }

  // Hands a finished upload's file to `link(path, upload)`, which gives it another name; the upload stays.
  template <typename Link>
  absl::Status Share(const UploadId& id, Link link) {
    ASSIGN_OR_RETURN(std::shared_ptr<Entry> entry, Find(id));
    MutexLock lock(entry->mutex);
    RETURN_IF_ERROR(CheckMovable(id, *entry));
    return link(PathOf(*entry), entry->Seen(id));
  }

 private:
  struct Entry {
    Entry(std::string its_key, const PayloadStore::Upload& upload, std::unique_ptr<File> its_file,
          std::shared_ptr<std::string> its_memory = nullptr)
        : key(std::move(its_key)),
          size_bytes(upload.size_bytes),
          digest(upload.digest),
          is_in_memory(its_memory != nullptr),
          committed_bytes(upload.committed_bytes),
          is_finished(upload.is_finished),
          file(std::move(its_file)),
          memory(std::move(its_memory)),
          is_unchecked(upload.is_finished) {
      if (upload.committed_bytes == 0) hash.emplace();
    }
    PayloadStore::Upload Seen(const UploadId& id) const {
      return {.id = id,
              .size_bytes = size_bytes,
              .digest = digest,
              .committed_bytes = committed_bytes,
              .is_finished = is_finished};
    }

    const std::string key;
    const int64_t size_bytes;
    // As announced.
    const std::string digest;
    const bool is_in_memory;
    // Used since the last look at stale ones.
    std::atomic<bool> is_fresh = true;
    // Set by who has the lock, and read by anybody.
    std::atomic<int64_t> committed_bytes;
    std::atomic<bool> is_finished;
    std::atomic<bool> is_gone = false;
    // Taken before the map's.
    Mutex mutex;
    std::unique_ptr<File> file GUARDED_BY(mutex);
    // The bytes of an upload in memory; null for one on the disk.
    std::shared_ptr<std::string> memory GUARDED_BY(mutex);
    // Taken by who has the other, and kept for longer: chunks are hashed in the order in which they are written.
    Mutex hash_mutex;
    // Of the bytes committed so far; nothing if they came from an earlier process.
    std::optional<Sha256> hash GUARDED_BY(hash_mutex);
    // Finished by an earlier process, so the digest has yet to be checked by this one.
    bool is_unchecked GUARDED_BY(mutex) = false;
    // The newest chunk was not written.
    bool has_failed GUARDED_BY(mutex) = false;
    // How far the disk was told to write.
    int64_t flushing_bytes GUARDED_BY(mutex) = 0;
  };

  struct Slot {
    std::shared_ptr<Entry> entry;
    // Empty until it is asked for, if 0.1 wrote it.
    UploadId id;
    // Of the first look at stale ones since it was last used.
    absl::Time seen_time = absl::InfinitePast();
  };

  static std::string KeyOf(const UploadId& id) { return EncodeFileName(id.value()); }
  std::string PathOf(const std::string& key, const PayloadStore::Upload& upload) const;
  std::string PathOf(const Entry& entry) const REQUIRES(entry.mutex) { return PathOf(entry.key, entry.Seen({})); }
  std::map<std::string, Slot>::iterator FindSlot(const UploadId& id) REQUIRES(mutex_);
  absl::StatusOr<std::shared_ptr<Entry>> Find(const UploadId& id) EXCLUDES(mutex_);
  static absl::Status CheckFinished(const UploadId& id, const Entry& entry);
  // That it is finished, undamaged, and a file.
  absl::Status CheckMovable(const UploadId& id, Entry& entry) REQUIRES(entry.mutex);
  // Reads a finished upload again if only an earlier process has checked it. DATA_LOSS.
  absl::Status CheckDigest(const UploadId& id, Entry& entry) REQUIRES(entry.mutex);
  absl::StatusOr<std::string> DigestOf(Entry& entry) REQUIRES(entry.mutex);
  absl::Status OpenFile(Entry& entry, FileSystem::Mode mode) REQUIRES(entry.mutex);
  absl::StatusOr<std::shared_ptr<Entry>> Begin(const std::string& key, const PayloadStore::Upload& upload,
                                               UploadMedium medium) REQUIRES(mutex_);
  // As WriteChunk, but for the hash: what of the chunk was new, and is written.
  absl::StatusOr<std::string_view> WriteNew(const UploadId& id, Entry& entry, int64_t offset, std::string_view data,
                                            const PayloadStore::ChunkTaken& taken) REQUIRES(entry.mutex);
  absl::Status Write(Entry& entry, std::string_view data) REQUIRES(entry.mutex);
  absl::Status Remove(Entry& entry) REQUIRES(entry.mutex) EXCLUDES(mutex_);
  void Forget(Entry& entry) REQUIRES(entry.mutex) EXCLUDES(mutex_);
  bool Adopt(const std::string& name) EXCLUDES(mutex_);
  // OK also if the disk is full: whoever only looks needs no room.
  absl::Status CheckLinks();

  FileSystem& files_;
  const std::string directory_;
  Mutex mutex_;
  std::map<std::string, Slot> entries_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
