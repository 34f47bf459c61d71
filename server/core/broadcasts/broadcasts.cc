#include "server/core/broadcasts/broadcasts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

bool HadBefore(const LiveRound& round, const std::string& digest) {
  return std::find(round.broadcasts_before.begin(), round.broadcasts_before.end(), digest) !=
         round.broadcasts_before.end();
}

}  // namespace

absl::Status Broadcasts::Recover(absl::Time now) {
  // Those that were to be deleted soon are known from the store alone.
  ASSIGN_OR_RETURN(const std::vector<std::string> former, context_.store.ListFormerBroadcasts());
  if (former.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<PayloadStore::BlobInfo> blobs, context_.payloads.ListBlobs());
  for (const PayloadStore::BlobInfo& blob : blobs) {
    if (std::binary_search(former.begin(), former.end(), blob.digest)) OnRoundEnded(blob.digest, now);
  }
  return absl::OkStatus();
}

void Broadcasts::Touch(const std::string& digest, absl::Duration keep, absl::Time now) {
  std::erase_if(touched_, [now](const auto& entry) { return entry.second <= now; });
  absl::Time& until = touched_.try_emplace(digest, now).first->second;
  until = std::max(until, now + keep);
  const auto found = retired_.find(digest);
  if (found != retired_.end()) found->second = until;
}

absl::Status Broadcasts::CheckStored(const std::string& digest) const {
  if (digest.empty() || context_.payloads.HasBlob(digest)) return absl::OkStatus();
  return absl::NotFoundError(fmt::format(
      "the broadcast {} was not uploaded; upload it first (sheaf round create --broadcast FILE does both)", digest));
}

void Broadcasts::OnRoundAdded(const std::string& digest, const std::string& population) {
  if (!digest.empty()) readers_.Add(digest, population);
}

void Broadcasts::OnRoundCreated(const std::string& digest, absl::Time now) {
  context_.executor.Defer([this, digest, now](const absl::Status& commit) {
    const auto touched = touched_.find(digest);
    if (commit.ok() && touched != touched_.end()) {
      touched->second = std::min(touched->second, now + context_.limits.broadcast_linger);
    }
  });
}

void Broadcasts::OnRoundEnded(const std::string& digest, absl::Time now) {
  if (!digest.empty()) retired_[digest] = now + context_.limits.broadcast_linger;
}

void Broadcasts::OnRoundUndone(const std::string& digest) {
  if (!digest.empty() && !retired_.contains(digest)) ForgetReaders(digest);
}

void Broadcasts::Tick(absl::Time now) {
  std::vector<std::string> due;
  for (const auto& [digest, time] : retired_) {
    if (time <= now) due.push_back(digest);
  }
  if (due.empty()) return;
  for (const std::string& digest : due) retired_[digest] = now + context_.limits.broadcast_linger;
  // What this batch says of the rounds that had it may yet come to nothing.
  context_.executor.Defer([this, due = std::move(due), now](const absl::Status& commit) {
    if (!commit.ok()) return;
    for (const std::string& digest : due) {
      if (IsUnused(digest, now)) {
        const absl::Status status = Delete(digest);
        if (!status.ok()) LogWarning("broadcast {} stays on disk: {}", digest, status.ToString());
      }
      retired_.erase(digest);
      ForgetReaders(digest);
    }
  });
}

absl::Time Broadcasts::NextTick() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [digest, time] : retired_) next = std::min(next, time);
  return next;
}

bool Broadcasts::IsUnused(const std::string& digest, absl::Time now) const {
  const absl::StatusOr<TaskStore::BlobUse> use = context_.store.GetBlobUse(digest);
  if (!use.ok() || *use == TaskStore::BlobUse::kCurrent) return false;
  const auto touched = touched_.find(digest);
  if (touched != touched_.end() && touched->second > now) return false;
  // An aggregate that was written, and that the store hears of in a later batch; or a broadcast that tasks began from
  // that were carried over.
  return std::none_of(rounds_.all().begin(), rounds_.all().end(), [&](const auto& entry) {
    return entry.second->written_aggregate == digest || HadBefore(*entry.second, digest);
  });
}

absl::Status Broadcasts::Delete(const std::string& digest) const {
  ASSIGN_OR_RETURN(PayloadStore::BlobRemains remains, context_.payloads.DeleteBlob(digest));
  context_.receptions.Run("deleted blobs", [remains = std::move(remains)]() mutable { remains.reset(); });
  return absl::OkStatus();
}

void Broadcasts::ForgetReaders(const std::string& digest) {
  std::set<std::string> populations;
  for (const auto& [id, round] : rounds_.all()) {
    if (round->spec.broadcast_digest() == digest || HadBefore(*round, digest))
      populations.insert(round->spec.population());
  }
  readers_.Set(digest, std::move(populations));
}

}  // namespace sheaf
