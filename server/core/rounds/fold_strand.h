// FoldStrand: the accumulator of a live round, and what is done with it: folding, writing a checkpoint, releasing the
// aggregate. Each grows with data, so that each is a job beside the core's thread; one at a time, in the order in which
// they were asked for.
//
//   strand.Fold(contribution, bytes, [](int64_t memory_bytes, absl::Time) { LogInfo("holds {}", memory_bytes); });
//   strand.Do<absl::Status>(
//       [=](RoundAccumulator& sum) { return sum.Write(take); },                            // In a job.
//       [=](absl::Status written, absl::Time now) { LogInfo("{}", written.ToString()); });  // In an event of the core.
//
// To hand a job over, and to hear of it, costs as much as hundreds of small folds, and several threads have more to
// share in several contributions. So those that are handed over before the job of the one before has begun become part
// of that job, and all of it is heard of in one event.
//
// The core's, but for what says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregation/contribution_validator.h"
#include "aggregation/round_accumulator.h"
#include "base/check.h"
#include "base/mutex.h"
#include "base/parallel_for.h"
#include "server/core/batches/background.h"
#include "server/core/batches/executor.h"
#include "server/core/figures/core_figures.h"
#include "server/core/limits/memory_budget.h"
#include "storage/ids.h"

namespace sheaf {

// A contribution that is to be folded, and its share of the memory for such.
struct UnfoldedContribution {
  ValidContribution valid;
  MemoryClaim claim;
};
// Emptied where it is folded: large ones take their time to be freed, too.
using Unfolded = std::optional<UnfoldedContribution>;

class FoldStrand {
 public:
  // All that it refers to outlives it, and its jobs. Without figures nobody measures.
  FoldStrand(Background& background, ParallelFor& parallel, Executor& executor, const RoundId& round,
             RoundAccumulator accumulator, CoreFigures* figures = nullptr)
      : background_(&background),
        parallel_(&parallel),
        executor_(&executor),
        figures_(figures),
        name_(round.value()),
        validator_(accumulator.validator()),
        sum_(std::make_shared<Sum>(Sum{.accumulator = std::move(accumulator), .release = std::nullopt})) {}

  // `bytes`: how large it is, about. `then` gets how many bytes of memory the accumulator holds with it, in an event:
  // by then the round may have ended.
  void Fold(std::shared_ptr<Unfolded> contribution, int64_t bytes,
            std::function<void(int64_t memory_bytes, absl::Time now)> then) {
    ++*num_pending_;
    Folding folding{.contribution = std::move(contribution), .then = std::move(then)};
    if (open_ != nullptr && open_->Add(folding, bytes)) return;
    open_ = std::make_shared<FoldJob>(std::move(folding), bytes);
    background_->Run(name_, [job = open_, parallel = parallel_, executor = executor_, figures = figures_, sum = sum_,
                             num_pending = num_pending_] {
      std::vector<Folding> all = job->Begin();
      std::vector<const ValidContribution*> valid;
      valid.reserve(all.size());
      for (const Folding& one : all) valid.push_back(&(*one.contribution)->valid);
      const absl::Duration begin = figures == nullptr ? absl::ZeroDuration() : figures->watch();
      sum->accumulator.Accumulate(valid, *parallel);
      if (figures != nullptr) {
        figures->fold_seconds.Observe(absl::ToDoubleSeconds(figures->watch() - begin));
      }
      for (const Folding& one : all) one.contribution->reset();
      const int64_t memory_bytes = sum->accumulator.memory_bytes();
      executor->Post([all = std::move(all), memory_bytes, num_pending](absl::Time now) {
        for (const Folding& one : all) {
          --*num_pending;
          one.then(memory_bytes, now);
        }
      });
    });
  }

  // `work` runs in a job; `then` gets what it returned, in an event.
  template <typename Result>
  void Do(std::function<Result(RoundAccumulator& accumulator)> work, std::function<void(Result, absl::Time now)> then) {
    Ask<Result>([work = std::move(work)](Sum& sum) { return work(sum.accumulator); }, std::move(then));
  }
  // Releases the accumulator for good: nothing can be folded from then on. `work` gets the release, in a job; called
  // again, the same one. `then` gets what `work` returned, or why there is no release.
  template <typename Result>
  void Release(std::function<absl::StatusOr<Result>(const AggregateRelease& release)> work,
               std::function<void(absl::StatusOr<Result>, absl::Time now)> then) {
    const auto release = [parallel = parallel_, work = std::move(work)](Sum& sum) -> absl::StatusOr<Result> {
      if (!sum.release.has_value()) sum.release = std::move(sum.accumulator).Release(*parallel);
      if (!sum.release->ok()) return sum.release->status();
      return work(**sum.release);
    };
    Ask<absl::StatusOr<Result>>(release, std::move(then));
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
  struct Folding {
    std::shared_ptr<Unfolded> contribution;
    std::function<void(int64_t memory_bytes, absl::Time now)> then;
  };

  // What one job folds. Thread-safe.
  class FoldJob {
   public:
    FoldJob(Folding first, int64_t bytes) : all_({std::move(first)}), bytes_(bytes) {}
    // False if it has begun, or has enough to do.
    bool Add(Folding& more, int64_t bytes) EXCLUDES(mutex_) {
      MutexLock lock(mutex_);
      if (has_begun_ || all_.size() >= kContributionsMax || bytes_ + bytes > kBytesMax) return false;
      all_.push_back(std::move(more));
      bytes_ += bytes;
      return true;
    }
    std::vector<Folding> Begin() EXCLUDES(mutex_) {
      MutexLock lock(mutex_);
      has_begun_ = true;
      return std::move(all_);
    }

   private:
    // Bound how long others wait for a thread, and the event that hears of it for its turn.
    static constexpr size_t kContributionsMax = 256;
    static constexpr int64_t kBytesMax = 4 << 20;
    Mutex mutex_;
    bool has_begun_ GUARDED_BY(mutex_) = false;
    std::vector<Folding> all_ GUARDED_BY(mutex_);
    int64_t bytes_ GUARDED_BY(mutex_);
  };

  template <typename Result>
  void Ask(std::function<Result(Sum& sum)> work, std::function<void(Result, absl::Time now)> then) {
    ++*num_pending_;
    // Nothing may overtake.
    open_ = nullptr;
    background_->Run(name_, [work = std::move(work), then = std::move(then), executor = executor_, sum = sum_,
                             num_pending = num_pending_]() mutable {
      auto result = std::make_shared<Result>(std::exchange(work, nullptr)(*sum));
      executor->Post([result, then = std::move(then), num_pending](absl::Time now) {
        --*num_pending;
        then(std::move(*result), now);
      });
    });
  }

  Background* background_;
  ParallelFor* parallel_;
  Executor* executor_;
  CoreFigures* figures_;
  std::string name_;
  std::shared_ptr<const ContributionValidator> validator_;
  std::shared_ptr<Sum> sum_;
  std::shared_ptr<int> num_pending_ = std::make_shared<int>(0);
  // The newest job, if more contributions may become part of it.
  std::shared_ptr<FoldJob> open_;
};

}  // namespace sheaf
