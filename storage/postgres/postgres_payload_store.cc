#include "storage/postgres/postgres_payload_store.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <utility>

#include "base/checksum.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "storage/files/checkpoint_files.h"
#include "storage/postgres/warm_up.h"

namespace sheaf {
namespace {

absl::Status NoSuchBlob(const std::string& digest) {
  return absl::NotFoundError(fmt::format("there is no blob {}", digest));
}

absl::Status MustStayInMemory(const UploadId& id) {
  return absl::FailedPreconditionError(fmt::format("upload {} is not to leave the memory", id));
}

// The bytes of a blob that has lost its name: they go where this is dropped.
class UnnamedContent {
 public:
  UnnamedContent(std::shared_ptr<PostgresPool> pool, int64_t key) : pool_(std::move(pool)), key_(key) {}
  UnnamedContent(const UnnamedContent&) = delete;
  UnnamedContent& operator=(const UnnamedContent&) = delete;
  ~UnnamedContent() {
    // What cannot be deleted now goes with the stale uploads of the next server.
    const absl::Status deleted = Delete();
    if (!deleted.ok()) LogWarning("the bytes of a deleted blob stay for now: {}", deleted.ToString());
  }

 private:
  absl::Status Delete() {
    ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_->Borrow());
    QueueDeleteContent(*connection, key_);
    return connection->Fly();
  }

  const std::shared_ptr<PostgresPool> pool_;
  const int64_t key_;
};

}  // namespace

PostgresPayloadStore::PostgresPayloadStore(const PostgresConnection::Options& database, FileSystem& files,
                                           const Options& options)
    : pool_(std::make_shared<PostgresPool>(database, options.connections_max)),
      memory_(files, options.directory),
      uploads_(*pool_),
      spools_(*pool_),
      fetched_(files, options.directory, options.fetched_bytes_max) {}

absl::StatusOr<std::unique_ptr<PostgresPayloadStore>> PostgresPayloadStore::Open(
    const PostgresConnection::Options& database, FileSystem& files, const Options& options) {
  std::unique_ptr<PostgresPayloadStore> store(new PostgresPayloadStore(database, files, options));
  RETURN_IF_ERROR(store->fetched_.Open());
  return store;
}

absl::Status PostgresPayloadStore::WarmUp() {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_->Borrow());
  return sheaf::WarmUp(*connection);
}

absl::Status PostgresPayloadStore::ReadWhole(int64_t content_key, int64_t size_bytes, const ByteSink& take) {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_->Borrow());
  return ReadContent(*connection, content_key, size_bytes, [&](std::string_view piece) -> absl::Status {
    RETURN_IF_ERROR(pool_->CheckGoesOn());
    return take(piece);
  });
}

absl::Status PostgresPayloadStore::DropDeleted() {
  ASSIGN_OR_RETURN(const std::vector<BlobInfo> blobs, ListBlobs());
  std::set<std::string> digests;
  for (const BlobInfo& blob : blobs) digests.insert(blob.digest);
  fetched_.KeepOnly(digests);
  return absl::OkStatus();
}

// --- Uploads -------------------------------------------------------------------------------------

absl::StatusOr<PayloadStore::Upload> PostgresPayloadStore::StartUpload(const UploadId& id, int64_t size_bytes,
                                                                       const std::string& digest) {
  return uploads_.Start(id, size_bytes, digest);
}

absl::StatusOr<PayloadStore::Upload> PostgresPayloadStore::StartMemoryUpload(const UploadId& id, int64_t size_bytes,
                                                                             const std::string& digest) {
  return memory_.Start(id, size_bytes, digest, UploadMedium::kMemory);
}

absl::StatusOr<PayloadStore::Upload> PostgresPayloadStore::GetUpload(const UploadId& id) {
  if (absl::StatusOr<Upload> upload = memory_.Get(id); upload.ok()) return upload;
  return uploads_.Get(id);
}

