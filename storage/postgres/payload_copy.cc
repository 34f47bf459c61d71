#include "storage/postgres/payload_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "storage/files/upload_files.h"
#include "storage/postgres/postgres_values.h"
#include "storage/sql/state_names.h"

namespace sheaf {
namespace {

// Of a row of spool_pieces, unless one contribution is larger.
constexpr size_t kSpoolRowBytes = 1 << 20;
// Contributions that the database hashes in one flight.
constexpr size_t kHashesMax = 100;
constexpr int64_t kWholeFile = std::numeric_limits<int64_t>::max();

absl::Status Damaged(const std::string& path) {
  return absl::DataLossError(fmt::format("{} is not what was stored there", path));
}

}  // namespace

// Contributions that lie one behind the other in a segment become one row: a server looks for a contribution in the
// last row that begins at or before it. What lies between them in the file was never accepted.
class PayloadCopy::SpoolWriter {
 public:
  explicit SpoolWriter(PostgresConnection& to) : to_(to) {}

  absl::Status Add(const Pending& pending, std::string_view bytes) {
    const bool is_next = row_.has_value() && pending.round == row_->round && pending.ref.segment == row_->segment &&
                         pending.ref.offset == row_->place + static_cast<int64_t>(row_->bytes.size());
    // One without bytes has its row, too; and no other row of the same place comes behind it.
    const bool fits = is_next && (row_->bytes.empty() || row_->bytes.size() + bytes.size() <= kSpoolRowBytes);
    if (!fits) {
      RETURN_IF_ERROR(Flush());
      row_ = {.round = pending.round, .segment = pending.ref.segment, .place = pending.ref.offset};
    }
    row_->bytes += bytes;
    return absl::OkStatus();
  }
  absl::Status Flush() {
    const std::optional<Row> row = std::exchange(row_, std::nullopt);
    if (!row.has_value()) return absl::OkStatus();
    return to_.Run({.sql = "-- copy_to_spool\n"
                           "INSERT INTO spool_pieces (round_id, segment, place, bytes) VALUES ($1, $2, $3, $4)",
                    .values = PostgresValues()
                                  .Add(SqlText(row->round.value()))
                                  .Add(row->segment)
                                  .Add(row->place)
                                  .Add(SqlBlob(row->bytes))});
  }

 private:
  struct Row {
    RoundId round;
    int64_t segment = 0;
    int64_t place = 0;
    std::string bytes;
  };
  PostgresConnection& to_;
  // What is not written yet.
  std::optional<Row> row_;
};

absl::Status PayloadCopy::Write() {
  RETURN_IF_ERROR(WriteBlobs());
  RETURN_IF_ERROR(WriteUploads());
  RETURN_IF_ERROR(WriteCheckpoints());
  return WriteSpools();
}

absl::StatusOr<PostgresContent> PayloadCopy::Store(const std::function<absl::Status(const ByteSink& take)>& write) {
  ASSIGN_OR_RETURN(PostgresContent content, WriteContent(to_, write));
  RETURN_IF_ERROR(to_.Fly());
  Sha256 hash;
  RETURN_IF_ERROR(ReadContent(to_, content.key, content.size_bytes, [&hash](std::string_view piece) {
    hash.Update(piece);
    return absl::OkStatus();
  }));
  if (std::move(hash).Hex() == content.digest) return content;
  return absl::DataLossError(fmt::format("{}: content {} is not what was written", to_.name(), content.key));
}

absl::StatusOr<PostgresContent> PayloadCopy::StoreFile(const std::string& path, int64_t bytes_max) {
  ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files_.Open(path, FileSystem::kRead));
  return Store([&](const ByteSink& take) { return ReadFilePieces(*file, 0, bytes_max, take); });
}

absl::Status PayloadCopy::WriteBlobs() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.List(directory_ + "/blobs"));
  for (const std::string& name : names) {
    // What a crash left half-written has another name.
    if (!IsSha256Hex(name)) continue;
    const std::string path = directory_ + "/blobs/" + name;
    ASSIGN_OR_RETURN(const PostgresContent content, StoreFile(path, kWholeFile));
    if (content.digest != name) return Damaged(path);
    to_.Queue({.sql = "-- copy_blob\nINSERT INTO blobs (digest, size_bytes, content_key) VALUES ($1, $2, $3)",
               .values = PostgresValues().Add(SqlText(name)).Add(content.size_bytes).Add(content.key)});
    ++counts_.blobs.number;
    counts_.blobs.num_bytes += content.size_bytes;
  }
  return to_.Fly();
}

