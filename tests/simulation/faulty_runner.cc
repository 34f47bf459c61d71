#include "tests/simulation/faulty_runner.h"

#include <algorithm>
#include <utility>

namespace sheaf::simulation {
namespace {

constexpr absl::Duration kSlice = absl::Seconds(1);
constexpr absl::Duration kSlow = absl::Seconds(40);

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
  job->end += weather_.chance.Between(absl::ZeroDuration(), is_slow ? kSlow : weather_.plan.run_max);
  GoOn(job);
}

void FaultyRunner::GoOn(const std::shared_ptr<Job>& job) {
  const absl::Time now = weather_.agenda.now();
  bool is_over = now >= job->end || (job->control->is_cancelled() && !job->hangs);
  if (!is_over) {
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
