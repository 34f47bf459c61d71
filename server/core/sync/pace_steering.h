// PaceSteering: when a worker comes back that did not get a task and does not wait for one. A few come back within a
// second. Of many each population gets as many calls a second as its tasks need (TaskDemand), however many workers it
// has: their calls are spread by appointments (ArrivalCalendar). Without tasks, it gets idle_calls_per_second, so that
// somebody comes soon when there are some.
//
//   PaceSteering steering(limits);
//   steering.OnCall("default", {.num_leases = 0, .now = now}, num_queued);   // Asked now and then how much is queued.
//   const PaceSteering::Next next = steering.NextCall("default", {.min = min, .max = max}, now);
//   // The worker is told to come between next.range.min and .max from now, and next.appointment is remembered with it.
//
// O(1) a call, beside one look at a calendar a second. Memory is bounded: kPopulationsMax calendars; a population
// beyond takes the place of one that nobody calls for any more, or is not steered. Times do not go back by more than a
// clock is set back. Not thread-safe: the core's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "server/core/limits/limits.h"
#include "server/core/sync/arrival_calendar.h"
#include "server/core/sync/pace.h"
#include "server/core/sync/task_demand.h"

namespace sheaf {

class PaceSteering {
 public:
  static constexpr size_t kPopulationsMax = 64;
  // There is none.
  static constexpr absl::Time kNoAppointment = absl::InfinitePast();

  // `limits` outlives this.
  explicit PaceSteering(const Limits& limits) : limits_(limits) {}

  struct Call {
    // That it leaves with; and when it was to come, as far as that is known.
    int64_t num_leases = 0;
    absl::Time appointment = kNoAppointment;
    absl::Time now;
  };
  // A worker called that could take a task, and is answered. `num_queued`: the tasks that wait in the population, what
  // this call took apart; asked for once a second at most.
  void OnCall(const std::string& population, const Call& call, absl::FunctionRef<int64_t()> num_queued);

  struct Next {
    PaceRange range;
    absl::Time appointment = kNoAppointment;
  };
  // When whoever is answered now comes next: within `soon` if the population's calls have room then, else later.
  Next NextCall(const std::string& population, const PaceRange& soon, absl::Time now);

 private:
  struct Population {
    ArrivalCalendar calendar;
    TaskDemand demand;
    absl::Time called;
    // When it is next asked what is queued.
    absl::Time next_look = absl::InfinitePast();
  };
  // Null if there are too many.
  Population* Of(const std::string& population, absl::Time now);
  double PerSecond(const Population& population) const;

  const Limits& limits_;
  std::map<std::string, Population> populations_;
};

}  // namespace sheaf
