#include "server/core/leases/scheduler.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "server/core/rounds/round_states.h"

namespace sheaf {
namespace {

// Jobs of one population whose turn is remembered; of more, those served longest ago are forgotten, and come first
// among themselves in the order of their rounds.
constexpr size_t kJobsMax = 4096;
// Populations; of more, those that have no live round are forgotten.
constexpr size_t kPopulationsMax = 1024;

}  // namespace

bool Offers(const WorkerProfile& worker, const v1::Computation& computation) {
  return std::any_of(worker.computations.begin(), worker.computations.end(),
                     [&](const v1::OfferedComputation& offered) {
                       return offered.name() == computation.name() && offered.version() >= computation.version_min();
                     });
}

std::vector<LiveRound*> Scheduler::RoundsFor(const WorkerProfile& worker, const LiveRounds& rounds,
                                             const Look& look) const {
  std::vector<LiveRound*> candidates;
  const RoundWork::Rounds* population = rounds.work().In(worker.population);
  if (population == nullptr) return candidates;
  for (auto it = population->upper_bound(look.since); it != population->end(); ++it) {
    LiveRound* round = it->second;
    if (round->may_have_work && HandsOutTasks(round->state) && WaitsForBroadcast(round->state) == look.for_announced &&
        Offers(worker, round->spec.computation())) {
      candidates.push_back(round);
    }
  }
  if (candidates.size() < 2) return candidates;
  const auto turns = last_served_.find(worker.population);
  const auto key = [&](const LiveRound* round) {
    uint64_t served = 0;
    if (turns != last_served_.end()) {
      const auto found = turns->second.find(round->spec.job());
      if (found != turns->second.end()) served = found->second;
    }
    return std::tuple(round->spec.priority(), served, round->create_time, std::string_view(round->id.value()));
  };
  using Key = decltype(key(candidates.front()));
  std::vector<std::pair<Key, LiveRound*>> order;
  order.reserve(candidates.size());
  for (LiveRound* round : candidates) order.emplace_back(key(round), round);
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) candidates[i] = order[i].second;
  return candidates;
}

void Scheduler::Served(const LiveRound& round, const LiveRounds& rounds) {
  Turns& turns = last_served_[round.spec.population()];
  turns[round.spec.job()] = ++num_served_;
  if (turns.size() > kJobsMax) ForgetOldest(turns);
  if (last_served_.size() <= kPopulationsMax) return;
  std::erase_if(last_served_, [&](const auto& entry) { return !rounds.HasAny(entry.first); });
}

void Scheduler::ForgetOldest(Turns& turns) {
  std::vector<uint64_t> served;
  for (const auto& [job, turn] : turns) served.push_back(turn);
  const auto middle = served.begin() + static_cast<std::ptrdiff_t>(served.size() / 2);
  std::nth_element(served.begin(), middle, served.end());
  std::erase_if(turns, [oldest_kept = *middle](const auto& entry) { return entry.second < oldest_kept; });
}

size_t Scheduler::size() const {
  size_t jobs = 0;
  for (const auto& [population, turns] : last_served_) jobs += turns.size();
  return jobs;
}

}  // namespace sheaf
