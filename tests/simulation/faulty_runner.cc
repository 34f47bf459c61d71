#include "tests/simulation/faulty_runner.h"

#include <algorithm>
#include <utility>

namespace sheaf::simulation {
namespace {

constexpr absl::Duration kSlice = absl::Seconds(1);
constexpr absl::Duration kSlow = absl::Seconds(40);
// In calm, so that the time a task takes is the server's.
constexpr absl::Duration kQuick = absl::Milliseconds(100);

// A task of an announced round: it needs the whole broadcast, if there is one.
class PreparedAhead final : public PreparedTask {
 public:
  PreparedAhead(std::shared_ptr<const v1::Lease> lease, std::shared_ptr<PreparedTask> inner)
      : lease_(std::move(lease)), inner_(std::move(inner)) {}

  const v1::Lease& lease() const { return *lease_; }
  const InputRequest& input_request() const override { return request_; }
  absl::StatusOr<TaskOutcome> Run(const TaskInputs& inputs, RunControl& control) override {
    return inner_->Run(inputs, control);
  }

 private:
  const std::shared_ptr<const v1::Lease> lease_;
  const std::shared_ptr<PreparedTask> inner_;
  const InputRequest request_{.whole_broadcast = true, .is_optional = true, .selections = {}};
};

}  // namespace

void FaultyRunner::Prepare(std::shared_ptr<const v1::Lease> lease, std::shared_ptr<RunControl> control,
                           PrepareDone done) {
  if (!lease->announced()) return inner_.Prepare(std::move(lease), std::move(control), std::move(done));
  auto job = std::make_shared<Job>(Job{.control = control,
                                       .end = weather_.agenda.now(),
                                       .hangs = weather_.Strikes(weather_.plan.run_hangs, "prepares hung")});
  job->finish = [this, lease = std::move(lease), control, done = std::move(done)] {
    if (weather_.Strikes(weather_.plan.run_fails, "prepares failed")) return done(absl::InternalError("no data"));
    inner_.Prepare(lease, control, [this, lease, done](absl::StatusOr<std::shared_ptr<PreparedTask>> task) {
      if (!task.ok()) return done(std::move(task));
      ++weather_.statistics.announced["tasks prepared"];
      done(std::make_shared<PreparedAhead>(lease, *std::move(task)));
    });
  };
  Begin(job, job->hangs || weather_.Strikes(weather_.plan.run_slow, "prepares slow"), weather_.plan.prepare_max);
}

void FaultyRunner::Run(std::shared_ptr<PreparedTask> task, std::shared_ptr<const TaskInputs> inputs,
                       std::shared_ptr<RunControl> control, RunDone done) {
  if (const auto* ahead = dynamic_cast<const PreparedAhead*>(task.get())) on_ahead_runs_(ahead->lease(), *inputs);
  auto job = std::make_shared<Job>(Job{.control = control,
                                       .end = weather_.agenda.now(),
                                       .hangs = weather_.Strikes(weather_.plan.run_hangs, "runs hung")});
  job->finish = [this, task = std::move(task), inputs = std::move(inputs), control, done = std::move(done)] {
    if (weather_.Strikes(weather_.plan.run_fails, "runs failed")) return done(absl::InternalError("out of luck"));
    if (weather_.Strikes(weather_.plan.run_fails_for_good, "runs failed for good")) {
      return done(absl::InvalidArgumentError("this cannot work"));
    }
    if (weather_.Strikes(weather_.plan.run_wrong, "contributions wrong")) return done(std::string("no contribution"));
    inner_.Run(task, inputs, control, done);
  };
  Begin(job, job->hangs || weather_.Strikes(weather_.plan.run_slow, "runs slow"), weather_.plan.run_max);
}

void FaultyRunner::Begin(const std::shared_ptr<Job>& job, bool is_slow, absl::Duration most) {
  const absl::Duration longest = is_slow ? kSlow : most;
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
  // It may own what waits for it.
  std::exchange(job->finish, nullptr)();
}

}  // namespace sheaf::simulation
