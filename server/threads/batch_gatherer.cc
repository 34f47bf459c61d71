#include "server/threads/batch_gatherer.h"

#include <algorithm>
#include <utility>

namespace sheaf {
namespace {

// Of one batch, so many may be urgent ones.
constexpr size_t kUrgentEventsMax = 64;

}  // namespace

void BatchGatherer::Add(Urgency urgency, Executor::Event event) {
  bool was_waiting = false;
  {
    MutexLock lock(mutex_);
    Inbox& inbox = urgency == Urgency::kUrgent ? urgent_ : inbox_;
    inbox.push_back({std::move(event), clock_.Now()});
    was_waiting = std::exchange(is_waiting_, false);
  }
  // The first of many wakes the thread, and does not hold what the thread needs next.
  if (was_waiting) wake_.NotifyOne();
}

bool BatchGatherer::Take(absl::Time next_tick, size_t events_max, Batch& batch) {
  MutexLock lock(mutex_);
  while (inbox_.empty() && urgent_.empty() && !is_stopping_) {
    const absl::Duration left = next_tick - clock_.Now();
    if (left <= absl::ZeroDuration()) break;
    is_waiting_ = true;
    wake_.WaitFor(mutex_, left);
  }
  is_waiting_ = false;
  if (inbox_.empty() && urgent_.empty() && is_stopping_) return false;
  batch = {};
  Fill(batch, std::min(kUrgentEventsMax, events_max / 2), urgent_);
  batch.num_urgent = batch.events.size();
  Fill(batch, events_max, inbox_);
  return true;
}

void BatchGatherer::Fill(Batch& batch, size_t size, Inbox& inbox) {
  const size_t count = std::min(inbox.size(), size - batch.events.size());
  const auto end = inbox.begin() + static_cast<std::ptrdiff_t>(count);
  for (auto it = inbox.begin(); it != end; ++it) {
    batch.events.push_back(std::move(it->event));
    batch.arrivals.push_back(it->arrival);
  }
  inbox.erase(inbox.begin(), end);
}

void BatchGatherer::PutBack(const Batch& batch, std::span<Executor::Event> events) {
  MutexLock lock(mutex_);
  // From the newest to the oldest, each in front: they are in order again, ahead of what came meanwhile.
  for (size_t i = events.size(); i-- > 0;) {
    const size_t number = batch.arrivals.size() - events.size() + i;
    Inbox& inbox = number < batch.num_urgent ? urgent_ : inbox_;
    inbox.push_front({std::move(events[i]), batch.arrivals[number]});
  }
}

absl::Time BatchGatherer::OldestArrival(absl::Time now) {
  MutexLock lock(mutex_);
  for (const Inbox* inbox : {&inbox_, &urgent_}) {
    if (!inbox->empty()) now = std::min(now, inbox->front().arrival);
  }
  return now;
}

void BatchGatherer::Stop() {
  MutexLock lock(mutex_);
  is_stopping_ = true;
  wake_.NotifyOne();
}

}  // namespace sheaf