PayloadStore::UploadUse PostgresPayloadStore::GetUploadUse(std::string_view id_suffix) {
  UploadUse use = memory_.GetUse(id_suffix);
  const absl::StatusOr<UploadUse> rows = uploads_.GetUse(id_suffix);
  if (!rows.ok()) {
    // The next call to the database says so to whoever asked.
    LogWarning("uploads cannot be counted: {}", rows.status().ToString());
    return use;
  }
  use.num_uploads += rows->num_uploads;
  use.disk_bytes += rows->disk_bytes;
  use.num_matching += rows->num_matching;
  use.matching_disk_bytes += rows->matching_disk_bytes;
  return use;
}

absl::StatusOr<int64_t> PostgresPayloadStore::WriteChunk(const UploadId& id, int64_t offset, std::string_view data,
                                                         const ChunkTaken& taken) {
  if (IsInMemory(id)) return memory_.WriteChunk(id, offset, data, taken);
  return uploads_.WriteChunk(id, offset, data, taken);
}

absl::Status PostgresPayloadStore::FinishUpload(const UploadId& id) {
  return IsInMemory(id) ? memory_.Finish(id) : uploads_.Finish(id);
}

absl::Status PostgresPayloadStore::MoveUploadToBlob(const UploadId& id) {
  return IsInMemory(id) ? MustStayInMemory(id) : uploads_.MoveToBlob(id);
}

absl::StatusOr<SpoolRef> PostgresPayloadStore::AddUploadToSpool(const UploadId& id, const RoundId& round) {
  if (IsInMemory(id)) return MustStayInMemory(id);
  return spools_.AddUpload(id, round);
}

absl::StatusOr<std::shared_ptr<const BlobView>> PostgresPayloadStore::OpenUpload(const UploadId& id) {
  if (IsInMemory(id)) return memory_.OpenView(id);
  ASSIGN_OR_RETURN(const PostgresUploads::Finished upload, uploads_.GetFinished(id));
  // What is only one client's leaves no file behind.
  return fetched_.OpenOnce(
      upload.digest, [&](const ByteSink& take) { return ReadWhole(upload.content_key, upload.size_bytes, take); });
}

absl::Status PostgresPayloadStore::DeleteUpload(const UploadId& id) {
  return IsInMemory(id) ? memory_.Delete(id) : uploads_.Delete(id);
}

absl::Status PostgresPayloadStore::DeleteUnused() {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_->Borrow());
  return DeleteUnusedContents(*connection);
}

int64_t PostgresPayloadStore::DeleteStaleUploads(absl::Time now, absl::Duration keep) {
  if (const absl::Status deleted = has_deleted_unused_.exchange(true) ? absl::OkStatus() : DeleteUnused();
      !deleted.ok()) {
    has_deleted_unused_ = false;
    LogWarning("bytes that no longer belong to anything stay for now: {}", deleted.ToString());
  }
  const int64_t num_in_memory = memory_.DeleteStale(now, keep);
  const absl::StatusOr<int64_t> num_rows = uploads_.DeleteStale(now, keep);
  if (num_rows.ok()) return num_in_memory + *num_rows;
  LogWarning("stale uploads stay: {}", num_rows.status().ToString());
  return num_in_memory;
}

// --- Blobs ---------------------------------------------------------------------------------------

absl::StatusOr<std::string> PostgresPayloadStore::WriteBlob(
    const std::function<absl::Status(const ByteSink& take)>& write) {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_->Borrow());
  PostgresContent content;
  RETURN_IF_ERROR(RunTransaction(*connection, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(content, WriteContent(*connection, write));
    // One that is there already is as good.
    connection->Queue(
        {.sql = "-- add_blob\n"
                "INSERT INTO blobs (digest, size_bytes, content_key) VALUES ($1, $2, $3)\n"
                "ON CONFLICT (digest) DO NOTHING",
         .values = PostgresValues().Add(SqlText(content.digest)).Add(content.size_bytes).Add(content.key)});
    QueueDeleteContent(*connection, content.key);
    return absl::OkStatus();
  }));
  return content.digest;
}

