#include "worker/relay_runner.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "worker/relay/relayed_round.h"
#include "worker/sequence_driver.h"

namespace sheaf {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);
// Between two calls of which the first was not answered, if the server says nothing else.
constexpr absl::Duration kPause = absl::Seconds(1);
// Between two looks at a round that changes all the time.
constexpr absl::Duration kBreath = absl::Milliseconds(10);

}  // namespace

struct RelayRunner::Task final : PreparedTask {
  explicit Task(v1::RoundSpec the_spec, std::string id) : spec(std::move(the_spec)), request_id(std::move(id)) {}

  const InputRequest& input_request() const override { return nothing; }
  absl::StatusOr<TaskOutcome> Run(const TaskInputs&, RunControl&) override {
    return absl::InternalError("a relayed task is run by its RelayRunner");
  }

  const v1::RoundSpec spec;
  const std::string request_id;
  // Mostly the server below has the broadcast already.
  const InputRequest nothing;
};

RelayRunner::RelayRunner(Parts parts, RelayOptions options, std::vector<std::string> allow)
    : parts_(std::move(parts)),
      options_(std::move(options)),
      offers_(parts_.below, {.population = options_.population, .allow = std::move(allow)}),
      random_(parts_.random) {}

void RelayRunner::LookBelow() {
  const absl::Status seen = offers_.Look();
  MutexLock lock(mutex_);
  if (!seen.ok() && seen.code() != seen_.code()) {
    LogWarning("this relay takes no tasks as long as it has nothing to offer of the server below: {}", seen.ToString());
  }
  if (seen.ok() && !seen_.ok()) LogInfo("the server below answers again");
  seen_ = seen;
}

absl::Duration RelayRunner::offer_pause() const {
  return offers_.newest().empty() ? kLookEvery : absl::InfiniteDuration();
}

void RelayRunner::Prepare(std::shared_ptr<const v1::Lease> lease, std::shared_ptr<RunControl> /*control*/,
                          PrepareDone done) {
  absl::StatusOr<v1::RoundSpec> spec = RelayedSpec(*lease, options_);
  if (!spec.ok()) return done(spec.status());
  done(std::make_shared<Task>(*std::move(spec), RelayedRequestId(*lease)));
}

void RelayRunner::Run(std::shared_ptr<PreparedTask> task, std::shared_ptr<const TaskInputs> inputs,
                      std::shared_ptr<RunControl> control, RunDone done) {
  parts_.spawn([this, task = std::move(task), inputs = std::move(inputs), control = std::move(control),
                done = std::move(done)]() mutable {
    absl::StatusOr<RunOutcome> outcome = Relay(static_cast<const Task&>(*task), *inputs, *control);
    inputs.reset();
    done(std::move(outcome));
  });
}

absl::StatusOr<RunOutcome> RelayRunner::Relay(const Task& task, const TaskInputs& inputs, RunControl& control) {
  RelayedRound round({.spec = task.spec,
                      .request_id = task.request_id,
                      .broadcast = inputs.broadcast,
                      .bytes_max = parts_.contribution_bytes_max});
  CallSequence::NextCall call;
  for (int64_t progress = 0; !round.done();) {
    if (control.is_cancelled()) {
      CancelBelow(task, round.round());
      return absl::CancelledError("told to stop");
    }
    if (call.request == nullptr) call = round.Next();
    const absl::Status status =
        BlockingCallMethod(parts_.below, call.method, *call.request, call.response.get(), {.timeout = kCallTimeout});
    if (IsUnanswered(status)) {
      // Another relay may do it at once.
      if (round.round().empty()) {
        offers_.Withdraw();
        return Declined{fmt::format("the server below does not answer: {}", std::string(status.message()))};
      }
      Pause(status);
      continue;
    }
    const std::string before = round.round();
    round.OnDone(status);
    call = {};
    if (before.empty() && !round.round().empty()) {
      LogInfo("round {} of the server below: {} tasks for {}", round.round(), task.spec.goal(), task.spec.job());
    }
    control.ReportProgress(round.progress() - progress);
    progress = round.progress();
    if (round.is_watching()) parts_.waiter.Wait(kBreath);
  }
  RETURN_IF_ERROR(round.status());
  if (round.needs_broadcast()) return InputRequest{.whole_broadcast = true, .selections = {}};
  return std::move(round).TakeContribution();
}

void RelayRunner::CancelBelow(const Task& task, const std::string& round) {
  if (round.empty()) return;
  v1::CancelRoundRequest request;
  request.set_request_id(task.request_id + "-cancel");
  request.set_round(round);
  request.set_reason("the task that it was for is not this relay's any more");
  const auto cancelled = BlockingCall(parts_.below, kCancelRound, request, {.timeout = kCallTimeout});
  if (!cancelled.ok()) LogWarning("round {} of the server below: {}", round, cancelled.status().ToString());
}

void RelayRunner::Pause(const absl::Status& status) {
  absl::Duration pause;
  {
    MutexLock lock(mutex_);
    pause = PauseAfter(status, kPause, random_);
  }
  parts_.waiter.Wait(pause);
}

}  // namespace sheaf
