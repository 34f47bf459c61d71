#include "server/threads/core_thread.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"

namespace sheaf {
namespace {

// Events of one batch: bounds how long the first one waits for its answer.
constexpr size_t kBatchEventsMax = 256;
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
  Control(CoreThread& thread, const BatchGatherer::Batch& batch, absl::Time begin)
      : thread_(thread), batch_(batch), begin_(begin) {}
  bool MayGoOn() override { return thread_.clock_.Now() - begin_ < kBatchDurationMax; }
  void TakeBack(std::span<Event> events) override { thread_.gatherer_.PutBack(batch_, events); }
  absl::Time ReadUntil(absl::Time now) override { return thread_.ReadUntil(now); }
  void OnWorked() override { took_ = thread_.clock_.Now() - begin_; }
  absl::Duration took() const { return took_; }

 private:
  CoreThread& thread_;
  const BatchGatherer::Batch& batch_;
  const absl::Time begin_;
  absl::Duration took_;
};

CoreThread::~CoreThread() { Stop(); }

void CoreThread::Start(BatchRunner& runner, Core& core) {
  runner_ = &runner;
  core_ = &core;
  thread_ = std::thread([this] { Run(); });
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
  gatherer_.Stop();
  if (thread_.joinable()) thread_.join();
}

void CoreThread::Run() {
  absl::Time next_tick = clock_.Now();
  BatchGatherer::Batch batch;
  while (gatherer_.Take(next_tick, batch_events_max_, batch)) {
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
  return gatherer_.OldestArrival(now);
}

}  // namespace sheaf
