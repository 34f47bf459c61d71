// Runner: how a worker gets its computations run. The loop hands it work and goes on; the answer comes by callback.
//
//   runner.Prepare(lease, control, [=](absl::StatusOr<std::shared_ptr<PreparedTask>> task) { OnPrepared(task); });
//   runner.Run(task, inputs, control, [=](absl::StatusOr<RunOutcome> outcome) { OnRun(outcome); });
//
// Each callback is called exactly once, from any thread, possibly before the method returns. Cancelling `control` makes
// it come soon. Implementations: computation_runner.h; a test may answer from a script, a simulation when its clock
// says so.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "sdk/cpp/computation/computation.h"
#include "sdk/cpp/computation/run_control.h"
#include "sheaf/v1/computation.pb.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

// As TaskOutcome; the contribution is a serialised v1::Contribution.
using RunOutcome = std::variant<std::string, InputRequest, Declined>;

class Runner {
 public:
  using PrepareDone = std::function<void(absl::StatusOr<std::shared_ptr<PreparedTask>>)>;
  using RunDone = std::function<void(absl::StatusOr<RunOutcome>)>;
  virtual ~Runner() = default;

  // What it can run now.
  virtual std::vector<v1::OfferedComputation> Offers() const = 0;
  // How long until there is more to offer, as far as time alone decides that.
  virtual absl::Duration offer_pause() const { return absl::InfiniteDuration(); }
  // Errors as Computation::Prepare; UNIMPLEMENTED if it does not offer the lease's computation.
  virtual void Prepare(std::shared_ptr<const v1::Lease> lease, std::shared_ptr<RunControl> control,
                       PrepareDone done) = 0;
  // Errors as PreparedTask::Run. After an InputRequest: once more, with what was requested. Holds the task no longer
  // than until `done` is called.
  virtual void Run(std::shared_ptr<PreparedTask> task, std::shared_ptr<const TaskInputs> inputs,
                   std::shared_ptr<RunControl> control, RunDone done) = 0;
};

}  // namespace sheaf
