#include "tests/simulation/faulty_runner.h"

#include <algorithm>
#include <utility>

namespace sheaf::simulation {
namespace {

constexpr absl::Duration kSlice = absl::Seconds(1);
constexpr absl::Duration kSlow = absl::Seconds(40);
// In calm, so that the time a task takes is the server's.
constexpr absl::Duration kQuick = absl::Milliseconds(100);

}  // namespace

void FaultyRunner::Prepare(std::shared_ptr<const v1::Lease> lease, std::shared_ptr<RunControl> control,
                           PrepareDone done) {
  inner_.Prepare(std::move(lease), std::move(control), std::move(done));
}

void FaultyRunner::Run(std::shared_ptr<PreparedTask> task, std::shared_ptr<const TaskInputs> inputs,
                       std::shared_ptr<RunControl> control, RunDone done) {
  auto job = std::make_shared<Job>(Job{.task = std::move(task),
                                       .inputs = std::move(inputs),
                                       .control = std::move(control),
                                       .done = std::move(done),
                                       .end = weather_.agenda.now(),
                                       .hangs = weather_.Strikes(weather_.plan.run_hangs, "runs hung")});
  bool is_slow = job->hangs || weather_.Strikes(weather_.plan.run_slow, "runs slow");
  const absl::Duration longest = is_slow ? kSlow : weather_.plan.run_max;
  job->end += weather_.chance.Between(absl::ZeroDuration(), weather_.is_stormy ? longest : std::min(longest, kQuick));
  std::erase_if(jobs_, [](const auto& other) { return other.expired(); });
  jobs_.push_back(job);
  GoOn(job);
}

void FaultyRunner::Mend() {
  for (const std::weak_ptr<Job>& weak : std::exchange(jobs_, {})) {
    const std::shared_ptr<Job> job = weak.lock();
    if (job == nullptr || job->is_over) continue;
    job->end = weather_.agenda.now();
    job->hangs = false;
    weather_.agenda.At(job->end, [this, job] { GoOn(job); });
  }
}

void FaultyRunner::GoOn(const std::shared_ptr<Job>& job) {
  if (job->is_over) return;
  const absl::Time now = weather_.agenda.now();
  job->is_over = now >= job->end || (job->control->is_cancelled() && !job->hangs);
  if (!job->is_over) {
    if (!job->hangs) job->control->ReportProgress();
    const absl::Time next = job->hangs ? job->end : std::min(job->end, now + kSlice);
    return weather_.agenda.At(next, [this, job] { GoOn(job); });
  }
  if (weather_.Strikes(weather_.plan.run_fails, "runs failed")) return job->done(absl::InternalError("out of luck"));
  if (weather_.Strikes(weather_.plan.run_fails_for_good, "runs failed for good")) {
    return job->done(absl::InvalidArgumentError("this cannot work"));
  }
  if (weather_.Strikes(weather_.plan.run_wrong, "contributions wrong"))
    return job->done(std::string("no contribution"));
  inner_.Run(job->task, job->inputs, job->control, job->done);
}

}  // namespace sheaf::simulation
