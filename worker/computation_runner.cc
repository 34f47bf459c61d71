#include "worker/computation_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/status_macros.h"

namespace sheaf {
namespace {

// A computation may use libraries that throw, and memory may run out: an attempt fails, the worker goes on.
template <typename T, typename Body>
absl::StatusOr<T> Guarded(Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return absl::InternalError(fmt::format("the computation threw: {}", error.what()));
  }
}

}  // namespace

std::vector<v1::OfferedComputation> ComputationRunner::Offers() const {
  std::vector<v1::OfferedComputation> offers;
  for (const auto& computation : computations_) {
    if (!computation->is_offered()) continue;
    v1::OfferedComputation& offer = offers.emplace_back();
    offer.set_name(std::string(computation->name()));
    offer.set_version(computation->version());
  }
  return offers;
}

absl::Duration ComputationRunner::offer_pause() const {
  absl::Duration pause = absl::InfiniteDuration();
  for (const auto& computation : computations_) {
    if (!computation->is_offered()) pause = std::min(pause, computation->offer_pause());
  }
  return pause;
}

absl::StatusOr<const Computation*> ComputationRunner::Find(const v1::Computation& wanted) const {
  for (const auto& computation : computations_) {
    if (computation->name() != wanted.name()) continue;
    if (computation->version() >= wanted.version_min()) return computation.get();
    return absl::UnimplementedError(
        fmt::format("this worker's \"{}\" has version {} and the round needs {}: upgrade it", wanted.name(),
                    computation->version(), wanted.version_min()));
  }
  return absl::UnimplementedError(fmt::format("this worker does not offer the computation \"{}\"", wanted.name()));
}

void ComputationRunner::Prepare(std::shared_ptr<const v1::Lease> lease, std::shared_ptr<RunControl> control,
                                PrepareDone done) {
  spawn_([this, lease = std::move(lease), control = std::move(control), done = std::move(done)] {
    done(Guarded<std::shared_ptr<PreparedTask>>([&]() -> absl::StatusOr<std::shared_ptr<PreparedTask>> {
      ASSIGN_OR_RETURN(const Computation* computation, Find(lease->computation()));
      ASSIGN_OR_RETURN(std::unique_ptr<PreparedTask> task, computation->Prepare(*lease, *control));
      return std::shared_ptr<PreparedTask>(std::move(task));
    }));
  });
}

void ComputationRunner::Run(std::shared_ptr<PreparedTask> task, std::shared_ptr<const TaskInputs> inputs,
                            std::shared_ptr<RunControl> control, RunDone done) {
  spawn_([task = std::move(task), inputs = std::move(inputs), control = std::move(control),
          done = std::move(done)]() mutable {
    absl::StatusOr<RunOutcome> run = Guarded<RunOutcome>([&]() -> absl::StatusOr<RunOutcome> {
      if (control->is_cancelled()) return absl::CancelledError("told to stop");
      ASSIGN_OR_RETURN(TaskOutcome outcome, task->Run(*inputs, *control));
      if (auto* contribution = std::get_if<v1::Contribution>(&outcome)) return contribution->SerializeAsString();
      if (auto* request = std::get_if<InputRequest>(&outcome)) return std::move(*request);
      return std::get<Declined>(std::move(outcome));
    });
    // Before anybody hears of it: whoever offers computations next finds the place of this one free.
    task.reset();
    inputs.reset();
    done(std::move(run));
  });
}

}  // namespace sheaf
