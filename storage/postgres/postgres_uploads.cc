#include "storage/postgres/postgres_uploads.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "storage/postgres/postgres_contents.h"

namespace sheaf {
namespace {

absl::Status NoSuchUpload(const UploadId& id) { return absl::NotFoundError(fmt::format("there is no upload {}", id)); }

// Of uploads that go on. Another server may end them, which this one does not hear of.
constexpr size_t kHashedMax = 10'000;

// Of a transaction that something later makes durable.
void QueueNoFlush(PostgresConnection& connection) {
  connection.Queue({.sql = "-- no_flush\nSET LOCAL synchronous_commit = off"});
}

}  // namespace

PostgresUploads::Row PostgresUploads::RowOf(const UploadId& id, const SqlRow& row) {
  return {.upload = {.id = id,
                     .size_bytes = row.Int(0),
                     .digest = row.String(1),
                     .committed_bytes = row.Int(2),
                     .is_finished = row.Int(3) != 0},
          .content_key = row.Int(4)};
}

absl::StatusOr<PostgresUploads::Row> PostgresUploads::Find(PostgresConnection& connection, const UploadId& id,
                                                           std::string_view lock) {
  std::optional<Row> found;
  RETURN_IF_ERROR(connection.Run({.sql = fmt::format("-- get_upload\nSELECT {} FROM uploads WHERE id = $1{}{}",
                                                     kColumns, lock.empty() ? "" : " ", lock),
                                  .values = PostgresValues().Add(SqlText(id.value())),
                                  .on_row = [&](const SqlRow& row) { found = RowOf(id, row); }}));
  if (!found.has_value()) return NoSuchUpload(id);
  return *std::move(found);
}

absl::StatusOr<PayloadStore::Upload> PostgresUploads::Start(const UploadId& id, int64_t size_bytes,
                                                            const std::string& digest) {
  if (!IsSha256Hex(digest)) {
    return absl::InvalidArgumentError(fmt::format("the digest of upload {} is not a SHA-256 in lower-case hex", id));
  }
  if (size_bytes < 0) return absl::InvalidArgumentError(fmt::format("the size of upload {} is negative", id));
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
  Row row;
  RETURN_IF_ERROR(RunTransaction(*connection, [&] {
    QueueNoFlush(*connection);
    connection->Queue({.sql = fmt::format("-- start_upload\n"
                                          "INSERT INTO uploads (id, size_bytes, digest, content_key)\n"
                                          "VALUES ($1, $2, $3, nextval('content_keys'))\n"
                                          "ON CONFLICT (id) DO UPDATE SET num_uses = uploads.num_uses + 1\n"
                                          "RETURNING {}",
                                          kColumns),
                       .values = PostgresValues().Add(SqlText(id.value())).Add(size_bytes).Add(SqlText(digest)),
                       .on_row = [&](const SqlRow& found) { row = RowOf(id, found); }});
    return absl::OkStatus();
  }));
  if (row.upload.size_bytes == size_bytes && row.upload.digest == digest) return row.upload;
  return absl::AlreadyExistsError(
      fmt::format("upload {} was started with another size or digest; choose a new id", id));
}

absl::StatusOr<PayloadStore::Upload> PostgresUploads::Get(const UploadId& id) {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
  ASSIGN_OR_RETURN(Row row, Find(*connection, id));
  return std::move(row.upload);
}

absl::StatusOr<PayloadStore::UploadUse> PostgresUploads::GetUse(std::string_view id_suffix) {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
  PayloadStore::UploadUse use;
  // NUMERIC is what a sum of BIGINT is.
  RETURN_IF_ERROR(
      connection->Run({.sql = "-- get_upload_use\n"
                              "SELECT count(*), coalesce(sum(size_bytes), 0)::bigint,\n"
                              "       count(*) FILTER (WHERE matches),\n"
                              "       coalesce(sum(size_bytes) FILTER (WHERE matches), 0)::bigint\n"
                              "FROM (SELECT size_bytes,\n"
                              "      substring(id FROM greatest(length(id) - length($1) + 1, 1)) = $1 AS matches\n"
                              "      FROM uploads) AS each",
                       .values = PostgresValues().Add(SqlText(id_suffix)),
                       .on_row = [&](const SqlRow& row) {
                         use = {.num_uploads = row.Int(0),
                                .disk_bytes = row.Int(1),
                                .num_matching = row.Int(2),
                                .matching_disk_bytes = row.Int(3)};
                       }}));
  return use;
}

std::shared_ptr<PostgresUploads::Hashed> PostgresUploads::HashedOf(const Row& row) {
  MutexLock lock(mutex_);
  // What is forgotten here is read back at the end.
  if (hashed_.size() >= kHashedMax && !hashed_.contains(row.upload.id)) hashed_.clear();
  std::shared_ptr<Hashed>& hashed = hashed_[row.upload.id];
  if (hashed == nullptr || hashed->content_key != row.content_key) hashed = std::make_shared<Hashed>(row.content_key);
  return hashed;
}

absl::StatusOr<int64_t> PostgresUploads::WriteChunk(const UploadId& id, int64_t offset, std::string_view data,
                                                    const PayloadStore::ChunkTaken& taken) {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
  const auto length = static_cast<int64_t>(data.size());
  const int64_t end = offset + length;
  int64_t committed = 0;
  std::shared_ptr<Hashed> hashed;
  const absl::Status written = RunTransaction(*connection, [&]() -> absl::Status {
    // Locked until the transaction ends: whoever sends the next chunk waits here.
    ASSIGN_OR_RETURN(const Row row, Find(*connection, id, "FOR UPDATE"));
    const PayloadStore::Upload& upload = row.upload;
    committed = upload.committed_bytes;
    if (offset < 0 || offset > committed) {
      return absl::OutOfRangeError(
          fmt::format("the chunk at {} of upload {} leaves a gap: continue at {}", offset, id, committed));
    }
    if (length > upload.size_bytes - offset) {
      return absl::OutOfRangeError(
          fmt::format("the chunk at {} of upload {} runs past the announced {} bytes", offset, id, upload.size_bytes));
    }
    if (end <= committed) return absl::OkStatus();
    data.remove_prefix(static_cast<size_t>(committed - offset));
    hashed = HashedOf(row);
    MutexLock lock(hashed->mutex);
    if (taken && end < upload.size_bytes && !hashed->has_failed) taken(end);
    // Until it is committed.
    hashed->has_failed = true;
    QueueNoFlush(*connection);
    QueuePiece(*connection, row.content_key, committed, data);
    connection->Queue({.sql = "-- write_chunk\n"
                              "UPDATE uploads SET committed_bytes = $2, num_uses = num_uses + 1 WHERE id = $1",
                       .values = PostgresValues().Add(SqlText(id.value())).Add(end),
                       .change = {{.num_rows = 1, .otherwise = NoSuchUpload(id)}}});
    RETURN_IF_ERROR(connection->Fly());
    // In the order of the chunks, as the row is locked. What other servers took, or an earlier process, is read back at
    // the end.
    if (hashed->num_bytes != committed) return absl::OkStatus();
    hashed->hash.Update(data);
    hashed->num_bytes = end;
    return absl::OkStatus();
  });
  if (hashed == nullptr) {
    RETURN_IF_ERROR(written);
    return committed;
  }
  MutexLock lock(hashed->mutex);
  if (!written.ok()) {
    hashed->num_bytes = -1;
    return written;
  }
  hashed->has_failed = false;
  return end;
}

absl::StatusOr<std::string> PostgresUploads::DigestOf(PostgresConnection& connection, const Row& row) {
  {
    const std::shared_ptr<Hashed> hashed = HashedOf(row);
    MutexLock lock(hashed->mutex);
    // One that failed may have been hashed and not committed.
    if (hashed->num_bytes == row.upload.size_bytes && !hashed->has_failed) {
      hashed->num_bytes = 0;
      return std::exchange(hashed->hash, Sha256()).Hex();
    }
  }
  Sha256 hash;
  RETURN_IF_ERROR(ReadContent(connection, row.content_key, row.upload.size_bytes, [&](std::string_view piece) {
    hash.Update(piece);
    return pool_.CheckGoesOn();
  }));
  return std::move(hash).Hex();
}

absl::Status PostgresUploads::Finish(const UploadId& id) {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
  ASSIGN_OR_RETURN(const Row row, Find(*connection, id));
  const PayloadStore::Upload& upload = row.upload;
  if (upload.is_finished) return absl::OkStatus();
  if (upload.committed_bytes < upload.size_bytes) {
    return absl::FailedPreconditionError(fmt::format("upload {} has {} of {} bytes: send the rest first", id,
                                                     upload.committed_bytes, upload.size_bytes));
  }
  ASSIGN_OR_RETURN(const std::string digest, DigestOf(*connection, row));
  if (digest != upload.digest) {
    RETURN_IF_ERROR(DeleteRow(*connection, id, std::nullopt).status());
    return absl::DataLossError(fmt::format("the bytes of upload {} have digest {}, announced was {}; upload them again",
                                           id, digest, upload.digest));
  }
  RETURN_IF_ERROR(RunTransaction(*connection, [&] {
    connection->Queue({.sql = "-- finish_upload\n"
                              "UPDATE uploads SET is_finished = 1, num_uses = num_uses + 1 WHERE id = $1",
                       .values = PostgresValues().Add(SqlText(id.value())),
                       .change = {{.num_rows = 1, .otherwise = NoSuchUpload(id)}}});
    return absl::OkStatus();
  }));
  MutexLock lock(mutex_);
  hashed_.erase(id);
  return absl::OkStatus();
}

absl::StatusOr<PostgresUploads::Finished> PostgresUploads::GetFinished(const UploadId& id) {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
  ASSIGN_OR_RETURN(Row row, Find(*connection, id));
  if (!row.upload.is_finished) return absl::FailedPreconditionError(fmt::format("upload {} is not finished", id));
  return Finished{
      .content_key = row.content_key, .size_bytes = row.upload.size_bytes, .digest = std::move(row.upload.digest)};
}

absl::Status PostgresUploads::MoveToBlob(const UploadId& id) {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
  RETURN_IF_ERROR(RunTransaction(*connection, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Row row, Find(*connection, id, "FOR UPDATE"));
    if (!row.upload.is_finished) return absl::FailedPreconditionError(fmt::format("upload {} is not finished", id));
    // One that is there already is as good.
    connection->Queue(
        {.sql = "-- add_blob\n"
                "INSERT INTO blobs (digest, size_bytes, content_key) VALUES ($1, $2, $3)\n"
                "ON CONFLICT (digest) DO NOTHING",
         .values = PostgresValues().Add(SqlText(row.upload.digest)).Add(row.upload.size_bytes).Add(row.content_key)});
    connection->Queue({.sql = "-- delete_upload\nDELETE FROM uploads WHERE id = $1",
                       .values = PostgresValues().Add(SqlText(id.value()))});
    QueueDeleteContent(*connection, row.content_key);
    return absl::OkStatus();
  }));
  Forget(id);
  return absl::OkStatus();
}

