#include "server/core/rounds/round_work.h"

#include <iterator>

#include "server/core/rounds/round_states.h"

namespace sheaf {

void RoundWork::MayHaveCome(LiveRound& round) {
  Forget(round);
  round.work_version = ++version_;
  by_population_[round.spec.population()].emplace(round.work_version, &round);
  round.may_have_work = true;
}

void RoundWork::WillCome(const LiveRound& round, absl::Time time) {
  // As the store counts time, in whole nanoseconds: it says that the task is due, and must not be right too early.
  delayed_.insert({absl::FromUnixNanos(absl::ToUnixNanos(time)), round.id});
}

void RoundWork::LookForDue(absl::Time now) {
  if (asked_time_ <= recovered_until_) {
    for (const auto& [id, round] : live_) MayHaveCome(*round);
  }
  asked_time_ = now;
  // The store may round the end of a backoff up: until then the task is still waiting, and is looked for once more.
  constexpr absl::Duration kRounding = absl::Milliseconds(1);
  for (auto it = delayed_.begin(); it != delayed_.end() && it->first <= now;) {
    if (const auto round = live_.find(it->second); round != live_.end()) MayHaveCome(*round->second);
    it = it->first + kRounding <= now ? delayed_.erase(it) : std::next(it);
  }
}

void RoundWork::Forget(const LiveRound& round) {
  const auto rounds = by_population_.find(round.spec.population());
  if (rounds == by_population_.end()) return;
  rounds->second.erase(round.work_version);
  if (rounds->second.empty()) by_population_.erase(rounds);
}

const RoundWork::Rounds* RoundWork::In(const std::string& population) const {
  const auto found = by_population_.find(population);
  return found == by_population_.end() ? nullptr : &found->second;
}

bool RoundWork::IsThereFor(const std::string& population) {
  for (auto rounds = by_population_.find(population); rounds != by_population_.end();
       rounds = by_population_.find(population)) {
    const LiveRound& round = *rounds->second.begin()->second;
    if (round.may_have_work && HandsOutTasks(round.state)) return true;
    Forget(round);
  }
  return false;
}

}  // namespace sheaf
