// Agenda: virtual time. What is to happen, in order of time; what falls on one instant happens in the order in which it
// was noted.
//
//   Agenda agenda;
//   agenda.After(absl::Seconds(3), [&] { server.Mend(); });
//   while (agenda.RunNext()) {}
//
// `digest` tells two runs apart that did not do the same at the same times. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"

namespace sheaf::simulation {

class Agenda {
 public:
  using Action = std::function<void()>;

  void After(absl::Duration delay, Action action) { At(clock_.Now() + delay, std::move(action)); }
  // At once, if `time` has passed.
  void At(absl::Time time, Action action) {
    events_.push_back({std::max(time, clock_.Now()), ++sequence_, std::move(action)});
    std::push_heap(events_.begin(), events_.end(), IsLater);
  }
  // False when nothing is left.
  bool RunNext() {
    if (events_.empty()) return false;
    std::pop_heap(events_.begin(), events_.end(), IsLater);
    Event event = std::move(events_.back());
    events_.pop_back();
    clock_.Set(event.time);
    ++num_events_;
    digest_ = (digest_ ^ static_cast<uint64_t>(absl::ToUnixNanos(event.time))) * 0x100000001b3 + event.sequence;
    event.action();
    return true;
  }

  const Clock& clock() const { return clock_; }
  absl::Time now() const { return clock_.Now(); }
  int64_t num_events() const { return num_events_; }
  uint64_t digest() const { return digest_; }

 private:
  struct Event {
    absl::Time time;
    uint64_t sequence;
    Action action;
  };
  static bool IsLater(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
  }

  ManualClock clock_;
  uint64_t sequence_ = 0;
  int64_t num_events_ = 0;
  uint64_t digest_ = 0xcbf29ce484222325;
  std::vector<Event> events_;
};

}  // namespace sheaf::simulation