absl::StatusOr<bool> PostgresUploads::DeleteRow(PostgresConnection& connection, const UploadId& id,
                                                std::optional<int64_t> num_uses) {
  std::optional<int64_t> content_key;
  RETURN_IF_ERROR(RunTransaction(connection, [&]() -> absl::Status {
    PostgresConnection::Statement deletion{
        .sql =
            "-- delete_upload\nDELETE FROM uploads\n"
            "WHERE id = $1 AND ($2::bigint IS NULL OR num_uses = $2) RETURNING content_key",
        .on_row = [&](const SqlRow& row) { content_key = row.Int(0); }};
    deletion.values.Add(SqlText(id.value()));
    deletion.values.Add(num_uses.has_value() ? SqlValue(*num_uses) : SqlValue(SqlNull()));
    // Whoever makes a segment of it has locked the row. Only the next statement sees what they did.
    RETURN_IF_ERROR(connection.Run(std::move(deletion)));
    if (content_key.has_value()) QueueDeleteContent(connection, *content_key);
    return absl::OkStatus();
  }));
  if (!content_key.has_value()) return false;
  Forget(id);
  return true;
}

absl::Status PostgresUploads::Delete(const UploadId& id) {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
  return DeleteRow(*connection, id, std::nullopt).status();
}

void PostgresUploads::Forget(const UploadId& id) {
  MutexLock lock(mutex_);
  hashed_.erase(id);
  seen_.erase(id);
}

