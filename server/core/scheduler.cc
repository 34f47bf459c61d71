#include "server/core/scheduler.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "server/core/round_spec.h"

namespace sheaf {

bool Offers(const WorkerProfile& worker, const v1::Computation& computation) {
  return std::any_of(worker.computations.begin(), worker.computations.end(),
                     [&](const v1::OfferedComputation& offered) {
                       return offered.name() == computation.name() && offered.version() >= computation.version_min();
                     });
}

std::vector<std::string> FulfilledBy(const WorkerProfile& worker, const std::vector<std::string>& requirements) {
  std::vector<std::string> fulfilled;
  for (const std::string& requirement : requirements) {
    if (Fulfils(worker.labels, requirement)) fulfilled.push_back(requirement);
  }
  return fulfilled;
}

std::vector<LiveRound*> Scheduler::RoundsFor(const WorkerProfile& worker, const RoundManager& rounds) const {
  std::vector<LiveRound*> candidates;
  for (const auto& [id, round] : rounds.live()) {
    if (round->may_have_work && round->state == RoundState::kCollecting &&
        round->spec.population() == worker.population && Offers(worker, round->spec.computation())) {
      candidates.push_back(round.get());
    }
  }
  const auto key = [this](const LiveRound* round) {
    const auto found = last_served_.find(round->spec.job());
    const uint64_t served = found == last_served_.end() ? 0 : found->second;
    return std::tuple(round->spec.priority(), served, round->create_time, std::string_view(round->id.value()));
  };
  std::sort(candidates.begin(), candidates.end(),
            [&](const LiveRound* a, const LiveRound* b) { return key(a) < key(b); });
  return candidates;
}

void Scheduler::Served(const LiveRound& round) { last_served_[round.spec.job()] = ++num_served_; }

}  // namespace sheaf
