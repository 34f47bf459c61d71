// Computation: what a worker can run, in two steps, because what to fetch depends on the local data.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<PreparedTask> task, computation.Prepare(lease, control));
//   TaskInputs inputs = Fetch(task->input_request());                       // The loop's work.
//   ASSIGN_OR_RETURN(TaskOutcome outcome, task->Run(inputs, control));      // A contribution, mostly.
//
// To add one: implement both classes, or let ComputationOver do it, and add a row to the table of a worker's main
// (computation_row.h).
// A Computation is thread-safe; a PreparedTask is used by one thread at a time and belongs to one attempt.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregation/wire/tensor.h"
#include "sdk/cpp/computation/run_control.h"
#include "sheaf/v1/aggregation.pb.h"
#include "sheaf/v1/blob_service.pb.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

// What a task needs of the broadcast.
struct InputRequest {
  // The whole file. Kept in the worker's cache, by digest.
  bool whole_broadcast = false;
  // And no error if the round has none. Of an announced round nobody knows while its tasks are prepared.
  bool is_optional = false;
  // Rows of its tensors.
  std::vector<v1::RowSelection> selections;
};

struct TaskInputs {
  // A safetensors file; null unless asked for.
  std::shared_ptr<const std::string> broadcast;
  // The round's, whatever was asked for; empty if it has none.
  std::string broadcast_digest;
  // One per selection, in their order: shape [rows selected, shape of one row...].
  std::vector<NamedTensor> selected;
};

// The task is not for this worker, which gives it back: no failure.
struct Declined {
  // For people; says nothing of the data.
  std::string reason;
};

// What a run comes to: what it returns; or what it needs before it goes on, in another run with that; or nothing.
using TaskOutcome = std::variant<v1::Contribution, InputRequest, Declined>;

class PreparedTask {
 public:
  virtual ~PreparedTask() = default;
  // For the first run.
  virtual const InputRequest& input_request() const = 0;
  // INVALID_ARGUMENT: the task itself is wrong, no other worker would do better; it FAILS at once. Any other error is
  // this attempt's alone.
  virtual absl::StatusOr<TaskOutcome> Run(const TaskInputs& inputs, RunControl& control) = 0;
};

class Computation {
 public:
  virtual ~Computation() = default;
  virtual std::string_view name() const = 0;
  // Highest version it understands, >= 1.
  virtual int version() const = 0;
  // It takes tasks now. Those that come nevertheless are declined.
  virtual bool is_offered() const { return true; }
  // While it is not offered: how long until it is again, as far as time alone decides that.
  virtual absl::Duration offer_pause() const { return absl::InfiniteDuration(); }
  // Reads local data; may take long the first time. What is done here need not wait for the model: of an announced
  // round it happens while the rounds before it run, and lease.broadcast_digest() is empty. Errors as in
  // PreparedTask::Run.
  virtual absl::StatusOr<std::unique_ptr<PreparedTask>> Prepare(const v1::Lease& lease, RunControl& control) const = 0;
};

}  // namespace sheaf
