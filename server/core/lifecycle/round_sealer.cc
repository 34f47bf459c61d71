#include "server/core/lifecycle/round_sealer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "server/core/rounds/attempt_placement.h"
#include "server/core/rounds/critical_path.h"
#include "server/stored/attempt_timings.h"
#include "server/stored/round_release.h"

namespace sheaf {
namespace {

// A disk that was full may have room by then.
constexpr absl::Duration kAgainAfter = absl::Seconds(1);

}  // namespace

void RoundSealer::Begin(LiveRound& round, absl::Time now) {
  carry_over_.Move(round, now);
  if (const absl::Status moved = changes_.Make(round, {.to = RoundState::kSealing, .now = now}); !moved.ok()) {
    LogError("round {} cannot be sealed: {}", round.id, moved.ToString());
    return;
  }
  round.closed_time = now;
  // In a batch of its own: behind the folds that wait for this batch's commit, and only if it is durable. A crash
  // before the commit leaves the round COLLECTING, without the contribution that was the last; one after it leaves it
  // SEALING, and the next start goes on here.
  context_.executor.Defer([this, id = round.id](const absl::Status& commit) {
    if (commit.ok()) GoOn(id);
  });
}

void RoundSealer::GoOn(const RoundId& id) {
  context_.executor.Post([this, id](absl::Time now) { Release(id, now); });
}

ReleaseSink& RoundSealer::SinkOf(const LiveRound& round) const {
  return round.spec.release() == v1::PARTIAL_AGGREGATE ? sinks_.partial_aggregate : sinks_.values;
}

void RoundSealer::TryAgain(const RoundId& id, absl::Time now) { again_[id] = now + kAgainAfter; }

void RoundSealer::Tick(absl::Time now) {
  for (auto it = again_.begin(); it != again_.end();) {
    if (it->second > now) {
      ++it;
      continue;
    }
    GoOn(it->first);
    it = again_.erase(it);
  }
}

absl::Time RoundSealer::NextTick() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, time] : again_) next = std::min(next, time);
  return next;
}

void RoundSealer::Release(const RoundId& id, absl::Time now) {
  LiveRound* round = rounds_.Find(id);
  if (round == nullptr || round->state != RoundState::kSealing || round->is_releasing) return;
  // Not again by one that is tried again.
  if (round->committed_time < round->closed_time) round->committed_time = now;
  if (round->folded == round->recorded && round->folded_time < round->closed_time) round->folded_time = now;
  // All that the store has accepted, and nothing else: nothing is recorded any more, because the round is SEALING, and
  // what was recorded has been submitted behind the commit that recorded it.
  SHEAF_CHECK(round->submitted == round->recorded, "round {} seals {} of {} contributions", id, round->submitted,
              round->recorded);
  if (round->num_clients < round->spec.min_clients()) {
    return changes_.End(*round, RoundState::kFailed,
                        fmt::format("it combines {} clients; nothing is released below min_clients = {}",
                                    round->num_clients, round->spec.min_clients()),
                        now);
  }
  round->is_releasing = true;
  SinkOf(*round).Release(round->strand, [this, id](absl::StatusOr<v1::Aggregate> aggregate, absl::Time at) {
    OnReleased(id, std::move(aggregate), at);
  });
}

void RoundSealer::OnReleased(const RoundId& id, absl::StatusOr<v1::Aggregate> aggregate, absl::Time now) {
  LiveRound* round = rounds_.Find(id);
  if (round == nullptr) return;
  round->is_releasing = false;
  if (round->state != RoundState::kSealing) return;
  if (absl::IsOutOfRange(aggregate.status())) {
    return changes_.End(*round, RoundState::kFailed,
                        fmt::format("the aggregate cannot be released: {}", std::string(aggregate.status().message())),
                        now);
  }
  if (!aggregate.ok()) {
    // The round stays SEALING; its deadline no longer applies.
    LogError("round {} cannot write its aggregate, trying again: {}", id, aggregate.status().ToString());
    return TryAgain(id, now);
  }
  // From here on nobody deletes a blob of these bytes (Broadcasts::IsUnused). An older one may have been deleted as
  // unused after it was replaced by this one: then it is written again.
  round->written_aggregate = aggregate->digest();
  if (!SinkOf(*round).Has(*aggregate)) return Release(id, now);
  Finish(*round, *std::move(aggregate), now);
}

PathTask RoundSealer::LastTask(const LiveRound& round) const {
  const auto look = [&]() -> absl::StatusOr<PathTask> {
    ASSIGN_OR_RETURN(const std::vector<ContributionRecord> last,
                     context_.store.ListContributions(round.id, round.recorded - 1, 1));
    if (last.empty()) return absl::DataLossError("its last contribution is not recorded");
    const TaskId& task = last.front().task;
    ASSIGN_OR_RETURN(const std::vector<AttemptRecord> attempts, context_.store.ListAttempts(task));
    PathTask path_task{.index = task.index};
    for (const AttemptRecord& attempt : attempts) {
      ASSIGN_OR_RETURN(const AttemptTimings timings, DecodeTimings(task, attempt));
      path_task.attempts.push_back({.number = attempt.number,
                                    .worker = attempt.worker.value(),
                                    .leased = attempt.lease_time,
                                    .ended = attempt.end_time,
                                    .outcome = attempt.outcome,
                                    .intervals = IntervalsOf(timings, attempt.end_time - attempt.lease_time)});
    }
    return path_task;
  };
  absl::StatusOr<PathTask> task = look();
  if (task.ok()) return *std::move(task);
  // A result is not held back for the story of how it came about.
  LogWarning("round {}: nobody can say where its time went: {}", round.id, task.status().ToString());
  return {};
}

void RoundSealer::Finish(LiveRound& round, v1::Aggregate aggregate, absl::Time now) {
  SHEAF_CHECK(round.folded == round.recorded && aggregate.num_contributions() == round.recorded,
              "round {} releases {} of {} contributions", round.id, aggregate.num_contributions(), round.recorded);
  RoundRelease release{.aggregate = std::move(aggregate),
                       .critical_path = CriticalPath({.created = round.create_time,
                                                      .closed = round.closed_time,
                                                      .committed = round.committed_time,
                                                      .folded = round.folded_time,
                                                      .ended = now},
                                                     LastTask(round))};
  release.phases = SumPhases(release.critical_path);
  for (const auto& [name, sum] : round.progress.metrics) {
    release.metrics[name] = sum / static_cast<double>(std::max<int64_t>(release.aggregate.num_clients(), 1));
  }
  // The blob is on disk, flushed, before the store names it. A crash between the two leaves a blob that nobody refers
  // to, and a round that is SEALING: the next start writes the same blob again.
  const absl::Status moved = changes_.Make(round, {.to = RoundState::kSucceeded,
                                                   .now = now,
                                                   .aggregate = EncodeRelease(release),
                                                   .aggregate_digest = release.aggregate.digest()});
  if (!moved.ok()) return TryAgain(round.id, now);
  context_.figures.seal_seconds.Observe(absl::ToDoubleSeconds(now - round.closed_time));
  LogInfo("round {} SUCCEEDED with {} contributions of {} clients", round.id, release.aggregate.num_contributions(),
          release.aggregate.num_clients());
}

}  // namespace sheaf
