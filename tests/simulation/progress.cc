#include "tests/simulation/progress.h"

#include <algorithm>

#include "proto/time.h"
#include "storage/transitions.h"
#include "worker/backoff.h"

namespace sheaf::simulation {
namespace {

constexpr int kListAll = 1000;
constexpr int kLeases = 3;
// A worker that was told to stop comes back after a second, one that was drained is taken back within a second.
constexpr absl::Duration kMargin = absl::Seconds(2);
// To seal, twice if the first time failed, and to be looked at.
constexpr absl::Duration kEnding = absl::Seconds(3);
// With one round after the other, where few may be live at one time.
constexpr absl::Duration kAllWithin = absl::Minutes(30);

}  // namespace

void Progress::Check(absl::Time calm, absl::Time now) {
  auto live =
      server_.tasks().ListRounds({.states = {RoundState::kCollecting, RoundState::kSealing}, .limit = kListAll});
  if (!live.ok()) return journal_.Break("the store answers", "{}", live.status().ToString());
  // Where the server crashes once at a chosen point, that may be the last fault.
  const absl::Time begin = std::max(calm, server_.last_crash());
  for (const RoundRecord& round : *live) CheckRound(round, begin, now);
  if (now > calm + kAllWithin) journal_.Break("every round ends", "a program still waits for its round");
}

void Progress::CheckRound(const RoundRecord& round, absl::Time calm, absl::Time now) {
  const v1::RoundSpec* spec = server_.monitor().FindSpec(round.id);
  auto tasks = server_.tasks().ListTasks({.round = round.id, .limit = kListAll});
  if (spec == nullptr || !tasks.ok()) return journal_.Break("the store answers", "{}", tasks.status().ToString());
  const absl::Time open_time = spec->announced() ? server_.monitor().OpenTimeOf(round.id) : round.create_time;
  const absl::Time begin = std::max(open_time, calm);
  const absl::Duration retries = limits_.retry_backoff_max + Backoff::kMax + kMargin;
  const absl::Duration allowed = kLeases * FromProto(spec->lease_duration()) + retries;
  const bool is_rationed = spec->open_slots().per_worker_max() > 0;
  // One that has waited for its deadline is sealed then, and has no tasks left that say so.
  bool waits = is_rationed && round.state == RoundState::kSealing;
  for (const TaskRecord& task : *tasks) {
    waits |= task.state == TaskState::kBuried || task.state == TaskState::kFailed;
    if (IsEnded(task.state)) continue;
    if (task.state == TaskState::kQueued && is_rationed) {
      waits = true;
      continue;
    }
    statistics_.slowest_task = std::max(statistics_.slowest_task, absl::FDivDuration(now - begin, allowed));
    if (now - begin > allowed) {
      journal_.Break("every task ends in three leases", "task {} is {} {} after the last fault, with leases of {}",
                     task.id.ToString(), Name(task.state), absl::FormatDuration(now - begin),
                     absl::FormatDuration(FromProto(spec->lease_duration())));
    }
  }
  if (now > std::max(round.deadline_time, calm) + kEnding) {
    journal_.Break("every round ends", "round {} is not final {} after its deadline", round.id,
                   absl::FormatDuration(now - round.deadline_time));
  }
  if (!waits && now - begin > allowed + kEnding) {
    journal_.Break("what can be done gets done", "round {} is still live {} after the last fault", round.id,
                   absl::FormatDuration(now - begin));
  }
}

}  // namespace sheaf::simulation
