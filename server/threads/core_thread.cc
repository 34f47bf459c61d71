#include "server/threads/core_thread.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace sheaf {
namespace {

// Events of one batch: bounds how long the first one waits for its answer.
constexpr size_t kBatchEventsMax = 256;
// Of those, so many may be urgent ones: who looks on must not stop the work.
constexpr size_t kUrgentEventsMax = 64;
// A batch that takes longer leaves the rest of its events to the next ones, and makes them smaller: nobody, and no
// operator above all, waits longer than for two.
constexpr absl::Duration kBatchDurationMax = absl::Milliseconds(20);
constexpr size_t kBatchEventsMin = 16;
// A batch that takes more of a processor is said in the log, with what took it: that is work which has no place here.
constexpr absl::Duration kBatchCpuMax = absl::Milliseconds(50);
// The core is not asked to tick more often than this when nothing happens.
constexpr absl::Duration kTickIntervalMin = absl::Milliseconds(1);
// And than this while what has run out is held.
constexpr absl::Duration kTickIntervalOfHold = absl::Milliseconds(20);
// Whoever renews a lease does it sooner.
constexpr absl::Duration kHoldMax = absl::Minutes(1);

}  // namespace

class CoreThread::Control final : public BatchControl {
 public:
  Control(CoreThread& thread, const Batch& batch, absl::Time begin) : thread_(thread), batch_(batch), begin_(begin) {}
  bool MayGoOn() override { return thread_.clock_.Now() - begin_ < kBatchDurationMax; }
  void TakeBack(std::span<Event> events) override { thread_.PutBack(batch_, events); }
  absl::Time ReadUntil(absl::Time now) override { return thread_.ReadUntil(now); }
  void OnWorked() override { took_ = thread_.clock_.Now() - begin_; }
  absl::Duration took() const { return took_; }

 private:
  CoreThread& thread_;
  const Batch& batch_;
  const absl::Time begin_;
  absl::Duration took_;
};

CoreThread::~CoreThread() { Stop(); }

void CoreThread::Start(BatchRunner& runner, Core& core) {
  runner_ = &runner;
  core_ = &core;
  thread_ = std::thread([this] { Run(); });
}

void CoreThread::Add(Inbox CoreThread::*inbox, Event event) {
  bool was_waiting = false;
  {
    MutexLock lock(mutex_);
    (this->*inbox).push_back({std::move(event), clock_.Now()});
    was_waiting = std::exchange(is_waiting_, false);
  }
  // The first of many wakes the thread, and does not hold what the thread needs next.
  if (was_waiting) wake_.NotifyOne();
}

absl::Status CoreThread::RunInBatch(Event event) {
  Mutex mutex;
  CondVar done;
  absl::Status result;
  bool is_done = false;
  Post([&](absl::Time now) {
    event(now);
    Defer([&](const absl::Status& commit) {
      MutexLock lock(mutex);
      result = commit;
      is_done = true;
      done.NotifyOne();
    });
  });
  MutexLock lock(mutex);
  while (!is_done) done.Wait(mutex);
  return result;
}

void CoreThread::Stop() {
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
    wake_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

void CoreThread::Run() {
  absl::Time next_tick = clock_.Now();
  Batch batch;
  while (TakeBatch(next_tick, batch)) {
    const absl::Time now = clock_.Now();
    meter_.Begin();
    Control control(*this, batch, now);
    const absl::Status status = runner_->Run(std::exchange(batch.events, {}), now, control);
    if (const absl::Duration cost = meter_.End(); cost > kBatchCpuMax) {
      LogWarning("a batch took {} ms of the core's thread, more than {}: {}", absl::ToInt64Milliseconds(cost),
                 absl::ToInt64Milliseconds(kBatchCpuMax), meter_.Describe());
    }
    const absl::Duration took = control.took();
    if (absl::IsInternal(status) || absl::IsDataLoss(status)) return on_failure_(status);
    if (!status.ok()) LogError("a batch was refused: {}", status.ToString());
    if (took > kBatchDurationMax) {
      batch_events_max_ = std::max(batch_events_max_ / 2, kBatchEventsMin);
    } else if (took < kBatchDurationMax / 2) {
      batch_events_max_ = std::min(batch_events_max_ * 2, kBatchEventsMax);
    }
    const absl::Time end = clock_.Now();
    if (const absl::Time until = end + std::min(end - now, kHoldMax); until > hold_.until) hold_ = {now, until};
    const absl::Duration rest = hold_.until > end + kTickIntervalOfHold ? kTickIntervalOfHold : kTickIntervalMin;
    next_tick = std::max(core_->NextTick(now), now + rest);
  }
}

absl::Time CoreThread::ReadUntil(absl::Time now) {
  if (now < hold_.until) now = std::min(now, hold_.at);
  MutexLock lock(mutex_);
  for (const Inbox* inbox : {&inbox_, &urgent_}) {
    if (!inbox->empty()) now = std::min(now, inbox->front().arrival);
  }
  return now;
}

void CoreThread::PutBack(const Batch& batch, std::span<Event> events) {
  MutexLock lock(mutex_);
  for (size_t i = events.size(); i-- > 0;) {
    const size_t number = batch.arrivals.size() - events.size() + i;
    Inbox& inbox = number < batch.num_urgent ? urgent_ : inbox_;
    inbox.push_front({std::move(events[i]), batch.arrivals[number]});
  }
}

bool CoreThread::TakeBatch(absl::Time next_tick, Batch& batch) {
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
  Fill(batch, std::min(kUrgentEventsMax, batch_events_max_ / 2), urgent_);
  batch.num_urgent = batch.events.size();
  Fill(batch, batch_events_max_, inbox_);
  return true;
}

void CoreThread::Fill(Batch& batch, size_t size, Inbox& inbox) {
  const size_t count = std::min(inbox.size(), size - batch.events.size());
  const auto end = inbox.begin() + static_cast<std::ptrdiff_t>(count);
  for (auto it = inbox.begin(); it != end; ++it) {
    batch.events.push_back(std::move(it->event));
    batch.arrivals.push_back(it->arrival);
  }
  inbox.erase(inbox.begin(), end);
}

}  // namespace sheaf
