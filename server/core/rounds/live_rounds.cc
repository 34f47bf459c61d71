#include "server/core/rounds/live_rounds.h"

#include <fmt/format.h>

#include "base/check.h"
#include "server/core/rounds/round_states.h"
#include "storage/transitions.h"

namespace sheaf {

LiveRound& LiveRounds::Add(std::unique_ptr<LiveRound> added) {
  LiveRound& round = *added;
  const bool is_new = by_id_.emplace(round.id, std::move(added)).second;
  SHEAF_CHECK(is_new, "round {} is live already", round.id);
  num_rounds_.Add(round.spec.population(), 1);
  if (round.spec.announced()) num_announced_.Add(round.spec.population(), 1);
  num_tasks_.Add(round.spec.population(), round.num_tasks);
  spooled_bytes_.Add(round.spec.population(), round.spool_disk_bytes);
  if (EndsAtDeadline(round.state)) AwaitDeadline(round);
  if (!round.spec.continues().empty()) successors_.emplace(RoundId(round.spec.continues()), round.id);
  work_.MayHaveCome(round);
  queue_.Begin(round);
  return round;
}

std::unique_ptr<LiveRound> LiveRounds::Remove(const RoundId& id) {
  const auto found = by_id_.find(id);
  SHEAF_CHECK(found != by_id_.end(), "round {} is not live", id);
  std::unique_ptr<LiveRound> round = std::move(found->second);
  by_id_.erase(found);
  successors_.erase({RoundId(round->spec.continues()), id});
  work_.Forget(*round);
  queue_.End(*round);
  deadlines_.erase({round->deadline_time, id});
  num_rounds_.Add(round->spec.population(), -1);
  if (round->spec.announced()) num_announced_.Add(round->spec.population(), -1);
  num_tasks_.Add(round->spec.population(), -round->num_tasks);
  spooled_bytes_.Add(round->spec.population(), -round->spool_disk_bytes);
  return round;
}

LiveRound* LiveRounds::Find(const RoundId& id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second.get();
}

LiveRound* LiveRounds::SuccessorOf(const RoundId& id) {
  // One that was sealed, or is not opened any more, may have left its place to another.
  for (auto it = successors_.lower_bound({id, RoundId()}); it != successors_.end() && it->first == id; ++it) {
    LiveRound* const round = Find(it->second);
    if (round != nullptr && HandsOutTasks(round->state)) return round;
  }
  return nullptr;
}

void LiveRounds::OnCarriedOver(LiveRound& from, LiveRound& to, const Carried& carried) {
  SetNumTasks(to, to.num_tasks + carried.num_tasks);
  queue_.OnCarriedOver(from, to, carried.num_tasks, carried.num_second);
}

void LiveRounds::SetNumTasks(LiveRound& round, int64_t num_tasks) {
  num_tasks_.Add(round.spec.population(), num_tasks - round.num_tasks);
  round.num_tasks = num_tasks;
}

absl::Status LiveRounds::CheckRoom(const std::string& population, int64_t num_tasks) const {
  const int64_t percent = limits_.population_percent_max;
  if (num_rounds_.total() >= limits_.live_rounds_max) {
    return limits_.Refuse(&Limits::live_rounds_max, fmt::format("{} rounds are live,", num_rounds_.total()));
  }
  if (num_rounds_.Of(population) >= num_rounds_.Max(population, limits_.live_rounds_max, percent)) {
    return limits_.RefuseShare(
        &Limits::live_rounds_max,
        fmt::format("{} rounds of population '{}' are live: it may have", num_rounds_.Of(population), population));
  }
  if (num_tasks_.total() + num_tasks > limits_.live_tasks_max) {
    return limits_.Refuse(
        &Limits::live_tasks_max,
        fmt::format("the live rounds have {} tasks, and {} more would be over", num_tasks_.total(), num_tasks));
  }
  if (num_tasks_.Of(population) + num_tasks > num_tasks_.Max(population, limits_.live_tasks_max, percent)) {
    return limits_.RefuseShare(
        &Limits::live_tasks_max,
        fmt::format("the live rounds of population '{}' have {} tasks, and {} more would be over", population,
                    num_tasks_.Of(population), num_tasks));
  }
  return absl::OkStatus();
}

void LiveRounds::MoveDeadline(LiveRound& round, absl::Time deadline_time) {
  deadlines_.erase({round.deadline_time, round.id});
  round.deadline_time = deadline_time;
  AwaitDeadline(round);
}

std::vector<RoundId> LiveRounds::TakeDue(absl::Time until) {
  std::vector<RoundId> due;
  for (auto it = deadlines_.begin(); it != deadlines_.end() && it->first <= until; it = deadlines_.erase(it)) {
    due.push_back(it->second);
  }
  return due;
}

void LiveRounds::CountSpooled(LiveRound& round, int64_t bytes) {
  round.spool_disk_bytes += bytes;
  SHEAF_CHECK(round.spool_disk_bytes >= 0, "the spool of round {} has less than nothing", round.id);
  spooled_bytes_.Add(round.spec.population(), bytes);
  queue_.OnSpooled(round, bytes);
}

}  // namespace sheaf
