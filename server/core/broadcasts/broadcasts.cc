#include "server/core/broadcasts/broadcasts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// After the store could not say what some of the broadcasts are.
constexpr absl::Duration kReadAgain = absl::Seconds(1);

bool HadBefore(const LiveRound& round, const std::string& digest) {
  return std::find(round.broadcasts_before.begin(), round.broadcasts_before.end(), digest) !=
         round.broadcasts_before.end();
}

}  // namespace

absl::Status Broadcasts::Recover(absl::Time now) {
  // Those that were to be deleted soon are known from the store alone.
  ASSIGN_OR_RETURN(const std::vector<std::string> former, context_.store.ListFormerBroadcasts());
  std::set<std::string> known;
  for (const auto& [id, round] : rounds_.all()) {
    if (!round->spec.broadcast_digest().empty()) known.insert(round->spec.broadcast_digest());
    known.insert(round->broadcasts_before.begin(), round->broadcasts_before.end());
  }
  if (!former.empty()) {
    ASSIGN_OR_RETURN(const std::vector<PayloadStore::BlobInfo> blobs, context_.payloads.ListBlobs());
    for (const PayloadStore::BlobInfo& blob : blobs) {
      if (!std::binary_search(former.begin(), former.end(), blob.digest)) continue;
      Retire(blob.digest, blob.size_bytes, now);
      known.insert(blob.digest);
    }
  }
  if (known.empty()) return absl::OkStatus();
  readers_.SetComplete(false);
  ReadBases(std::move(known));
  return absl::OkStatus();
}

void Broadcasts::ReadBases(std::set<std::string> digests) {
  context_.receptions.Run("broadcasts", [this, digests = std::move(digests)] {
    FoundBases found;
    for (const std::string& digest : digests) found[digest] = open_blobs_.FindBases(digest);
    context_.executor.Post([this, found = std::move(found)](absl::Time now) { OnBasesRead(found, now); });
  });
}

void Broadcasts::OnBasesRead(const FoundBases& found, absl::Time now) {
  unread_.clear();
  for (const auto& [digest, bases] : found) {
    const absl::Status noted = bases.ok() ? Note(digest, *bases) : bases.status();
    if (noted.ok() || absl::IsNotFound(noted)) continue;
    LogWarning("broadcast {} cannot be read: {}", digest, noted.ToString());
    // Of one that is damaged, or lies upon what has gone, no task will get anything.
    if (!absl::IsDataLoss(noted) && !absl::IsInvalidArgument(noted)) unread_.insert(digest);
  }
  read_again_ = now + kReadAgain;
  if (!unread_.empty()) return;
  for (const auto& [id, round] : rounds_.all()) {
    OnRoundAdded(round->spec.broadcast_digest(), round->spec.population());
    for (const std::string& before : round->broadcasts_before) OnRoundAdded(before, round->spec.population());
  }
  readers_.SetComplete(true);
}

absl::Status Broadcasts::Note(const std::string& digest, const std::vector<std::string>& bases) {
  if (bases_.contains(digest)) return absl::OkStatus();
  for (const std::string& base : bases) {
    // It is kept, and so is what is below it.
    if (num_patches_.contains(base)) break;
    const absl::Status stored = context_.payloads.GetBlobSize(base).status();
    if (stored.ok()) continue;
    if (!absl::IsNotFound(stored)) return stored;
    // While it was looked at, it was needed by nobody.
    return absl::InvalidArgumentError(fmt::format(
        "the broadcast is a patch (sheaf.base) of {}, which has just been deleted; upload the whole one", base));
  }
  const std::string* patch = &digest;
  for (const std::string& base : bases) {
    // What is below it is known, too.
    if (!bases_.try_emplace(*patch, base).second) return absl::OkStatus();
    ++num_patches_[base];
    patch = &base;
  }
  bases_.try_emplace(*patch);
  return absl::OkStatus();
}

void Broadcasts::Learn(const std::string& digest, std::function<void(const absl::Status& learnt, absl::Time now)> then,
                       absl::Time now) {
  if (!IsSha256Hex(digest) || bases_.contains(digest)) return then(absl::OkStatus(), now);
  context_.receptions.Run("broadcast " + digest, [this, digest, then = std::move(then)] {
    context_.executor.Post([this, digest, then, bases = open_blobs_.FindBases(digest)](absl::Time at) {
      // Whoever names one that is not there, or has just gone, hears of it elsewhere.
      const bool is_gone = absl::IsNotFound(bases.status()) || (bases.ok() && !context_.payloads.HasBlob(digest));
      if (is_gone) return then(absl::OkStatus(), at);
      then(bases.ok() ? Note(digest, *bases) : bases.status(), at);
    });
  });
}

