#include "storage/postgres/postgres_contents.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/checksum.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// Of one row. The database moves a value as a whole, and keeps it in 2 KiB that it finds by number.
constexpr size_t kPieceBytes = 1 << 20;
// In one flight.
constexpr int64_t kFlightPieces = 4;
// So many are looked at in one statement: none takes long, and what it has done is done.
constexpr int64_t kPiecesAtATime = 1000;

constexpr char kNotUsed[] =
    "NOT EXISTS (SELECT FROM blobs WHERE blobs.content_key = pieces.content_key)\n"
    "AND NOT EXISTS (SELECT FROM uploads WHERE uploads.content_key = pieces.content_key)\n"
    "AND NOT EXISTS (SELECT FROM spool_uploads WHERE spool_uploads.content_key = pieces.content_key)\n"
    "AND NOT EXISTS (SELECT FROM checkpoints WHERE checkpoints.content_key = pieces.content_key)";

}  // namespace

void QueuePiece(PostgresConnection& connection, int64_t key, int64_t place, std::string_view bytes) {
  connection.Queue({.sql = "-- add_piece\nINSERT INTO content_pieces (content_key, place, bytes) VALUES ($1, $2, $3)",
                    .values = PostgresValues().Add(key).Add(place).Add(SqlBlob(bytes))});
}

absl::StatusOr<PostgresContent> WriteContent(PostgresConnection& connection,
                                             const std::function<absl::Status(const ByteSink& take)>& write) {
  PostgresContent content;
  connection.Queue({.sql = "-- new_content\nSELECT nextval('content_keys')",
                    .on_row = [&content](const SqlRow& row) { content.key = row.Int(0); }});
  RETURN_IF_ERROR(connection.Fly());
  Sha256 hash;
  std::string waiting;
  int64_t num_waiting = 0;
  const auto put = [&](std::string_view piece) -> absl::Status {
    QueuePiece(connection, content.key, content.size_bytes, piece);
    content.size_bytes += static_cast<int64_t>(piece.size());
    if (++num_waiting < kFlightPieces) return absl::OkStatus();
    num_waiting = 0;
    return connection.Fly();
  };
  RETURN_IF_ERROR(write([&](std::string_view bytes) -> absl::Status {
    hash.Update(bytes);
    while (waiting.size() + bytes.size() >= kPieceBytes) {
      const size_t length = kPieceBytes - waiting.size();
      waiting += bytes.substr(0, length);
      bytes.remove_prefix(length);
      RETURN_IF_ERROR(put(waiting));
      waiting.clear();
    }
    waiting += bytes;
    return absl::OkStatus();
  }));
  if (!waiting.empty()) RETURN_IF_ERROR(put(waiting));
  content.digest = std::move(hash).Hex();
  return content;
}

absl::Status ReadContent(PostgresConnection& connection, int64_t key, int64_t size_bytes, const ByteSink& take) {
  int64_t place = 0;
  while (place < size_bytes) {
    absl::Status taken;
    const int64_t begin = place;
    RETURN_IF_ERROR(connection.Run({.sql = "-- read_pieces\n"
                                           "SELECT place, bytes FROM content_pieces\n"
                                           "WHERE content_key = $1 AND place >= $2 ORDER BY place LIMIT $3",
                                    .values = PostgresValues().Add(key).Add(place).Add(kFlightPieces),
                                    .on_row = [&](const SqlRow& row) {
                                      if (!taken.ok() || row.Int(0) != place) return;
                                      taken = take(row.Bytes(1));
                                      place += static_cast<int64_t>(row.Bytes(1).size());
                                    }}));
    RETURN_IF_ERROR(taken);
    if (place == begin) break;
  }
  if (place == size_bytes) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("{}: content {} has {} of {} bytes", connection.name(), key, place, size_bytes));
}

void QueueDeleteContent(PostgresConnection& connection, int64_t key) {
  connection.Queue({.sql = fmt::format("-- delete_content\nDELETE FROM content_pieces AS pieces\n"
                                       "WHERE content_key = $1 AND {}",
                                       kNotUsed),
                    .values = PostgresValues().Add(key)});
}

absl::Status DeleteUnusedContents(PostgresConnection& connection) {
  for (std::optional<int64_t> after, through = 0;;) {
    after = std::exchange(through, std::nullopt);
    RETURN_IF_ERROR(connection.Run({.sql = R"(-- next_contents
        SELECT max(content_key) FROM (SELECT content_key FROM content_pieces WHERE content_key > $1
                                       ORDER BY content_key LIMIT $2) AS portion HAVING count(*) > 0)",
                                    .values = PostgresValues().Add(*after).Add(kPiecesAtATime),
                                    .on_row = [&](const SqlRow& row) { through = row.Int(0); }}));
    if (!through.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(connection.Run({.sql = fmt::format("-- delete_unused_contents\nDELETE FROM content_pieces AS pieces\n"
                                                       "WHERE content_key > $1 AND content_key <= $2 AND {}",
                                                       kNotUsed),
                                    .values = PostgresValues().Add(*after).Add(*through)}));
  }
}

}  // namespace sheaf
