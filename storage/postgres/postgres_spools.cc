#include "storage/postgres/postgres_spools.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <utility>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "storage/postgres/postgres_contents.h"

namespace sheaf {
namespace {

uint32_t CrcOfDigest(std::string_view digest) {
  uint32_t crc = 0;
  std::from_chars(digest.data(), digest.data() + 8, crc, 16);
  return crc;
}

absl::Status NoSuchSegment(const RoundId& round, int64_t segment) {
  return absl::NotFoundError(fmt::format("there is no segment {} in the spool of round {}", segment, round));
}

absl::Status WrongBytes(const RoundId& round, const SpoolRef& ref) {
  return absl::DataLossError(fmt::format("the {} bytes at {} of segment {} of round {} do not match their checksum",
                                         ref.length, ref.offset, ref.segment, round));
}

}  // namespace

absl::StatusOr<PostgresSpools::Spool*> PostgresSpools::Find(const RoundId& round) {
  if (const auto found = spools_.find(round); found != spools_.end()) return &found->second;
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
  Spool spool;
  RETURN_IF_ERROR(
      connection->Run({.sql = "-- newest_segment\n"
                              "SELECT greatest((SELECT max(segment) FROM spool_pieces WHERE round_id = $1),\n"
                              "                (SELECT max(segment) FROM spool_uploads WHERE round_id = $1))",
                       .values = PostgresValues().Add(SqlText(round.value())),
                       .on_row = [&](const SqlRow& row) { spool.newest = row.Int(0); }}));
  return &(spools_[round] = spool);
}

absl::StatusOr<SpoolRef> PostgresSpools::Append(const RoundId& round, std::string_view bytes) {
  const uint32_t crc = Crc32(bytes);
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Spool * spool, Find(round));
  if (!spool->is_open) *spool = {.newest = spool->newest + 1, .is_open = true};
  Waiting& waiting =
      waiting_.try_emplace(SegmentKey(round, spool->newest), Waiting{.begin = spool->size_bytes}).first->second;
  waiting.bytes += bytes;
  const SpoolRef ref = {
      .segment = spool->newest, .offset = spool->size_bytes, .length = static_cast<int64_t>(bytes.size()), .crc = crc};
  spool->size_bytes += ref.length;
  return ref;
}

absl::StatusOr<SpoolRef> PostgresSpools::AddUpload(const UploadId& upload, const RoundId& round) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Spool * spool, Find(round));
  SpoolRef ref = {.segment = spool->newest + 1};
  bool is_there = false;
  bool is_finished = false;
  // The row is locked, so that whoever deletes the upload sees that its content is in use.
  PostgresConnection::Statement look = {
      .sql = "-- lock_upload\nSELECT size_bytes, digest, is_finished FROM uploads WHERE id = $1 FOR UPDATE",
      .values = PostgresValues().Add(SqlText(upload.value())),
      .on_row = [&](const SqlRow& row) {
        is_there = true;
        is_finished = row.Int(2) != 0;
        ref.length = row.Int(0);
        if (is_finished) ref.crc = CrcOfDigest(row.Bytes(1));
      }};
  const std::string insert =
      "-- add_upload_to_spool\n"
      "INSERT INTO spool_uploads (round_id, segment, size_bytes, digest, content_key)\n"
      "SELECT $2, $3, size_bytes, digest, content_key FROM uploads WHERE id = $1 AND is_finished = 1";
  PostgresValues values = PostgresValues().Add(SqlText(upload.value())).Add(SqlText(round.value())).Add(ref.segment);
  if (session_ != nullptr) {
    RETURN_IF_ERROR(session_->Ask(std::move(look)));
    if (is_finished) session_->Queue(1, insert, std::move(values));
  } else {
    ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
    RETURN_IF_ERROR(RunTransaction(*connection, [&] {
      // The flush of the Sync is behind it in the database's log.
      connection->Queue({.sql = "-- no_flush\nSET LOCAL synchronous_commit = off"});
      connection->Queue(std::move(look));
      connection->Queue({.sql = insert, .values = std::move(values)});
      return absl::OkStatus();
    }));
  }
  if (!is_there) return absl::NotFoundError(fmt::format("there is no upload {}", upload));
  if (!is_finished) return absl::FailedPreconditionError(fmt::format("upload {} is not finished", upload));
  // Segments grow with the sequence of contributions: what is appended next goes behind this one.
  *spool = {.newest = ref.segment};
  return ref;
}

std::vector<PostgresConnection::Statement> PostgresSpools::TakeWaiting() {
  MutexLock lock(mutex_);
  flying_ = std::exchange(waiting_, {});
  std::vector<PostgresConnection::Statement> inserts;
  for (const auto& [key, waiting] : flying_) {
    // One may be there that has no bytes.
    inserts.push_back({.sql = "-- append_to_spool\n"
                              "INSERT INTO spool_pieces (round_id, segment, place, bytes) VALUES ($1, $2, $3, $4)\n"
                              "ON CONFLICT (round_id, segment, place) DO UPDATE SET bytes = EXCLUDED.bytes",
                       .values = PostgresValues()
                                     .Add(SqlText(key.first.value()))
                                     .Add(key.second)
                                     .Add(waiting.begin)
                                     .Add(SqlBlob(waiting.bytes))});
  }
  return inserts;
}

void PostgresSpools::QueueInto(OwnedSession& session) {
  for (PostgresConnection::Statement& insert : TakeWaiting()) {
    session.Queue(std::move(insert.sql), std::move(insert.values));
  }
}

void PostgresSpools::Ended() {
  MutexLock lock(mutex_);
  waiting_.clear();
  flying_.clear();
}

