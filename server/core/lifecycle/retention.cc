#include "server/core/lifecycle/retention.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"

namespace sheaf {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(10);
// So many more than the limit are kept for a moment, however fast rounds are.
constexpr int kRoundsBetween = 64;
// Between two parts of a larger deletion.
constexpr absl::Duration kPause = absl::Milliseconds(20);
constexpr int64_t kTasksPerBatch = 1000;
constexpr absl::Duration kBlobsInterval = absl::Minutes(10);
constexpr size_t kBlobsPerBatch = 16;

}  // namespace

void Retention::Tick(absl::Time now) {
  if (now < due_time_ && num_closed_ < kRoundsBetween) return;
  due_time_ = now + kInterval;
  num_closed_ = 0;
  DeleteRounds(now);
  if (now >= blobs_due_time_) FindOldBlobs(now);
  if (!old_blobs_.empty()) DeleteOldBlobs(now);
}

void Retention::DeleteRounds(absl::Time now) {
  const absl::StatusOr<TaskStore::DeletedRounds> deleted =
      context_.store.DeleteEndedRounds({.ended_by = now - context_.limits.ended_keep,
                                        .keep_max = context_.limits.ended_rounds_max,
                                        .tasks_limit = kTasksPerBatch});
  if (!deleted.ok()) return;  // The batch fails with it.
  if (!deleted->is_done) due_time_ = now + kPause;
  if (deleted->rounds.empty()) return;
  context_.executor.Defer([this, deleted = *deleted, now](const absl::Status& commit) {
    if (!commit.ok()) return;
    LogInfo("{} rounds that ended long ago were deleted, {} to {}", deleted.rounds.size(), deleted.rounds.front(),
            deleted.rounds.back());
    for (const std::string& digest : deleted.aggregate_digests) DeleteIfUnused(digest, now);
  });
}

void Retention::FindOldBlobs(absl::Time now) {
  blobs_due_time_ = now + kBlobsInterval;
  // It looks at every file.
  context_.receptions.Run("old blobs", [this] {
    auto blobs = std::make_shared<absl::StatusOr<std::vector<PayloadStore::BlobInfo>>>(context_.payloads.ListBlobs());
    context_.executor.Post([this, blobs](absl::Time at) {
      if (blobs->ok()) return FindOld(**blobs, at);
      LogWarning("unused blobs stay on disk: {}", blobs->status().ToString());
    });
  });
}

void Retention::FindOld(const std::vector<PayloadStore::BlobInfo>& blobs, absl::Time now) {
  old_blobs_.clear();
  // Files' times are the wall clock's, which may be set: a blob is as old as the first look that found it.
  std::map<std::string, absl::Time> found_times;
  for (const PayloadStore::BlobInfo& blob : blobs) {
    const auto known = found_times_.find(blob.digest);
    const absl::Time found = known == found_times_.end() ? now : known->second;
    found_times[blob.digest] = found;
    if (now - found >= context_.limits.unreferenced_keep) old_blobs_.push_back(blob.digest);
  }
  found_times_ = std::move(found_times);
  if (!old_blobs_.empty()) due_time_ = now;
}

void Retention::DeleteOldBlobs(absl::Time now) {
  std::vector<std::string> part;
  while (!old_blobs_.empty() && part.size() < kBlobsPerBatch) {
    part.push_back(std::move(old_blobs_.back()));
    old_blobs_.pop_back();
  }
  if (!old_blobs_.empty()) due_time_ = now + kPause;
  context_.executor.Defer([this, part = std::move(part), now](const absl::Status& commit) {
    if (!commit.ok()) return;  // Looked at again next time.
    for (const std::string& digest : part) DeleteIfUnused(digest, now);
  });
}

void Retention::DeleteIfUnused(const std::string& digest, absl::Time now) {
  if (!broadcasts_.IsUnused(digest, now)) return;
  const absl::Status status = broadcasts_.Delete(digest, now);
  if (!status.ok()) LogWarning("blob {}, which nobody needs, stays on disk: {}", digest, status.ToString());
}

}  // namespace sheaf
