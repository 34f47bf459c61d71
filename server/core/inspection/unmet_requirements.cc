#include "server/core/inspection/unmet_requirements.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "server/core/leases/scheduler.h"
#include "server/core/rounds/round_states.h"

namespace sheaf {
namespace {

// Labels and requirements looked at in a slice: one or two milliseconds.
constexpr int64_t kStepsPerSlice = 20'000;
// Of one search: half a second of the core's thread, all together.
constexpr int kSlicesMax = 200;
constexpr size_t kRequirementsShown = 10;

}  // namespace

void UnmetRequirements::OfPopulation(const std::string& population, absl::Time now, Done done) {
  Ask(population, RoundId(), now, std::move(done));
}

void UnmetRequirements::OfRound(const RoundId& round, absl::Time now, Done done) {
  const LiveRound* live = rounds_.Find(round);
  if (live == nullptr || !HandsOutTasks(live->state)) return done(Found());
  Ask(live->spec.population(), round, now, std::move(done));
}

void UnmetRequirements::Ask(const std::string& population, const RoundId& only, absl::Time now, Done done) {
  if (num_askers_ >= context_.limits.queued_inspections_max) {
    return done(
        context_.limits.Refuse(&Limits::queued_inspections_max,
                               fmt::format("{} calls wait to hear which tasks no worker can run,", num_askers_)));
  }
  ++num_askers_;
  const auto same = std::find_if(searches_.begin(), searches_.end(), [&](const Search& search) {
    return search.population == population && search.only == only;
  });
  if (same != searches_.end()) {
    same->askers.push_back(std::move(done));
    return;
  }
  searches_.push_back({.population = population, .only = only, .askers = {std::move(done)}});
  // Most are done within a slice.
  if (searches_.size() == 1) RunSlice(now);
}

void UnmetRequirements::RunSlice(absl::Time now) {
  int64_t steps = kStepsPerSlice;
  while (!searches_.empty() && (steps > 0 || is_draining_)) {
    Search& search = searches_.front();
    const absl::StatusOr<bool> is_done = Advance(search, steps, now);
    if (is_done.ok() && !*is_done) {
      if (++search.num_slices < kSlicesMax && !is_draining_) break;
      search.found.is_partial = true;
    }
    Finish(is_done.status());
  }
  if (searches_.empty() || is_posted_) return;
  is_posted_ = true;
  context_.executor.Post([this](absl::Time at) {
    is_posted_ = false;
    RunSlice(at);
  });
}

void UnmetRequirements::Finish(const absl::Status& status) {
  Search search = std::move(searches_.front());
  searches_.pop_front();
  num_askers_ -= static_cast<int64_t>(search.askers.size());
  for (const Done& done : search.askers) {
    if (status.ok()) {
      done(search.found);
    } else {
      done(status);
    }
  }
}

const LiveRound* UnmetRequirements::NextRound(const Search& search) const {
  if (!search.only.empty()) {
    return search.round.empty() ? rounds_.Find(search.only) : nullptr;
  }
  // Rounds that come meanwhile may be left out, or looked at: each at most once.
  for (auto it = rounds_.all().upper_bound(search.round); it != rounds_.all().end(); ++it) {
    if (it->second->spec.population() == search.population) return it->second.get();
  }
  return nullptr;
}

absl::StatusOr<bool> UnmetRequirements::Advance(Search& search, int64_t& steps, absl::Time now) const {
  const LiveRound* round = search.round.empty() ? nullptr : rounds_.Find(search.round);
  while (steps > 0) {
    if (round == nullptr || !HandsOutTasks(round->state)) {
      round = NextRound(search);
      if (round == nullptr) return true;
      --steps;
      search.round = round->id;
      search.worker = WorkerName();
      search.is_met.assign(round->requirements.size(), false);
      search.num_met = 0;
      continue;
    }
    if (!LookThroughWorkers(*round, search, steps, now)) return false;
    RETURN_IF_ERROR(FinishRound(*round, search));
    // Next to nothing each.
    steps -= static_cast<int64_t>(search.is_met.size() / 16);
    round = nullptr;
  }
  return false;
}

bool UnmetRequirements::LookThroughWorkers(const LiveRound& round, Search& search, int64_t& steps,
                                           absl::Time now) const {
  workers_.ForEach(search.population, search.worker, [&](const WorkerProfile& worker) {
    if (search.num_met == search.is_met.size() || steps <= 0) return false;
    search.worker = worker.name;
    --steps;
    if (worker.is_draining || now - worker.last_seen_time > kSeenLately || !Offers(worker, round.spec.computation())) {
      return true;
    }
    const RequirementIndex::Match match =
        round.requirements.FulfilledBy(worker.labels, {.candidates_max = kStepsPerSlice, .first = 0});
    search.found.is_partial = search.found.is_partial || !match.is_complete;
    steps -= static_cast<int64_t>(worker.labels.size()) + match.num_candidates;
    for (const int32_t number : match.numbers) {
      if (search.is_met[static_cast<size_t>(number)]) continue;
      search.is_met[static_cast<size_t>(number)] = true;
      ++search.num_met;
    }
    return true;
  });
  return steps > 0 || search.num_met == search.is_met.size();
}

absl::Status UnmetRequirements::FinishRound(const LiveRound& round, Search& search) const {
  if (search.num_met == search.is_met.size()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int64_t> queued, context_.store.CountQueued(round.id));
  Found& found = search.found;
  for (size_t number = 0; number < search.is_met.size(); ++number) {
    if (search.is_met[number]) continue;
    ++found.num_requirements;
    found.num_tasks += queued[number];
    if (found.requirements.size() < kRequirementsShown) {
      found.requirements.push_back(round.requirements.texts()[number]);
    }
  }
  return absl::OkStatus();
}

void UnmetRequirements::BeginDrain(absl::Time now) {
  is_draining_ = true;
  RunSlice(now);
}

}  // namespace sheaf