absl::StatusOr<PostgresPayloadStore::BlobRow> PostgresPayloadStore::FindBlob(const std::string& digest) {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_->Borrow());
  std::optional<BlobRow> found;
  RETURN_IF_ERROR(connection->Run(
      {.sql = "-- find_blob\nSELECT content_key, size_bytes FROM blobs WHERE digest = $1",
       .values = PostgresValues().Add(SqlText(digest)),
       .on_row = [&](const SqlRow& row) { found = {.content_key = row.Int(0), .size_bytes = row.Int(1)}; }}));
  if (!found.has_value()) return NoSuchBlob(digest);
  return *found;
}

absl::StatusOr<int64_t> PostgresPayloadStore::GetBlobSize(const std::string& digest) {
  const absl::StatusOr<BlobRow> found = FindBlob(digest);
  if (found.ok()) return found->size_bytes;
  if (!absl::IsNotFound(found.status())) {
    LogWarning("blob {} cannot be looked for: {}", digest, found.status().ToString());
  }
  return found.status();
}

absl::StatusOr<std::shared_ptr<const BlobView>> PostgresPayloadStore::OpenBlob(const std::string& digest) {
  // Also if it is on this machine: another server may have deleted it.
  ASSIGN_OR_RETURN(const BlobRow blob, FindBlob(digest));
  return fetched_.OpenBlob(digest,
                           [&](const ByteSink& take) { return ReadWhole(blob.content_key, blob.size_bytes, take); });
}

absl::StatusOr<PayloadStore::BlobRemains> PostgresPayloadStore::DeleteBlob(const std::string& digest) {
  std::optional<int64_t> content_key;
  {
    ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_->Borrow());
    RETURN_IF_ERROR(RunTransaction(*connection, [&] {
      // A later owner may give a round a broadcast that it has found there.
      if (tenure_) connection->Queue(tenure_->Hold());
      connection->Queue({.sql = "-- delete_blob\nDELETE FROM blobs WHERE digest = $1 RETURNING content_key",
                         .values = PostgresValues().Add(SqlText(digest)),
                         .on_row = [&](const SqlRow& row) { content_key = row.Int(0); }});
      return absl::OkStatus();
    }));
  }
  if (!content_key.has_value()) return BlobRemains();
  fetched_.Delete(digest);
  return std::make_shared<const UnnamedContent>(pool_, *content_key);
}

absl::StatusOr<std::vector<PayloadStore::BlobInfo>> PostgresPayloadStore::ListBlobs() {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_->Borrow());
  std::vector<BlobInfo> blobs;
  RETURN_IF_ERROR(connection->Run({.sql = "-- list_blobs\nSELECT digest, size_bytes FROM blobs ORDER BY digest",
                                   .on_row = [&blobs](const SqlRow& row) {
                                     blobs.push_back({.digest = row.String(0), .size_bytes = row.Int(1)});
                                   }}));
  return blobs;
}

// --- Spools --------------------------------------------------------------------------------------

absl::StatusOr<SpoolRef> PostgresPayloadStore::AppendToSpool(const RoundId& round, std::string_view bytes) {
  return spools_.Append(round, bytes);
}
absl::Status PostgresPayloadStore::SyncSpools() { return spools_.Sync(); }
absl::StatusOr<std::string> PostgresPayloadStore::ReadFromSpool(const RoundId& round, const SpoolRef& ref) {
  return spools_.Read(round, ref);
}
absl::StatusOr<int64_t> PostgresPayloadStore::RollSpool(const RoundId& round) { return spools_.Roll(round); }
absl::Status PostgresPayloadStore::DeleteSpoolSegments(const RoundId& round, int64_t through) {
  return spools_.DeleteSegments(round, through);
}

// --- Checkpoints ---------------------------------------------------------------------------------

