// PostgresPayloadStore: the PayloadStore in a PostgreSQL database, for any number of servers.
//
//   ASSIGN_OR_RETURN(auto store, PostgresPayloadStore::Open({.conninfo = "dbname=sheaf"}, files,
//                                                           {.directory = "/var/cache/sheaf"}));
//
// What is large lies in pieces of about a megabyte (postgres_contents.h), and what it is, in a row beside it. A blob
// that is read lies on this machine, too (storage/files/fetched_blobs.h); a contribution does not. Uploads that must
// not reach a disk stay in this process.
//
// What is deleted is gone for everybody at once, and its bytes when the database vacuums: until then whoever reads the
// database's own files can find them, and in its log for as long as the operator keeps that.
//
// The schema is PostgresTaskStore's. Thread-safe; `files` must outlive it. Besides PayloadStore's codes UNAVAILABLE, if
// the database does not answer.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "storage/files/fetched_blobs.h"
#include "storage/files/file_system.h"
#include "storage/files/upload_files.h"
#include "storage/payload_store.h"
#include "storage/postgres/postgres_contents.h"
#include "storage/postgres/postgres_owner.h"
#include "storage/postgres/postgres_pool.h"
#include "storage/postgres/postgres_spools.h"
#include "storage/postgres/postgres_uploads.h"

namespace sheaf {

class PostgresPayloadStore final : public PayloadStore {
 public:
  struct Options {
    // Of this server alone; must be there.
    std::string directory;
    int64_t fetched_bytes_max = int64_t{8} << 30;
    int connections_max = 4;
  };
  static absl::StatusOr<std::unique_ptr<PostgresPayloadStore>> Open(const PostgresConnection::Options& database,
                                                                    FileSystem& files, const Options& options);

  // Makes a connection, and has the database read what it must know: a server whose turn may come soon then waits for
  // neither.
  absl::Status WarmUp();

  // From here on all calls are UNAVAILABLE, and those that move many bytes end within a piece of them.
  void Stop() { pool_->Stop(); }

  // Files of this machine whose blobs other servers have deleted go. O(blobs).
  absl::Status DropDeleted();
  // All of them go. O(their bytes).
  void DropAll() { fetched_.KeepOnly({}); }

  // What is appended to spools travels in the batches of this session from here on (postgres_spools.h). Once another
  // server has taken the store, what would delete or overwrite a spool, a checkpoint or a blob returns ABORTED, and has
  // done nothing. Before any other thread uses this.
  void JoinBatches(OwnedSession& session) {
    tenure_ = session.tenure();
    spools_.JoinBatches(session);
  }

  absl::StatusOr<Upload> StartUpload(const UploadId& id, int64_t size_bytes, const std::string& digest) override;
  absl::StatusOr<Upload> StartMemoryUpload(const UploadId& id, int64_t size_bytes, const std::string& digest) override;
  absl::StatusOr<Upload> GetUpload(const UploadId& id) override;
  UploadUse GetUploadUse(std::string_view id_suffix) override;
  using PayloadStore::WriteChunk;
  absl::StatusOr<int64_t> WriteChunk(const UploadId& id, int64_t offset, std::string_view data,
                                     const ChunkTaken& taken) override;
  absl::Status FinishUpload(const UploadId& id) override;
  absl::Status MoveUploadToBlob(const UploadId& id) override;
  absl::StatusOr<SpoolRef> AddUploadToSpool(const UploadId& id, const RoundId& round) override;
  absl::StatusOr<std::shared_ptr<const BlobView>> OpenUpload(const UploadId& id) override;
  absl::Status DeleteUpload(const UploadId& id) override;
  // The first call also deletes what an earlier process left without a name. That takes a time in proportion to what
  // the database holds, which a server that takes over cannot wait for.
  int64_t DeleteStaleUploads(absl::Time now, absl::Duration keep) override;

  absl::StatusOr<std::string> WriteBlob(const std::function<absl::Status(const ByteSink& take)>& write) override;
  absl::StatusOr<int64_t> GetBlobSize(const std::string& digest) override;
  absl::StatusOr<std::shared_ptr<const BlobView>> OpenBlob(const std::string& digest) override;
  absl::StatusOr<BlobRemains> DeleteBlob(const std::string& digest) override;
  absl::StatusOr<std::vector<BlobInfo>> ListBlobs() override;

  absl::StatusOr<SpoolRef> AppendToSpool(const RoundId& round, std::string_view bytes) override;
  absl::Status SyncSpools() override;
  absl::StatusOr<std::string> ReadFromSpool(const RoundId& round, const SpoolRef& ref) override;
  absl::StatusOr<int64_t> RollSpool(const RoundId& round) override;
  absl::Status DeleteSpoolSegments(const RoundId& round, int64_t through) override;

  absl::Status WriteCheckpoint(const RoundId& round, const std::string& name,
                               const std::function<absl::Status(const ByteSink& take)>& write) override;
  absl::StatusOr<std::string> ReadCheckpoint(const RoundId& round, const std::string& name) override;
  absl::Status DeleteCheckpointsExcept(const RoundId& round, const std::string& name) override;

  absl::Status DeleteRound(const RoundId& round) override;
  absl::StatusOr<std::vector<RoundId>> ListRounds() override;

 private:
  PostgresPayloadStore(const PostgresConnection::Options& database, FileSystem& files, const Options& options);

  struct BlobRow {
    int64_t content_key = 0;
    int64_t size_bytes = 0;
  };
  bool IsInMemory(const UploadId& id) { return memory_.Get(id).ok(); }
  // NOT_FOUND.
  absl::StatusOr<BlobRow> FindBlob(const std::string& digest);
  absl::Status ReadWhole(int64_t content_key, int64_t size_bytes, const ByteSink& take);
  absl::Status DeleteUnused();

  // Outlived by what views and remains of blobs still need of it.
  const std::shared_ptr<PostgresPool> pool_;
  // Those in memory alone.
  UploadFiles memory_;
  PostgresUploads uploads_;
  PostgresSpools spools_;
  // None: this server does not own the store.
  std::optional<PostgresOwner::Tenure> tenure_;
  FetchedBlobs fetched_;
  std::atomic<bool> has_deleted_unused_ = false;
};

}  // namespace sheaf
