// PostgresSpools: the spools of rounds as rows. What is appended waits in memory, and travels in the batch's own
// flight once the spools have joined it: a row per segment and batch, of all records that came for it. Else Sync writes
// it in a transaction by itself. A finished upload becomes a segment by a row that has its content's key.
//
// A reference finds a record, and its checksum checks it, as in storage/files/spool_files.h. Segments of an earlier
// process are never appended to. Thread-safe; nobody who appends waits for the database, but for the first that does so
// for a round.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "storage/payload_store.h"
#include "storage/postgres/owned_session.h"
#include "storage/postgres/postgres_pool.h"

namespace sheaf {

class PostgresSpools final : public BatchPart {
 public:
  explicit PostgresSpools(PostgresPool& pool) : pool_(pool) {}

  // From here on all is written by the batches of `session`, which outlives them, and whose thread alone appends: a
  // server that has lost its store writes nothing any more.
  void JoinBatches(OwnedSession& session) {
    session_ = &session;
    tenure_ = session.tenure();
    session.Join(*this);
  }

  absl::StatusOr<SpoolRef> Append(const RoundId& round, std::string_view bytes);
  // NOT_FOUND; FAILED_PRECONDITION if it is not finished.
  absl::StatusOr<SpoolRef> AddUpload(const UploadId& upload, const RoundId& round);
  // Of what was appended before, all or nothing: what it could not write is gone.
  absl::Status Sync() EXCLUDES(syncing_, mutex_);
  absl::StatusOr<std::string> Read(const RoundId& round, const SpoolRef& ref);
  absl::StatusOr<int64_t> Roll(const RoundId& round);
  absl::Status DeleteSegments(const RoundId& round, int64_t through);
  absl::Status DeleteRound(const RoundId& round);

 private:
  struct Spool {
    // 0: there is none.
    int64_t newest = 0;
    bool is_open = false;
    // Of the open segment.
    int64_t size_bytes = 0;
  };
  using SegmentKey = std::pair<RoundId, int64_t>;
  // Of one segment, in the order of its records.
  struct Waiting {
    int64_t begin = 0;
    std::string bytes;
  };

  void QueueInto(OwnedSession& session) override EXCLUDES(mutex_);
  void Ended() override EXCLUDES(mutex_);
  // Inserts of what waits, which flies from here on.
  std::vector<PostgresConnection::Statement> TakeWaiting() EXCLUDES(mutex_);
  // Asks the database the first time.
  absl::StatusOr<Spool*> Find(const RoundId& round) REQUIRES(mutex_);
  // Nothing if it does not wait.
  std::optional<std::string> FindWaiting(const RoundId& round, const SpoolRef& ref) EXCLUDES(mutex_);
  absl::Status DeleteRows(const RoundId& round, int64_t through);

  PostgresPool& pool_;
  // Null: they have joined none.
  OwnedSession* session_ = nullptr;
  // None: they have joined none.
  std::optional<PostgresOwner::Tenure> tenure_;
  // Taken before the other, by one Sync at a time.
  Mutex syncing_;
  Mutex mutex_;
  std::map<RoundId, Spool> spools_ GUARDED_BY(mutex_);
  std::map<SegmentKey, Waiting> waiting_ GUARDED_BY(mutex_);
  // What is being written.
  std::map<SegmentKey, Waiting> flying_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