absl::Status PostgresSpools::Sync() {
  if (session_ != nullptr) return absl::OkStatus();
  MutexLock one(syncing_);
  std::vector<PostgresConnection::Statement> inserts = TakeWaiting();
  if (inserts.empty()) return absl::OkStatus();
  const auto write = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
    return RunTransaction(*connection, [&] {
      for (PostgresConnection::Statement& insert : inserts) connection->Queue(std::move(insert));
      return absl::OkStatus();
    });
  };
  absl::Status written = write();
  MutexLock lock(mutex_);
  flying_.clear();
  return written;
}

std::optional<std::string> PostgresSpools::FindWaiting(const RoundId& round, const SpoolRef& ref) {
  MutexLock lock(mutex_);
  for (const auto* segments : {&waiting_, &flying_}) {
    const auto found = segments->find({round, ref.segment});
    if (found == segments->end()) continue;
    const auto& [begin, bytes] = found->second;
    const int64_t end = begin + static_cast<int64_t>(bytes.size());
    if (ref.offset < begin || ref.offset > end) continue;
    return bytes.substr(static_cast<size_t>(ref.offset - begin), static_cast<size_t>(ref.length));
  }
  return std::nullopt;
}

absl::StatusOr<std::string> PostgresSpools::Read(const RoundId& round, const SpoolRef& ref) {
  if (ref.offset < 0 || ref.length < 0) return WrongBytes(round, ref);
  if (std::optional<std::string> waiting = FindWaiting(round, ref)) {
    if (static_cast<int64_t>(waiting->size()) == ref.length && Crc32(*waiting) == ref.crc) return *std::move(waiting);
    return WrongBytes(round, ref);
  }
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
  std::string bytes;
  bool is_there = false;
  std::optional<int64_t> content_key;
  int64_t size_bytes = 0;
  std::string digest;
  const auto key = [&] { return PostgresValues().Add(SqlText(round.value())).Add(ref.segment); };
  connection->Queue({.sql = "-- read_record\n"
                            "SELECT substring(bytes FROM ($3 - place + 1)::integer FOR $4::integer) FROM spool_pieces\n"
                            "WHERE round_id = $1 AND segment = $2 AND place <= $3 ORDER BY place DESC LIMIT 1",
                     .values = key().Add(ref.offset).Add(ref.length),
                     .on_row = [&](const SqlRow& row) { bytes = row.String(0); }});
  connection->Queue({.sql = "-- has_segment\n"
                            "SELECT FROM spool_pieces WHERE round_id = $1 AND segment = $2 LIMIT 1",
                     .values = key(),
                     .on_row = [&](const SqlRow&) { is_there = true; }});
  connection->Queue({.sql = "-- upload_of_segment\n"
                            "SELECT content_key, size_bytes, digest FROM spool_uploads\n"
                            "WHERE round_id = $1 AND segment = $2",
                     .values = key(),
                     .on_row = [&](const SqlRow& row) {
                       content_key = row.Int(0);
                       size_bytes = row.Int(1);
                       digest = row.String(2);
                     }});
  RETURN_IF_ERROR(connection->Fly());
  if (content_key.has_value()) {
    if (ref.offset != 0 || ref.length != size_bytes || ref.crc != CrcOfDigest(digest)) return WrongBytes(round, ref);
    RETURN_IF_ERROR(ReadContent(*connection, *content_key, size_bytes, [&bytes](std::string_view piece) {
      bytes += piece;
      return absl::OkStatus();
    }));
    if (Sha256Hex(bytes) == digest) return bytes;
    return WrongBytes(round, ref);
  }
  if (!is_there) return NoSuchSegment(round, ref.segment);
  if (static_cast<int64_t>(bytes.size()) == ref.length && Crc32(bytes) == ref.crc) return bytes;
  return WrongBytes(round, ref);
}

absl::StatusOr<int64_t> PostgresSpools::Roll(const RoundId& round) {
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Spool * spool, Find(round));
  spool->is_open = false;
  return spool->newest;
}

absl::Status PostgresSpools::DeleteSegments(const RoundId& round, int64_t through) {
  {
    MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(Spool * spool, Find(round));
    if (spool->newest <= through) spool->is_open = false;
    std::erase_if(waiting_,
                  [&](const auto& each) { return each.first.first == round && each.first.second <= through; });
  }
  return DeleteRows(round, through);
}

absl::Status PostgresSpools::DeleteRound(const RoundId& round) {
  {
    MutexLock lock(mutex_);
    spools_.erase(round);
    std::erase_if(waiting_, [&](const auto& each) { return each.first.first == round; });
  }
  return DeleteRows(round, std::numeric_limits<int64_t>::max());
}

absl::Status PostgresSpools::DeleteRows(const RoundId& round, int64_t through) {
  ASSIGN_OR_RETURN(const PostgresPool::Borrowed connection, pool_.Borrow());
  return RunTransaction(*connection, [&]() -> absl::Status {
    std::vector<int64_t> content_keys;
    const auto key = [&] { return PostgresValues().Add(SqlText(round.value())).Add(through); };
    connection->Queue(
        {.sql = "-- delete_segments\nDELETE FROM spool_pieces WHERE round_id = $1 AND segment <= $2", .values = key()});
    connection->Queue({.sql = "-- delete_segments_of_uploads\n"
                              "DELETE FROM spool_uploads WHERE round_id = $1 AND segment <= $2 RETURNING content_key",
                       .values = key(),
                       .on_row = [&](const SqlRow& row) { content_keys.push_back(row.Int(0)); }});
    RETURN_IF_ERROR(connection->Fly());
    for (const int64_t content_key : content_keys) QueueDeleteContent(*connection, content_key);
    if (tenure_) connection->Queue(tenure_->Check());
    return absl::OkStatus();
  });
}

}  // namespace sheaf
