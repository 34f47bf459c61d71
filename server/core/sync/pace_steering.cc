#include "server/core/sync/pace_steering.h"

#include <algorithm>

namespace sheaf {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);
// A population that nobody called for in this time may lose its place to another.
constexpr absl::Duration kQuietAfter = absl::Minutes(1);

}  // namespace

void PaceSteering::OnCall(const std::string& population, const Call& call, absl::FunctionRef<int64_t()> num_queued) {
  Population* const steered = Of(population, call.now);
  if (steered == nullptr) return;
  steered->demand.CountLeased(call.num_leases);
  // Also if the clock was set back.
  if (call.now >= steered->next_look || call.now < steered->next_look - kLookEvery) {
    steered->demand.Look(num_queued(), call.now);
    steered->next_look = call.now + kLookEvery;
  }
  steered->calendar.Advance(call.now, PerSecond(*steered));
  // It comes before its time, and is given another.
  steered->calendar.Cancel(call.appointment);
  steered->calendar.CountCall();
}

PaceSteering::Next PaceSteering::NextCall(const std::string& population, const PaceRange& soon, absl::Time now) {
  Population* const steered = Of(population, now);
  if (steered == nullptr) return {.range = soon};
  steered->calendar.Advance(now, PerSecond(*steered));
  const absl::Time begin = steered->calendar.Book(now + soon.min);
  if (begin <= now + soon.max) return {.range = soon, .appointment = begin};
  return {.range = {.min = begin - now, .max = begin + absl::Seconds(1) - now}, .appointment = begin};
}

PaceSteering::Population* PaceSteering::Of(const std::string& population, absl::Time now) {
  auto found = populations_.find(population);
  if (found == populations_.end()) {
    if (populations_.size() == kPopulationsMax) {
      const auto quietest =
          std::min_element(populations_.begin(), populations_.end(),
                           [](const auto& a, const auto& b) { return a.second.called < b.second.called; });
      if (now - quietest->second.called < kQuietAfter) return nullptr;
      populations_.erase(quietest);
    }
    found = populations_
                .emplace(population,
                         Population{.calendar = ArrivalCalendar(limits_.next_call_max, now), .demand = TaskDemand(now)})
                .first;
  }
  found->second.called = now;
  return &found->second;
}

double PaceSteering::PerSecond(const Population& population) const {
  // With none at all nobody would come again.
  const int64_t idle = std::max<int64_t>(limits_.idle_calls_per_second, 1);
  return std::max(population.demand.CallsPerSecond(), static_cast<double>(idle));
}

}  // namespace sheaf
