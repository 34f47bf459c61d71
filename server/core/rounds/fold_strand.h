// FoldStrand: the accumulator of a live round, and what is done with it: folding, writing a checkpoint, releasing the
// aggregate. Each grows with data, so that each is a job beside the core's thread; one at a time, in the order in which
// they were asked for.
//
//   strand.Do<absl::Status>(
//       FoldStrand::Length::kLong,
//       [=](RoundAccumulator& sum) { return sum.Write(take); },                            // In a job.
//       [=](absl::Status written, absl::Time now) { LogInfo("{}", written.ToString()); });  // In an event of the core.
//
// To hand a job over, and to hear of it, costs as much as hundreds of small folds. Short work that is asked for before
// the job of the short work before it has begun becomes part of that job, and all of it is heard of in one event.
//
// The core's, but for what says otherwise.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregation/round_accumulator.h"
#include "base/check.h"
#include "base/mutex.h"
#include "base/parallel_for.h"
#include "server/core/batches/background.h"
#include "server/core/batches/executor.h"
#include "storage/ids.h"

namespace sheaf {

class FoldStrand {
 public:
  // `background` and `executor` outlive it, and its jobs.
  FoldStrand(Background& background, Executor& executor, const RoundId& round, RoundAccumulator accumulator)
      : background_(&background),
        executor_(&executor),
        name_(round.value()),
        validator_(accumulator.validator()),
        sum_(std::make_shared<Sum>(Sum{.accumulator = std::move(accumulator), .release = std::nullopt})) {}

  enum class Length { kShort, kLong };

  // `work` runs in a job; `then` gets what it returned, in an event: by then the round may have ended.
  template <typename Result>
  void Do(Length length, std::function<Result(RoundAccumulator& accumulator)> work,
          std::function<void(Result, absl::Time now)> then) {
    Ask<Result>(
        length, [work = std::move(work)](Sum& sum) { return work(sum.accumulator); }, std::move(then));
  }
  // Releases the accumulator for good, by the threads of `parallel`: nothing can be folded from then on. `work` gets
  // the release, in a job; called again, the same one. `then` gets what `work` returned, or why there is no release.
  template <typename Result>
  void Release(ParallelFor& parallel, std::function<absl::StatusOr<Result>(const AggregateRelease& release)> work,
               std::function<void(absl::StatusOr<Result>, absl::Time now)> then) {
    const auto release = [&parallel, work = std::move(work)](Sum& sum) -> absl::StatusOr<Result> {
      if (!sum.release.has_value()) sum.release = std::move(sum.accumulator).Release(parallel);
      if (!sum.release->ok()) return sum.release->status();
      return work(**sum.release);
    };
    Ask<absl::StatusOr<Result>>(Length::kLong, release, std::move(then));
  }

  // Nothing that was asked for is still to be heard of: the accumulator may be touched here.
  bool is_idle() const { return *num_pending_ == 0; }
  RoundAccumulator& accumulator() {
    SHEAF_CHECK(is_idle(), "the accumulator of round {} is touched while a job may have it", name_);
    return sum_->accumulator;
  }
  // To validate contributions with, on any thread, whatever goes on here.
  std::shared_ptr<const ContributionValidator> validator() const { return validator_; }

  // The round has ended: `last` runs behind everything that was asked for, and the accumulator is freed there.
  void Retire(std::function<void()> last) && {
    background_->Run(name_, [sum = std::exchange(sum_, nullptr), last = std::move(last)] { last(); });
  }

 private:
  struct Sum {
    RoundAccumulator accumulator;
    // Once the accumulator was asked for it, which it consumes.
    std::optional<absl::StatusOr<AggregateRelease>> release;
  };
  // What is done with what the work returned.
  using Heard = std::function<void(absl::Time now)>;
  using Work = std::function<Heard(Sum& sum)>;

  // The work of one job. Thread-safe.
  class Job {
   public:
    explicit Job(Work first) : work_({std::move(first)}) {}
    // False if it has begun, or has enough to do.
    bool Add(Work& more) EXCLUDES(mutex_) {
      MutexLock lock(mutex_);
      if (has_begun_ || work_.size() >= kWorkMax) return false;
      work_.push_back(std::move(more));
      return true;
    }
    std::vector<Work> Begin() EXCLUDES(mutex_) {
      MutexLock lock(mutex_);
      has_begun_ = true;
      return std::move(work_);
    }

   private:
    // Bounds how long others wait for a thread, and the event that hears of it for its turn.
    static constexpr size_t kWorkMax = 256;
    Mutex mutex_;
    bool has_begun_ GUARDED_BY(mutex_) = false;
    std::vector<Work> work_ GUARDED_BY(mutex_);
  };

  template <typename Result>
  void Ask(Length length, std::function<Result(Sum& sum)> work, std::function<void(Result, absl::Time now)> then) {
    ++*num_pending_;
    Work step = [work = std::move(work), then = std::move(then)](Sum& sum) {
      auto result = std::make_shared<Result>(work(sum));
      return [result, then](absl::Time now) { then(std::move(*result), now); };
    };
    // Nothing may overtake: what is long closes the job before it.
    if (length == Length::kShort && open_ != nullptr && open_->Add(step)) return;
    auto job = std::make_shared<Job>(std::move(step));
    open_ = length == Length::kShort ? job : nullptr;
    background_->Run(name_, [job, executor = executor_, sum = sum_, num_pending = num_pending_] {
      std::vector<Heard> all;
      for (Work& one : job->Begin()) all.push_back(std::exchange(one, nullptr)(*sum));
      executor->Post([all = std::move(all), num_pending](absl::Time now) {
        for (const Heard& heard : all) {
          --*num_pending;
          heard(now);
        }
      });
    });
  }

  Background* background_;
  Executor* executor_;
  std::string name_;
  std::shared_ptr<const ContributionValidator> validator_;
  std::shared_ptr<Sum> sum_;
  std::shared_ptr<int> num_pending_ = std::make_shared<int>(0);
  // The newest job, if more short work may become part of it.
  std::shared_ptr<Job> open_;
};

}  // namespace sheaf
