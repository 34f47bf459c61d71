// ExecutableTask: one task that an executable computes, from its directory to its contribution.
//
//   begun -> [rows or the broadcast are wanted -> fetched ->]* done | declined | failed
//
// One that stays hears of the task at once, and may ask for rows before it computes and while it does. Of one that is
// started for the task, the broadcast is fetched first. A task of an announced round begins ahead, if there is a
// process for it that no running task may need; else when it runs.
//
//   ExecutableTask task(lease, parts);
//   RETURN_IF_ERROR(task.Begin(control));
//   const TaskInputs inputs = Fetch(task.input_request());              // The loop's work.
//   ASSIGN_OR_RETURN(const TaskOutcome outcome, task.Run(inputs, control));
//
// Destroyed before it is done, it kills the process. Blocks while the program computes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/round_accumulator.h"
#include "base/clock.h"
#include "sdk/cpp/computation/computation.h"
#include "worker/processes/process_host.h"
#include "worker/runners/broadcast_files.h"
#include "worker/runners/executable.h"
#include "worker/runners/executable_use.h"
#include "worker/runners/said_line.h"
#include "worker/runners/task_directory.h"

namespace sheaf {

class ExecutableTask final : public PreparedTask {
 public:
  // All outlive it.
  struct Parts {
    const Executable& executable;
    const ExecutableSurroundings& surroundings;
    ProcessHost& host;
    BroadcastFiles& broadcasts;
    ExecutableUse& use;
    const Clock& clock;
  };
  ExecutableTask(const v1::Lease& lease, const Parts& parts) : lease_(lease), parts_(parts) {}
  ~ExecutableTask() override;

  // Errors as Computation::Prepare.
  absl::Status Begin(RunControl& control);
  const InputRequest& input_request() const override { return request_; }
  absl::StatusOr<TaskOutcome> Run(const TaskInputs& inputs, RunControl& control) override;

 private:
  using Outcome = absl::StatusOr<TaskOutcome>;

  // Has a place among the executable's tasks: gets ready what the program is told first, and hears what it wants.
  absl::Status SetOut(RunControl& control);
  absl::Status MakeDirectory(std::string path);
  // With `directory` as its own.
  absl::Status StartProcess(const std::string& directory);
  // One that stays, and tells it of the task.
  absl::Status TakeProcess();
  // It waits for the next task.
  void GiveBackProcess();
  absl::Status Give(const TaskInputs& inputs);
  absl::Status LinkBroadcast(const std::string& digest, std::string_view bytes);
  absl::Status Say(const std::string& line);

  // Until the program has said something that somebody else must do, or has ended.
  Outcome Listen(RunControl& control);
  void NoteCpuTime(RunControl& control);
  // Nothing, if there is more to listen to.
  std::optional<Outcome> Act(SaidLine said, RunControl& control);
  absl::StatusOr<InputRequest> Request(const WantedRows& wanted) const;
  absl::Status Fold(const SaidUpdate& update);
  Outcome Done(const std::optional<ResultMetrics>& said);
  Outcome Result(const std::optional<ResultMetrics>& said);
  // Of the updates.
  v1::Contribution PartialAggregate() const;
  Outcome Ended();
  Outcome Failure(std::string_view kind, std::string_view message, bool is_permanent);
  // Something that the program returned is wrong: its own worker hears what, the server what kind of thing.
  absl::Status Wrong(const absl::Status& status);
  void LogPrinted() const;
  int64_t output_bytes_max() const { return parts_.executable.limits.output_bytes; }

  const v1::Lease lease_;
  const Parts parts_;
  bool is_begun_ = false;
  // It has begun, and its round may not have opened yet.
  bool is_ahead_ = false;
  bool has_declined_ = false;
  // A process has the directory.
  bool has_started_ = false;

  std::unique_ptr<Process> process_;
  std::optional<TaskDirectory> directory_;
  // What the program may map goes when the task does.
  std::shared_ptr<const BroadcastFile> broadcast_;

  // What the program waits for.
  enum class Wants { kToStart, kBroadcast, kRows };
  Wants wants_ = Wants::kToStart;
  InputRequest request_;
  // It was heard before anybody asked.
  std::optional<Outcome> outcome_;
  int num_row_files_ = 0;

  // From when on what it uses is looked at: most tasks are over before.
  absl::Time look_time_;
  bool says_progress_ = false;
  double progress_ = 0;
  absl::Duration cpu_time_;

  // Of the updates of its clients, if it sends any.
  std::optional<RoundAccumulator> sum_;
  std::map<std::string, double> metric_sums_;
  int64_t num_updates_ = 0;
};

}  // namespace sheaf