void Broadcasts::Touch(const std::string& digest, absl::Duration keep, absl::Time now) {
  std::erase_if(told_, [now](const auto& entry) { return entry.second.until <= now; });
  Told& told = told_.try_emplace(digest, Told{.until = now}).first->second;
  told.until = std::max(told.until, now + keep);
  ++told.num_awaited;
  const auto found = retired_.find(digest);
  if (found != retired_.end()) found->second.delete_time = told.until;
}

absl::Status Broadcasts::CheckStored(const std::string& digest) {
  if (digest.empty()) return absl::OkStatus();
  const absl::StatusOr<int64_t> size_bytes = context_.payloads.GetBlobSize(digest);
  if (size_bytes.ok()) last_found_ = {digest, *size_bytes};
  if (!absl::IsNotFound(size_bytes.status())) return size_bytes.status();
  return absl::NotFoundError(fmt::format(
      "the broadcast {} was not uploaded; upload it first (sheaf round create --broadcast FILE does both)", digest));
}

void Broadcasts::OnRoundAdded(const std::string& digest, const std::string& population) {
  for (std::string each = digest; !each.empty();) {
    readers_.Add(each, population);
    const auto base = bases_.find(each);
    each = base == bases_.end() ? std::string() : base->second;
  }
}

void Broadcasts::OnRoundCreated(const std::string& digest, absl::Time now) {
  if (!digest.empty() && last_found_.first == digest) sizes_.insert(last_found_);
  context_.executor.Defer([this, digest, now](const absl::Status& commit) {
    const auto told = told_.find(digest);
    if (!commit.ok() || told == told_.end()) return;
    told->second.until = std::min(told->second.until, now + context_.limits.broadcast_linger);
    told->second.num_awaited = std::max<int64_t>(told->second.num_awaited - 1, 0);
  });
}

void Broadcasts::OnRoundEnded(const LiveRound& round, absl::Time now) {
  for (const std::string& before : round.broadcasts_before) Retire(before, now);
  const std::string& digest = round.spec.broadcast_digest();
  if (!digest.empty()) ++Retire(digest, now).num_rounds;
  LimitLingering(digest, now);
}

Broadcasts::Retired& Broadcasts::Retire(const std::string& digest, absl::Time now) {
  const auto found = sizes_.find(digest);
  // One that is not known to be there takes no room.
  const int64_t size_bytes = found != sizes_.end() ? found->second : context_.payloads.GetBlobSize(digest).value_or(0);
  return Retire(digest, size_bytes, now);
}

Broadcasts::Retired& Broadcasts::Retire(const std::string& digest, int64_t size_bytes, absl::Time now) {
  Retired& retired = retired_[digest];
  retired.delete_time = now + context_.limits.broadcast_linger;
  retired.size_bytes = size_bytes;
  ++retired.num_times;
  return retired;
}

std::set<std::string> Broadcasts::StillHad() const {
  std::set<std::string> had;
  const auto note = [&](const std::string& digest) {
    if (retired_.contains(digest)) had.insert(digest);
  };
  for (const auto& [id, round] : rounds_.all()) {
    note(round->spec.broadcast_digest());
    for (const std::string& before : round->broadcasts_before) note(before);
  }
  return had;
}

void Broadcasts::LimitLingering(const std::string& newest, absl::Time now) {
  const auto lingers = [now](const Retired& retired) { return retired.delete_time > now; };
  int64_t total_bytes = 0;
  for (const auto& [digest, retired] : retired_) total_bytes += lingers(retired) ? retired.size_bytes : 0;
  if (total_bytes <= context_.limits.lingering_bytes_max) return;
  const std::set<std::string> had = StillHad();
  std::vector<std::pair<absl::Time, std::string>> earliest;
  for (const auto& [digest, retired] : retired_) {
    if (!lingers(retired)) continue;
    if (had.contains(digest)) {
      total_bytes -= retired.size_bytes;
      continue;
    }
    const auto told = told_.find(digest);
    const bool is_awaited = told != told_.end() && told->second.until > now && told->second.num_awaited > 0;
    // Who names one in round after round need not ask whether it is there.
    const bool is_named_again = retired.num_rounds > 1;
    const bool is_base = num_patches_.contains(digest);
    if (digest != newest && !is_awaited && !is_named_again && !is_base)
      earliest.emplace_back(retired.delete_time, digest);
  }
  std::sort(earliest.begin(), earliest.end());
  for (const auto& [time, digest] : earliest) {
    if (total_bytes <= context_.limits.lingering_bytes_max) return;
    told_.erase(digest);
    Retired& retired = retired_.at(digest);
    retired.delete_time = now;
    total_bytes -= retired.size_bytes;
  }
}

