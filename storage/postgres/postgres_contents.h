// Contents: bytes that are too large for a row, as pieces of a table. What they are is said by the row that has their
// key: a blob's, an upload's, a checkpoint's, or that of a segment of a spool.
//
//   PostgresContent content;
//   RETURN_IF_ERROR(RunTransaction(*connection, [&]() -> absl::Status {
//     ASSIGN_OR_RETURN(content, WriteContent(*connection, write));
//     connection->Queue({.sql = "-- add_draft\nINSERT INTO drafts (content_key) VALUES ($1)",
//                        .values = PostgresValues().Add(content.key)});
//     return absl::OkStatus();
//   }));
//   RETURN_IF_ERROR(ReadContent(*connection, content.key, content.size_bytes, take));
//
// A few megabytes of a content are in memory at a time. Codes: those of postgres_error.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_sink.h"
#include "storage/postgres/postgres_connection.h"

namespace sheaf {

struct PostgresContent {
  int64_t key = 0;
  int64_t size_bytes = 0;
  // SHA-256, in hex.
  std::string digest;
};

// Inside of a transaction: stores the bytes that `write` gives, under a new key. Its error is returned.
absl::StatusOr<PostgresContent> WriteContent(PostgresConnection& connection,
                                             const std::function<absl::Status(const ByteSink& take)>& write);
// Hands out all bytes in order. DATA_LOSS if they are not `size_bytes`, which who deletes them meanwhile brings about,
// too. `take` has its own errors.
absl::Status ReadContent(PostgresConnection& connection, int64_t key, int64_t size_bytes, const ByteSink& take);
// Queues the insertion of one piece, behind `place` bytes.
void QueuePiece(PostgresConnection& connection, int64_t key, int64_t place, std::string_view bytes);
// Queues the deletion of a content, unless another row has its key.
void QueueDeleteContent(PostgresConnection& connection, int64_t key);
// Deletes what no row has the key of: what a crash left between two transactions.
absl::Status DeleteUnusedContents(PostgresConnection& connection);

}  // namespace sheaf
