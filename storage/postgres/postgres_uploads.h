// PostgresUploads: uploads as rows. Any server of a database takes the next chunk of any upload; two chunks of one
// upload are written one after the other, as the upload's row is locked meanwhile.
//
// A chunk is committed without a flush: the commit of FinishUpload is behind it in the database's log, and flushes all.
// What a crash takes with it is the end of an upload that nobody was told is finished; its committed bytes are then
// fewer, and the client sends them again.
//
// The digest is computed on the way where all chunks come to this process, and else over what is read back at the end.
// Staleness goes by how often an upload was used, whichever server was asked. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/checksum.h"
#include "base/mutex.h"
#include "storage/payload_store.h"
#include "storage/postgres/postgres_pool.h"

namespace sheaf {

class PostgresUploads {
 public:
  explicit PostgresUploads(PostgresPool& pool) : pool_(pool) {}

  absl::StatusOr<PayloadStore::Upload> Start(const UploadId& id, int64_t size_bytes, const std::string& digest);
  absl::StatusOr<PayloadStore::Upload> Get(const UploadId& id);
  absl::StatusOr<PayloadStore::UploadUse> GetUse(std::string_view id_suffix);
  absl::StatusOr<int64_t> WriteChunk(const UploadId& id, int64_t offset, std::string_view data,
                                     const PayloadStore::ChunkTaken& taken);
  absl::Status Finish(const UploadId& id);
  absl::Status MoveToBlob(const UploadId& id);
  absl::Status Delete(const UploadId& id);
  absl::StatusOr<int64_t> DeleteStale(absl::Time now, absl::Duration keep);

  struct Finished {
    int64_t content_key = 0;
    int64_t size_bytes = 0;
    std::string digest;
  };
  // FAILED_PRECONDITION if it is not finished. NOT_FOUND.
  absl::StatusOr<Finished> GetFinished(const UploadId& id);

 private:
  // Of the bytes that this process has taken from the beginning on.
  struct Hashed {
    explicit Hashed(int64_t key) : content_key(key) {}

    // Another server may have deleted an upload, and begun one of the same name.
    const int64_t content_key;
    Mutex mutex;
    Sha256 hash GUARDED_BY(mutex);
    // Negative: what was hashed may not be what is there.
    int64_t num_bytes GUARDED_BY(mutex) = 0;
    // The newest chunk was not written.
    bool has_failed GUARDED_BY(mutex) = false;
  };
  struct Seen {
    int64_t num_uses = 0;
    // Of the first look at stale ones since it was last used.
    absl::Time time;
  };
  struct Row {
    PayloadStore::Upload upload;
    int64_t content_key = 0;
  };
  static constexpr char kColumns[] = "size_bytes, digest, committed_bytes, is_finished, content_key";
  static Row RowOf(const UploadId& id, const SqlRow& row);
  absl::StatusOr<Row> Find(PostgresConnection& connection, const UploadId& id, std::string_view lock = "");
  std::shared_ptr<Hashed> HashedOf(const Row& row) EXCLUDES(mutex_);
  absl::StatusOr<std::string> DigestOf(PostgresConnection& connection, const Row& row);
  // False if there is none, or if it was used since `num_uses` were counted.
  absl::StatusOr<bool> DeleteRow(PostgresConnection& connection, const UploadId& id, std::optional<int64_t> num_uses);
  void Forget(const UploadId& id) EXCLUDES(mutex_);

  PostgresPool& pool_;
  Mutex mutex_;
  std::map<UploadId, std::shared_ptr<Hashed>> hashed_ GUARDED_BY(mutex_);
  std::map<UploadId, Seen> seen_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