absl::Status PayloadCopy::WriteUploads() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.List(directory_ + "/uploads"));
  for (const std::string& name : names) {
    const std::optional<UploadFileName> upload = UploadFileName::Parse(name);
    if (!upload.has_value()) continue;
    if (IsSha256Hex(upload->key)) {
      ++counts_.num_uploads_left;
      continue;
    }
    const std::string path = directory_ + "/uploads/" + name;
    ASSIGN_OR_RETURN(const PostgresContent content, StoreFile(path, upload->size_bytes));
    const bool is_whole = content.size_bytes == upload->size_bytes && content.digest == upload->digest;
    if (upload->is_finished && !is_whole) return Damaged(path);
    to_.Queue({.sql = "-- copy_upload\n"
                      "INSERT INTO uploads (id, size_bytes, digest, content_key, committed_bytes, is_finished)\n"
                      "VALUES ($1, $2, $3, $4, $5, $6)",
               .values = PostgresValues()
                             .Add(SqlText(DecodeFileName(upload->key)))
                             .Add(upload->size_bytes)
                             .Add(SqlText(upload->digest))
                             .Add(content.key)
                             .Add(content.size_bytes)
                             .Add(upload->is_finished ? 1 : 0)});
    ++counts_.uploads.number;
    counts_.uploads.num_bytes += content.size_bytes;
  }
  return to_.Fly();
}

absl::Status PayloadCopy::WriteCheckpoints() {
  absl::Status status;
  const auto write = [&](const RoundId& round, const std::string& name) -> absl::Status {
    ASSIGN_OR_RETURN(const PostgresContent content,
                     Store([&](const ByteSink& take) { return checkpoints_.ReadInto(round, name, take); }));
    ++counts_.checkpoints.number;
    counts_.checkpoints.num_bytes += content.size_bytes;
    return to_.Run({.sql = "-- copy_checkpoint\n"
                           "INSERT INTO checkpoints (round_id, name, size_bytes, digest, content_key)\n"
                           "VALUES ($1, $2, $3, $4, $5)",
                    .values = PostgresValues()
                                  .Add(SqlText(round.value()))
                                  .Add(SqlText(name))
                                  .Add(content.size_bytes)
                                  .Add(SqlText(content.digest))
                                  .Add(content.key)});
  };
  RETURN_IF_ERROR(rows_
                      .Execute("-- copied_checkpoints\n"
                               "SELECT id, checkpoint FROM rounds WHERE $IS_LIVE AND checkpoint <> ''"_sql,
                               {},
                               [&](const SqlRow& row) {
                                 if (status.ok()) status = write(RoundId(row.Bytes(0)), row.String(1));
                               })
                      .status());
  if (!absl::IsNotFound(status)) return status;
  return absl::DataLossError(fmt::format("{}: {}", directory_, std::string(status.message())));
}

absl::Status PayloadCopy::ForEachPending(absl::FunctionRef<absl::Status(const Pending& pending)> look) {
  absl::Status status;
  RETURN_IF_ERROR(rows_
                      .Execute(R"(-- copied_contributions
      SELECT r.id, c.sequence, c.spool_segment, c.spool_offset, c.spool_length, c.spool_crc, c.digest, c.size_bytes
        FROM rounds r JOIN contributions c ON c.round_key = r.round_key AND c.sequence > r.checkpoint_sequence
       WHERE r.$IS_LIVE AND c.spool_segment > 0 ORDER BY r.round_key, c.sequence)"_sql,
                               {},
                               [&](const SqlRow& row) {
                                 if (!status.ok()) return;
                                 status = look({.round = RoundId(row.Bytes(0)),
                                                .ref = {.segment = row.Int(2),
                                                        .offset = row.Int(3),
                                                        .length = row.Int(4),
                                                        .crc = static_cast<uint32_t>(row.Int(5))},
                                                .sequence = row.Int(1),
                                                .digest = row.String(6),
                                                .size_bytes = row.Int(7)});
                               })
                      .status());
  return status;
}

absl::Status PayloadCopy::WriteSpools() {
  SpoolWriter writer(to_);
  const auto write = [&](const Pending& pending) -> absl::Status {
    ++counts_.contributions.number;
    counts_.contributions.num_bytes += pending.ref.length;
    const absl::StatusOr<SpoolFiles::Segment> segment = spools_.FindSegment(pending.round, pending.ref.segment);
    if (absl::IsNotFound(segment.status())) {
      return absl::DataLossError(fmt::format("{}: {}", directory_, std::string(segment.status().message())));
    }
    RETURN_IF_ERROR(segment.status());
    if (!segment->digest.empty()) return WriteSegment(pending, *segment);
    ASSIGN_OR_RETURN(const std::string bytes, spools_.Read(pending.round, pending.ref));
    const bool is_right =
        static_cast<int64_t>(bytes.size()) == pending.size_bytes && Sha256Hex(bytes) == pending.digest;
    return is_right ? writer.Add(pending, bytes) : Damaged(segment->path);
  };
  RETURN_IF_ERROR(ForEachPending(write));
  return writer.Flush();
}

