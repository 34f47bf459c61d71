// FoldStrand: the accumulator of a live round, and what is done with it: folding, writing a checkpoint, releasing the
// aggregate. Each grows with data, so that each is a job beside the core's thread; one at a time, in the order in which
// they were asked for.
//
//   strand.Do<absl::Status>(FoldStrand::Length::kLong,
//                           [=](RoundAccumulator& sum) { return WriteCheckpoint(sum); },     // In a job.
//                           [=](absl::Status written, absl::Time now) { ... });             // In an event of the core.
//
// To hand a job over, and to hear of it, costs as much as hundreds of small folds. Short work that is asked for before
// the job of the short work before it has begun becomes part of that job, and all of it is heard of in one event.
//
// The core's, but for what says otherwise.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aggregation/round_accumulator.h"
#include "base/check.h"
#include "base/mutex.h"
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
        accumulator_(std::make_shared<RoundAccumulator>(std::move(accumulator))) {}

  enum class Length { kShort, kLong };

  // `work` runs in a job; `then` gets what it returned, in an event: by then the round may have ended.
  template <typename Result>
  void Do(Length length, std::function<Result(RoundAccumulator& accumulator)> work,
          std::function<void(Result, absl::Time now)> then) {
    ++*num_pending_;
    Work step = [work = std::move(work), then = std::move(then)](RoundAccumulator& accumulator) {
      auto result = std::make_shared<Result>(work(accumulator));
      return [result, then](absl::Time now) { then(std::move(*result), now); };
    };
    // Nothing may overtake: what is long closes the job before it.
    if (length == Length::kShort && open_ != nullptr && open_->Add(step)) return;
    auto job = std::make_shared<Job>(std::move(step));
    open_ = length == Length::kShort ? job : nullptr;
    background_->Run(name_, [job, executor = executor_, accumulator = accumulator_, num_pending = num_pending_] {
      std::vector<Heard> all;
      for (Work& one : job->Begin()) all.push_back(std::exchange(one, nullptr)(*accumulator));
      executor->Post([all = std::move(all), num_pending](absl::Time now) {
        for (const Heard& heard : all) {
          --*num_pending;
          heard(now);
        }
      });
    });
  }

  // Nothing that was asked for is still to be heard of: the accumulator may be touched here.
  bool is_idle() const { return *num_pending_ == 0; }
  RoundAccumulator& accumulator() {
    SHEAF_CHECK(is_idle(), "the accumulator of round {} is touched while a job may have it", name_);
    return *accumulator_;
  }
  // To validate contributions with, on any thread, whatever goes on here. Drop it where freeing a large state, should
  // the round have ended meanwhile, keeps nobody waiting.
  std::shared_ptr<const RoundAccumulator> validator() const { return accumulator_; }

  // The round has ended: `last` runs behind everything that was asked for, and the accumulator is freed there.
  void Retire(std::function<void()> last) && {
    background_->Run(name_, [accumulator = std::exchange(accumulator_, nullptr), last = std::move(last)] { last(); });
  }

 private:
  // What is done with what the work returned.
  using Heard = std::function<void(absl::Time now)>;
  using Work = std::function<Heard(RoundAccumulator& accumulator)>;

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

  Background* background_;
  Executor* executor_;
  std::string name_;
  std::shared_ptr<RoundAccumulator> accumulator_;
  std::shared_ptr<int> num_pending_ = std::make_shared<int>(0);
  // The newest job, if more short work may become part of it.
  std::shared_ptr<Job> open_;
};

}  // namespace sheaf
