#include "server/threads/batch_gatherer.h"

#include <algorithm>
#include <utility>

namespace sheaf {
namespace {

// Of one batch, so many may be urgent ones.
constexpr size_t kUrgentEventsMax = 64;

}  // namespace

template <typename Put>
void BatchGatherer::PutAndWake(Put put) {
  bool was_waiting = false;
  {
    MutexLock lock(mutex_);
    put();
    was_waiting = std::exchange(is_waiting_, false);
  }
  if (was_waiting) wake_.NotifyOne();
}

void BatchGatherer::Add(Executor::Event event) {
  PutAndWake([&]() REQUIRES(mutex_) { inbox_.push_back({std::move(event), clock_.Now()}); });
}

void BatchGatherer::AddCall(const std::string& caller, Executor::Event event) {
  PutAndWake([&]() REQUIRES(mutex_) { calls_.Add(caller, std::move(event), clock_.Now()); });
}

void BatchGatherer::AddUrgent(Executor::Event event) {
  PutAndWake([&]() REQUIRES(mutex_) { urgent_.push_back({std::move(event), clock_.Now()}); });
}

bool BatchGatherer::Take(absl::Time next_tick, size_t events_max, Batch& batch) {
  MutexLock lock(mutex_);
  while (empty() && !is_stopping_) {
    const absl::Duration left = next_tick - clock_.Now();
    if (left <= absl::ZeroDuration()) break;
    is_waiting_ = true;
    wake_.WaitFor(mutex_, left);
  }
  is_waiting_ = false;
  if (empty() && is_stopping_) return false;
  batch = {};
  for (size_t left = std::min(kUrgentEventsMax, events_max / 2); left > 0 && !urgent_.empty(); --left) {
    MoveFirst(urgent_, Batch::Origin::kUrgent, batch);
  }
  batch.num_callers = calls_.num_callers();
  while (batch.events.size() < events_max && (!inbox_.empty() || !calls_.empty())) {
    if (!inbox_.empty()) MoveFirst(inbox_, Batch::Origin::kServer, batch);
    if (!calls_.empty() && batch.events.size() < events_max) MoveNextCall(batch);
  }
  return true;
}

void BatchGatherer::MoveFirst(Inbox& inbox, Batch::Origin origin, Batch& batch) {
  batch.events.push_back(std::move(inbox.front().event));
  batch.sources.push_back({.origin = origin, .arrival = inbox.front().arrival, .ticket = {}});
  inbox.pop_front();
}

void BatchGatherer::MoveNextCall(Batch& batch) {
  TurnQueue::Taken next = calls_.Take();
  batch.events.push_back(std::move(next.event));
  batch.sources.push_back({.origin = Batch::Origin::kCall, .arrival = next.arrival, .ticket = next.ticket});
}

void BatchGatherer::Settle(const Batch& batch, std::span<const absl::Duration> costs, std::span<Executor::Event> left) {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < costs.size(); ++i) {
    if (batch.sources[i].origin == Batch::Origin::kCall) calls_.Settle(batch.sources[i].ticket, costs[i]);
  }
  // From the newest to the oldest, each in front: they are in order again, ahead of what came meanwhile.
  for (size_t i = left.size(); i-- > 0;) {
    const Batch::Source& source = batch.sources[costs.size() + i];
    if (source.origin == Batch::Origin::kCall) {
      calls_.PutBack(source.ticket, std::move(left[i]), source.arrival);
      continue;
    }
    Inbox& inbox = source.origin == Batch::Origin::kUrgent ? urgent_ : inbox_;
    inbox.push_front({std::move(left[i]), source.arrival});
  }
}

absl::Time BatchGatherer::OldestArrival(absl::Time now) {
  MutexLock lock(mutex_);
  now = calls_.OldestArrival(now);
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