absl::StatusOr<int64_t> PostgresUploads::DeleteStale(absl::Time now, absl::Duration keep) {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
  std::map<UploadId, int64_t> uses;
  RETURN_IF_ERROR(
      connection->Run({.sql = "-- list_uploads\nSELECT id, num_uses FROM uploads",
                       .on_row = [&uses](const SqlRow& row) { uses.emplace(UploadId(row.String(0)), row.Int(1)); }}));
  std::vector<std::pair<UploadId, int64_t>> stale;
  {
    MutexLock lock(mutex_);
    std::erase_if(seen_, [&](const auto& each) { return !uses.contains(each.first); });
    std::erase_if(hashed_, [&](const auto& each) { return !uses.contains(each.first); });
    for (const auto& [id, num_uses] : uses) {
      Seen& seen = seen_.try_emplace(id, Seen{.num_uses = num_uses, .time = now}).first->second;
      if (seen.num_uses != num_uses) seen = {.num_uses = num_uses, .time = now};
      if (now - seen.time >= keep) stale.emplace_back(id, num_uses);
    }
  }
  int64_t num_deleted = 0;
  for (const auto& [id, num_uses] : stale) {
    ASSIGN_OR_RETURN(const bool is_deleted, DeleteRow(*connection, id, num_uses));
    num_deleted += is_deleted ? 1 : 0;
  }
  return num_deleted;
}

}  // namespace sheaf
