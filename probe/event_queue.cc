#include "probe/event_queue.h"

#include <utility>

namespace sheaf {

void EventQueue::Post(Event event) {
  MutexLock lock(mutex_);
  events_.push_back(std::move(event));
  posted_.NotifyOne();
}

void EventQueue::RunFor(const Clock& clock, absl::Duration wait) {
  std::vector<Event> events;
  {
    MutexLock lock(mutex_);
    if (events_.empty() && wait > absl::ZeroDuration()) posted_.WaitFor(mutex_, wait);
    events.swap(events_);
  }
  for (Event& event : events) event(clock.Now());
}

}  // namespace sheaf