absl::Status PostgresPayloadStore::WriteCheckpoint(const RoundId& round, const std::string& name,
                                                   const std::function<absl::Status(const ByteSink& take)>& write) {
  RETURN_IF_ERROR(CheckCheckpointName(name));
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_->Borrow());
  return RunTransaction(*connection, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const PostgresContent content, WriteContent(*connection, write));
    connection->Queue({.sql = "-- add_checkpoint\n"
                              "INSERT INTO checkpoints (round_id, name, size_bytes, digest, content_key)\n"
                              "VALUES ($1, $2, $3, $4, $5)\n"
                              "ON CONFLICT (round_id, name) DO UPDATE SET size_bytes = EXCLUDED.size_bytes,\n"
                              "  digest = EXCLUDED.digest, content_key = EXCLUDED.content_key",
                       .values = PostgresValues()
                                     .Add(SqlText(round.value()))
                                     .Add(SqlText(name))
                                     .Add(content.size_bytes)
                                     .Add(SqlText(content.digest))
                                     .Add(content.key)});
    if (tenure_) connection->Queue(tenure_->Check());
    return absl::OkStatus();
  });
}

absl::StatusOr<std::string> PostgresPayloadStore::ReadCheckpoint(const RoundId& round, const std::string& name) {
  RETURN_IF_ERROR(CheckCheckpointName(name));
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_->Borrow());
  std::optional<PostgresContent> content;
  RETURN_IF_ERROR(connection->Run(
      {.sql = "-- find_checkpoint\n"
              "SELECT content_key, size_bytes, digest FROM checkpoints WHERE round_id = $1 AND name = $2",
       .values = PostgresValues().Add(SqlText(round.value())).Add(SqlText(name)),
       .on_row = [&](const SqlRow& row) {
         content = {.key = row.Int(0), .size_bytes = row.Int(1), .digest = row.String(2)};
       }}));
  if (!content.has_value()) {
    return absl::NotFoundError(fmt::format("round {} has no checkpoint {}", round, name));
  }
  std::string bytes;
  bytes.reserve(static_cast<size_t>(content->size_bytes));
  RETURN_IF_ERROR(ReadContent(*connection, content->key, content->size_bytes, [&bytes](std::string_view piece) {
    bytes += piece;
    return absl::OkStatus();
  }));
  if (Sha256Hex(bytes) == content->digest) return bytes;
  return absl::DataLossError(fmt::format("the checkpoint {} of round {} does not match its checksum", name, round));
}

absl::Status PostgresPayloadStore::DeleteCheckpointsExcept(const RoundId& round, const std::string& name) {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_->Borrow());
  return RunTransaction(*connection, [&]() -> absl::Status {
    std::vector<int64_t> content_keys;
    RETURN_IF_ERROR(
        connection->Run({.sql = "-- delete_checkpoints\n"
                                "DELETE FROM checkpoints WHERE round_id = $1 AND name <> $2 RETURNING content_key",
                         .values = PostgresValues().Add(SqlText(round.value())).Add(SqlText(name)),
                         .on_row = [&](const SqlRow& row) { content_keys.push_back(row.Int(0)); }}));
    for (const int64_t content_key : content_keys) QueueDeleteContent(*connection, content_key);
    if (tenure_) connection->Queue(tenure_->Check());
    return absl::OkStatus();
  });
}

absl::Status PostgresPayloadStore::DeleteRound(const RoundId& round) {
  // What cannot be deleted of the one keeps nothing of the other.
  absl::Status deleted = spools_.DeleteRound(round);
  deleted.Update(DeleteCheckpointsExcept(round, ""));
  return deleted;
}

absl::StatusOr<std::vector<RoundId>> PostgresPayloadStore::ListRounds() {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_->Borrow());
  std::vector<RoundId> rounds;
  RETURN_IF_ERROR(connection->Run({.sql = "-- list_rounds\n"
                                          "SELECT round_id FROM spool_pieces UNION SELECT round_id FROM spool_uploads\n"
                                          "UNION SELECT round_id FROM checkpoints ORDER BY round_id",
                                   .on_row = [&rounds](const SqlRow& row) { rounds.emplace_back(row.String(0)); }}));
  return rounds;
}

}  // namespace sheaf
