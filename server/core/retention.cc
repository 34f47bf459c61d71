#include "server/core/retention.h"

#include <string>
#include <vector>

#include "base/log.h"

namespace sheaf {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(10);
// Between two parts of a larger deletion.
constexpr absl::Duration kPause = absl::Milliseconds(20);
constexpr int64_t kTasksPerBatch = 1000;
constexpr absl::Duration kWorkersInterval = absl::Hours(1);

}  // namespace

void Retention::Tick(absl::Time now) {
  if (now < due_time_) return;
  due_time_ = now + kInterval;
  DeleteRounds(now);
  if (now >= workers_due_time_) DeleteWorkers(now);
}

void Retention::DeleteRounds(absl::Time now) {
  const absl::StatusOr<TaskStore::DeletedRounds> deleted =
      context_.store.DeleteEndedRounds({.ended_by = now - context_.limits.ended_keep,
                                        .keep_max = context_.limits.ended_rounds_max,
                                        .tasks_limit = kTasksPerBatch});
  if (!deleted.ok()) return;  // The batch fails with it.
  if (!deleted->is_done) due_time_ = now + kPause;
  std::vector<std::string> unused;
  for (const std::string& digest : deleted->aggregate_digests) {
    const absl::StatusOr<TaskStore::BlobUse> use = context_.store.GetBlobUse(digest);
    if (use.ok() && *use != TaskStore::BlobUse::kCurrent) unused.push_back(digest);
  }
  if (deleted->rounds.empty()) return;
  context_.executor.Defer([this, unused = std::move(unused), rounds = deleted->rounds](const absl::Status& commit) {
    if (!commit.ok()) return;
    LogInfo("{} rounds that ended long ago were deleted, {} to {}", rounds.size(), rounds.front(), rounds.back());
    for (const std::string& digest : unused) {
      const absl::Status status = context_.payloads.DeleteBlob(digest);
      if (!status.ok()) LogWarning("aggregate {} stays on disk: {}", digest, status.ToString());
    }
  });
}

void Retention::DeleteWorkers(absl::Time now) {
  workers_due_time_ = now + kWorkersInterval;
  const absl::StatusOr<int64_t> deleted = context_.store.DeleteWorkers(now - context_.limits.ended_keep);
  if (deleted.ok() && *deleted > 0) LogInfo("{} workers not seen for long were forgotten", *deleted);
}

}  // namespace sheaf
