// FoldStrand: the accumulator of a live round, and what is done with it: folding, writing a checkpoint, releasing the
// aggregate. Each grows with data, so that each is a job beside the core's thread; one at a time, in the order in which
// they were asked for.
//
//   strand.Do<absl::Status>([=](RoundAccumulator& sum) { return WriteCheckpoint(sum); },     // In a job.
//                           [=](absl::Status written, absl::Time now) { ... });             // In an event of the core.
//
// The core's, but for what says otherwise.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "aggregation/round_accumulator.h"
#include "base/check.h"
#include "server/core/background.h"
#include "server/core/executor.h"
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

  // `work` runs in a job; `then` gets what it returned, in an event: by then the round may have ended.
  template <typename Result>
  void Do(std::function<Result(RoundAccumulator& accumulator)> work, std::function<void(Result, absl::Time now)> then) {
    ++*num_pending_;
    background_->Run(name_, [executor = executor_, accumulator = accumulator_, num_pending = num_pending_,
                             work = std::move(work), then = std::move(then)] {
      auto result = std::make_shared<Result>(work(*accumulator));
      executor->Post([result, num_pending, then](absl::Time now) {
        --*num_pending;
        then(std::move(*result), now);
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
  Background* background_;
  Executor* executor_;
  std::string name_;
  std::shared_ptr<RoundAccumulator> accumulator_;
  std::shared_ptr<int> num_pending_ = std::make_shared<int>(0);
};

}  // namespace sheaf
