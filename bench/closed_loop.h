// ClosedLoop: N callers, each with one call open at a time, for a while.
//
//   ASSIGN_OR_RETURN(LoopResult result, RunClosedLoop(clock, callers, {.duration = absl::Seconds(2)},
//                                                     [&] { return server.cpu_time(); }));
//
// A caller's Next sends one call and tells, when it was answered, how many units of work that was.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace sheaf::bench {

class Caller {
 public:
  using Answered = std::function<void(absl::StatusOr<int64_t> units)>;
  virtual ~Caller() = default;
  virtual void Next(Answered answered) = 0;
};

struct LoopOptions {
  absl::Duration warm_up = absl::Seconds(0.3);
  absl::Duration duration = absl::Seconds(2);
  // Equal ones of it, whose units are counted apart.
  int parts = 1;
  // Of whoever else works for it.
  std::function<absl::Duration()> other_cpu_time = [] { return absl::ZeroDuration(); };
};

struct LoopResult {
  int64_t num_calls = 0;
  int64_t num_units = 0;
  std::vector<int64_t> units_of_parts;
  absl::Duration elapsed;
  absl::Duration cpu_time;
  absl::Duration other_cpu_time;

  double calls_per_second() const { return static_cast<double>(num_calls) / absl::ToDoubleSeconds(elapsed); }
  double units_per_second() const { return static_cast<double>(num_units) / absl::ToDoubleSeconds(elapsed); }
  double cpu_micros_per_unit() const {
    return absl::ToDoubleMicroseconds(cpu_time) / static_cast<double>(num_units == 0 ? 1 : num_units);
  }
  double other_cpu_micros_per_unit() const {
    return absl::ToDoubleMicroseconds(other_cpu_time) / static_cast<double>(num_units == 0 ? 1 : num_units);
  }
};

// The first error of a call, if one fails.
absl::StatusOr<LoopResult> RunClosedLoop(const Clock& clock, const std::vector<std::unique_ptr<Caller>>& callers,
                                         const LoopOptions& options, const std::function<absl::Duration()>& cpu_time);

}  // namespace sheaf::bench