void Broadcasts::OnRoundUndone(const std::string& digest) {
  if (!digest.empty() && !retired_.contains(digest)) ForgetReaders(digest);
}

void Broadcasts::Tick(absl::Time now) {
  // Until it is known what is a patch of what.
  if (!readers_.is_complete()) {
    if (!unread_.empty() && now >= read_again_) ReadBases(std::exchange(unread_, {}));
    return;
  }
  std::vector<std::pair<std::string, int64_t>> due;
  for (auto& [digest, retired] : retired_) {
    if (retired.delete_time > now) continue;
    due.emplace_back(digest, retired.num_times);
    retired.delete_time = now + context_.limits.broadcast_linger;
  }
  if (due.empty()) return;
  // What this batch says of the rounds that had it may yet come to nothing.
  context_.executor.Defer([this, due = std::move(due), now](const absl::Status& commit) {
    if (!commit.ok()) return;
    for (const auto& [digest, num_times] : due) {
      const auto retired = retired_.find(digest);
      // Another round that had it has ended meanwhile.
      if (retired == retired_.end() || retired->second.num_times != num_times) continue;
      if (IsUnused(digest, now)) {
        const absl::Status status = Delete(digest, now);
        if (!status.ok()) LogWarning("broadcast {} stays on disk: {}", digest, status.ToString());
      }
      retired_.erase(digest);
      ForgetReaders(digest);
    }
  });
}

absl::Time Broadcasts::NextTick() const {
  absl::Time next = absl::InfiniteFuture();
  if (!readers_.is_complete()) return unread_.empty() ? next : read_again_;
  for (const auto& [digest, retired] : retired_) next = std::min(next, retired.delete_time);
  return next;
}

bool Broadcasts::IsUnused(const std::string& digest, absl::Time now) const {
  // Until it is known what is a patch of what, anything may be needed.
  if (!readers_.is_complete() || num_patches_.contains(digest)) return false;
  const absl::StatusOr<TaskStore::BlobUse> use = context_.store.GetBlobUse(digest);
  if (!use.ok() || *use == TaskStore::BlobUse::kCurrent) return false;
  const auto told = told_.find(digest);
  if (told != told_.end() && told->second.until > now) return false;
  // An aggregate that was written, and that the store hears of in a later batch; or a broadcast that tasks began from
  // that were carried over.
  return std::none_of(rounds_.all().begin(), rounds_.all().end(), [&](const auto& entry) {
    return entry.second->written_aggregate == digest || HadBefore(*entry.second, digest);
  });
}

absl::Status Broadcasts::Delete(const std::string& digest, absl::Time now) {
  ASSIGN_OR_RETURN(PayloadStore::BlobRemains remains, context_.payloads.DeleteBlob(digest));
  context_.receptions.Run("deleted blobs", [remains = std::move(remains)]() mutable { remains.reset(); });
  const auto known = bases_.find(digest);
  if (known == bases_.end()) return absl::OkStatus();
  const std::string base = std::move(known->second);
  bases_.erase(known);
  const auto patched = num_patches_.find(base);
  if (patched == num_patches_.end() || --patched->second > 0) return absl::OkStatus();
  num_patches_.erase(patched);
  // It has stayed for this one; or for longer, by itself.
  if (!retired_.contains(base)) Retire(base, now).delete_time = now;
  return absl::OkStatus();
}

void Broadcasts::ForgetReaders(const std::string& digest) {
  if (num_patches_.contains(digest)) return;
  std::set<std::string> populations;
  for (const auto& [id, round] : rounds_.all()) {
    if (round->spec.broadcast_digest() == digest || HadBefore(*round, digest))
      populations.insert(round->spec.population());
  }
  if (populations.empty()) sizes_.erase(digest);
  readers_.Set(digest, std::move(populations));
}

}  // namespace sheaf