absl::Status PayloadCopy::WriteSegment(const Pending& pending, const SpoolFiles::Segment& segment) {
  ASSIGN_OR_RETURN(const PostgresContent content, StoreFile(segment.path, kWholeFile));
  if (content.digest != segment.digest || content.digest != pending.digest ||
      content.size_bytes != pending.size_bytes || pending.ref.offset != 0 || pending.ref.length != pending.size_bytes) {
    return Damaged(segment.path);
  }
  return to_.Run({.sql = "-- copy_segment\n"
                         "INSERT INTO spool_uploads (round_id, segment, size_bytes, digest, content_key)\n"
                         "VALUES ($1, $2, $3, $4, $5)",
                  .values = PostgresValues()
                                .Add(SqlText(pending.round.value()))
                                .Add(pending.ref.segment)
                                .Add(content.size_bytes)
                                .Add(SqlText(content.digest))
                                .Add(content.key)});
}

absl::Status PayloadCopy::Verify() {
  RETURN_IF_ERROR(VerifyPending());
  RETURN_IF_ERROR(
      CheckNone("-- missing_broadcast\nSELECT id FROM rounds WHERE $IS_LIVE AND broadcast_digest <> ''\n"
                "AND NOT EXISTS (SELECT FROM blobs WHERE digest = broadcast_digest) LIMIT 1"_sql,
                "broadcast"));
  RETURN_IF_ERROR(
      CheckNone("-- missing_aggregate\nSELECT r.id FROM round_texts x JOIN rounds r USING (round_key)\n"
                "WHERE x.aggregate_digest <> '' AND NOT EXISTS (SELECT FROM blobs\n"
                "WHERE digest = x.aggregate_digest) LIMIT 1",
                "aggregate"));
  // Contents were read back when they were written; here that there is nothing else.
  int64_t num_rows[3] = {};
  RETURN_IF_ERROR(
      to_.Run({.sql = "-- count_payloads\nSELECT (SELECT count(*) FROM blobs), (SELECT count(*) FROM uploads),\n"
                      "(SELECT count(*) FROM checkpoints)",
               .on_row = [&](const SqlRow& row) {
                 for (int i = 0; i < 3; ++i) num_rows[i] = row.Int(i);
               }}));
  if (num_rows[0] == counts_.blobs.number && num_rows[1] == counts_.uploads.number &&
      num_rows[2] == counts_.checkpoints.number) {
    return absl::OkStatus();
  }
  return absl::DataLossError(fmt::format("{} has payloads that were not copied", to_.name()));
}

absl::Status PayloadCopy::VerifyPending() {
  absl::Status status;
  size_t num_queued = 0;
  const auto hash = [&](const Pending& pending) -> absl::Status {
    // As a server reads it; of those that were uploads the bytes were read back.
    to_.Queue({.sql = R"(-- hash_contribution
        SELECT CASE WHEN EXISTS (SELECT FROM spool_uploads WHERE round_id = $1 AND segment = $2)
                    THEN (SELECT digest FROM spool_uploads WHERE round_id = $1 AND segment = $2)
                    ELSE encode(sha256((
          SELECT substring(bytes FROM ($3 - place + 1)::integer FOR $4::integer) FROM spool_pieces
           WHERE round_id = $1 AND segment = $2 AND place <= $3 ORDER BY place DESC LIMIT 1)), 'hex')::bytea END)",
               .values = PostgresValues()
                             .Add(SqlText(pending.round.value()))
                             .Add(pending.ref.segment)
                             .Add(pending.ref.offset)
                             .Add(pending.ref.length),
               .on_row = [&status, this, round = pending.round, sequence = pending.sequence,
                          digest = pending.digest](const SqlRow& row) {
                 if (row.Bytes(0) == digest || !status.ok()) return;
                 status = absl::DataLossError(fmt::format("{}: contribution {} of round {} is not what was copied",
                                                          to_.name(), sequence, round));
               }});
    if (++num_queued % kHashesMax == 0) RETURN_IF_ERROR(to_.Fly());
    return status;
  };
  RETURN_IF_ERROR(ForEachPending(hash));
  RETURN_IF_ERROR(to_.Fly());
  return status;
}

absl::Status PayloadCopy::CheckNone(std::string_view sql, std::string_view what) {
  absl::Status status;
  RETURN_IF_ERROR(to_.Run({.sql = std::string(sql), .on_row = [&](const SqlRow& row) {
                             status = absl::DataLossError(
                                 fmt::format("{}/blobs lacks the {} of round {}", directory_, what, row.Bytes(0)));
                           }}));
  return status;
}

}  // namespace sheaf
