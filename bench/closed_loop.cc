#include "bench/closed_loop.h"

#include <atomic>

#include "base/mutex.h"

namespace sheaf::bench {
namespace {

class Loop {
 public:
  Loop(const Clock& clock, const std::vector<std::unique_ptr<Caller>>& callers) : clock_(clock), callers_(callers) {}

  absl::StatusOr<LoopResult> Run(const LoopOptions& options, const std::function<absl::Duration()>& cpu_time) {
    num_running_ = static_cast<int64_t>(callers_.size());
    for (const auto& caller : callers_) Step(*caller);
    Wait(options.warm_up);
    LoopResult result = {.num_calls = -num_calls_, .num_units = -num_units_};
    const absl::Time start = clock_.Now();
    const absl::Duration cpu_start = cpu_time();
    const absl::Duration other_cpu_start = options.other_cpu_time();
    int64_t num_before = num_units_;
    for (int part = 1; part <= options.parts; ++part) {
      Wait(start + options.duration * part / options.parts - clock_.Now());
      result.units_of_parts.push_back(num_units_ - num_before);
      num_before += result.units_of_parts.back();
    }
    result.num_calls += num_calls_;
    result.num_units += num_units_;
    result.elapsed = clock_.Now() - start;
    result.cpu_time = cpu_time() - cpu_start;
    result.other_cpu_time = options.other_cpu_time() - other_cpu_start;
    is_ending_ = true;
    MutexLock lock(mutex_);
    while (num_running_ > 0) ended_.Wait(mutex_);
    if (!error_.ok()) return error_;
    return result;
  }

 private:
  void Step(Caller& caller) {
    caller.Next([this, &caller](absl::StatusOr<int64_t> units) {
      if (!units.ok() || is_ending_) return End(units.status());
      num_calls_ += 1;
      num_units_ += *units;
      Step(caller);
    });
  }

  void End(const absl::Status& status) {
    MutexLock lock(mutex_);
    error_.Update(status);
    --num_running_;
    ended_.NotifyAll();
  }

  // Until the time has passed or every caller has failed.
  void Wait(absl::Duration duration) {
    const absl::Time end = clock_.Now() + duration;
    MutexLock lock(mutex_);
    for (absl::Duration left = duration; left > absl::ZeroDuration() && num_running_ > 0; left = end - clock_.Now()) {
      ended_.WaitFor(mutex_, left);
    }
  }

  const Clock& clock_;
  const std::vector<std::unique_ptr<Caller>>& callers_;
  std::atomic<int64_t> num_calls_ = 0;
  std::atomic<int64_t> num_units_ = 0;
  std::atomic<bool> is_ending_ = false;
  Mutex mutex_;
  CondVar ended_;
  int64_t num_running_ = 0;
  absl::Status error_;
};

}  // namespace

absl::StatusOr<LoopResult> RunClosedLoop(const Clock& clock, const std::vector<std::unique_ptr<Caller>>& callers,
                                         const LoopOptions& options, const std::function<absl::Duration()>& cpu_time) {
  return Loop(clock, callers).Run(options, cpu_time);
}

}  // namespace sheaf::bench
