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
// While several callers have calls, one with little to do waits for two batches of which others took nearly all. So
// these work for as long as they are then flushed and committed, by what that took lately: for less, the core would
// flush for most of its time.
constexpr absl::Duration kSharedBatchDurationMin = absl::Milliseconds(1);
constexpr absl::Duration kSharedBatchDurationMax = absl::Milliseconds(5);
// How long it is after the last batch with calls of several.
constexpr absl::Duration kSharedFor = absl::Seconds(1);
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
      : thread_(thread), batch_(batch), begin_(begin) {
    thread_.costs_.clear();
    if (batch_.num_callers > 1) thread_.last_shared_ = begin_;
    duration_max_ = begin_ - thread_.last_shared_ < kSharedFor
                        ? std::clamp(thread_.usual_commit_, kSharedBatchDurationMin, kSharedBatchDurationMax)
                        : kBatchDurationMax;
  }
  bool MayGoOn() override { return EndEvent() - begin_ < duration_max_; }
  void TakeBack(std::span<Event> events) override {
    // Each but the last was followed by a question whether another one may.
    if (thread_.costs_.size() + events.size() < batch_.sources.size()) EndEvent();
    num_left_ = events.size();
    thread_.gatherer_.Settle(batch_, thread_.costs_, events);
  }
  // Events that it left to the next ones.
  size_t num_left() const { return num_left_; }
  absl::Time ReadUntil(absl::Time now) override { return thread_.ReadUntil(now); }
  void OnWorked() override { worked_ = thread_.clock_.Now(); }
  void OnFlushed() override { flushed_ = thread_.clock_.Now(); }
  void OnCommitted() override {
    committed_ = thread_.clock_.Now();
    // Whoever is answered now, and looks, finds what was done.
    thread_.RefreshFigures();
  }
  absl::Time begin() const { return begin_; }
  absl::Duration took() const { return worked_ - begin_; }
  absl::Duration flush_took() const { return flushed_ - worked_; }
  absl::Duration commit_took() const { return committed_ - flushed_; }

 private:
  // When that was.
  absl::Time EndEvent() {
    const absl::Time now = thread_.clock_.Now();
    thread_.costs_.push_back(now - std::exchange(event_begin_, now));
    return now;
  }

  CoreThread& thread_;
  const BatchGatherer::Batch& batch_;
  const absl::Time begin_;
  absl::Duration duration_max_;
  absl::Time event_begin_ = begin_;
  absl::Time worked_ = begin_;
  absl::Time flushed_ = begin_;
  absl::Time committed_ = begin_;
  size_t num_left_ = 0;
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
  // What was recovered.
  core_->RefreshFigures();
  BatchGatherer::Batch batch;
  while (gatherer_.Take(next_tick, batch_events_max_, batch)) {
    const absl::Time now = clock_.Now();
    figures_.running_since.Set(absl::ToUnixNanos(now));
    meter_.Begin();
    Control control(*this, batch, now);
    const absl::Status status = runner_->Run(std::exchange(batch.events, {}), now, control);
    RefreshFigures();
    if (meter_.End() > kBatchCpuMax) LogWarning("{}", meter_.Warning(kBatchCpuMax));
    const absl::Duration took = control.took();
    if (absl::IsInternal(status) || absl::IsDataLoss(status) || absl::IsAborted(status)) return on_failure_(status);
    if (!status.ok()) LogError("a batch was refused: {}", status.ToString());
    if (!status.ok()) figures_.failed.Add();
    Count(batch, control);
    if (took > kBatchDurationMax) {
      batch_events_max_ = std::max(batch_events_max_ / 2, kBatchEventsMin);
    } else if (took < kBatchDurationMax / 2) {
      batch_events_max_ = std::min(batch_events_max_ * 2, kBatchEventsMax);
    }
    const absl::Time end = clock_.Now();
    if (const absl::Time until = end + std::min(end - now, kHoldMax); until > hold_.until) hold_ = {now, until};
    const absl::Duration rest = hold_.until > end + kTickIntervalOfHold ? kTickIntervalOfHold : kTickIntervalMin;
    next_tick = std::min(std::max(core_->NextTick(now), now + rest), now + idle_max_);
  }
}

void CoreThread::RefreshFigures() {
  meter_.Note("figures");
  core_->RefreshFigures();
}

void CoreThread::Count(const BatchGatherer::Batch& batch, const Control& control) {
  figures_.running_since.Set(0);
  meter_.ForEachPart([this](std::string_view what, absl::Duration cost) { figures_.cpu.Add(what, cost); });
  const size_t num_events = batch.sources.size() - control.num_left();
  if (num_events == 0) return;
  // One in eight: a single slow one says little about those that follow.
  usual_commit_ += (control.flush_took() + control.commit_took() - usual_commit_) / 8;
  waited_seconds_.clear();
  for (size_t i = 0; i < num_events; ++i) {
    waited_seconds_.push_back(absl::ToDoubleSeconds(control.begin() - batch.sources[i].arrival));
  }
  figures_.events.Observe(static_cast<double>(num_events));
  figures_.queue_seconds.ObserveAll(waited_seconds_);
  figures_.work_seconds.Observe(absl::ToDoubleSeconds(control.took()));
  figures_.flush_seconds.Observe(absl::ToDoubleSeconds(control.flush_took()));
  figures_.commit_seconds.Observe(absl::ToDoubleSeconds(control.commit_took()));
}

absl::Time CoreThread::ReadUntil(absl::Time now) {
  if (now < hold_.until) now = std::min(now, hold_.at);
  return gatherer_.OldestArrival(now);
}

}  // namespace sheaf
