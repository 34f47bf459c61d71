#include "worker/runners/executable_task.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "aggregation/aggregate_spec.h"
#include "aggregation/contribution_validator.h"
#include "aggregation/operators.h"
#include "aggregation/refusal.h"
#include "aggregation/wire/safetensors.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "worker/processes/sandbox.h"
#include "worker/runners/task_description.h"

namespace sheaf {
namespace {

constexpr char kBusy[] = "all processes of this computation are busy";
constexpr char kResult[] = "result.safetensors";
constexpr char kMetrics[] = "metrics.json";
constexpr char kParams[] = "params.safetensors";
constexpr int64_t kMetricsBytesMax = 1 << 20;
// Between two looks at whether the task was cancelled and at what the program uses.
constexpr absl::Duration kLookEvery = absl::Milliseconds(50);
// A program that reads no line for so long is not going to.
constexpr absl::Duration kSayTimeout = absl::Seconds(10);
constexpr int kLooksForEnd = 20;
// Of what a program says of an error, to the server or to the log.
constexpr size_t kKindBytesMax = 256;
constexpr size_t kMessageBytesMax = 1024;

// Exit codes, of docs/reference/runner.md.
constexpr int kExitDeclined = 10;
constexpr int kExitWrongTask = 12;

// On disk: where what is named so is.
bool IsFileOrFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// What a sandboxed program has to read: its data, and the folders of the files that its command names.
std::vector<std::string> ReadablePaths(const Executable& executable, const ExecutableSurroundings& surroundings,
                                       const std::string& broadcasts) {
  std::vector<std::string> paths = surroundings.readable;
  for (const auto& [name, path] : surroundings.data) paths.push_back(path);
  for (const std::string& word : executable.arguments) {
    if (!IsFileOrFolder(word)) continue;
    const std::filesystem::path folder = std::filesystem::absolute(word).parent_path();
    if (folder != folder.root_path()) paths.push_back(folder);
  }
  if (IsFileOrFolder(broadcasts)) paths.push_back(broadcasts);
  return paths;
}

// As JSON. A path need not be UTF-8, and a line must be.
std::string Quoted(const std::string& path) {
  return nlohmann::json(path).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The value of a variable of ours, or what it is without one.
std::string VariableOr(const char* name, const char* otherwise) {
  const char* const value = getenv(name);
  return value != nullptr ? value : otherwise;
}

}  // namespace

ExecutableTask::~ExecutableTask() {
  if (is_begun_) parts_.use.End({.is_ahead = is_ahead_, .has_declined = has_declined_});
  // Else the directory goes with its process.
  if (parts_.executable.stays || has_started_ || !directory_.has_value()) return;
  std::error_code error;
  std::filesystem::remove_all(directory_->path(), error);
}

absl::Status ExecutableTask::Begin(RunControl& control) {
  if (lease_.announced()) {
    // A process that is started for its task has nothing to prepare.
    is_ahead_ = parts_.executable.stays && parts_.use.Begin({.is_ahead = true});
    is_begun_ = is_ahead_;
    return is_begun_ ? SetOut(control) : absl::OkStatus();
  }
  is_begun_ = parts_.use.Begin({});
  if (is_begun_) return SetOut(control);
  outcome_ = TaskOutcome(Declined{kBusy});
  return absl::OkStatus();
}

absl::Status ExecutableTask::SetOut(RunControl& control) {
  if (!parts_.executable.stays) {
    ASSIGN_OR_RETURN(std::string path, parts_.host.MakeDirectory());
    RETURN_IF_ERROR(MakeDirectory(std::move(path)));
    request_ = {.whole_broadcast = true, .is_optional = true, .selections = {}};
    return absl::OkStatus();
  }
  // Once for all that it asks for meanwhile.
  look_time_ = parts_.clock.Now() + kLookEvery;
  RETURN_IF_ERROR(TakeProcess());
  Outcome outcome = Listen(control);
  if (outcome.ok() && std::holds_alternative<InputRequest>(*outcome)) {
    request_ = std::get<InputRequest>(*std::move(outcome));
  } else {
    outcome_ = std::move(outcome);
  }
  return absl::OkStatus();
}

absl::StatusOr<TaskOutcome> ExecutableTask::Run(const TaskInputs& inputs, RunControl& control) {
  if (std::exchange(is_ahead_, false)) parts_.use.Run();
  if (!is_begun_ && !outcome_.has_value()) {
    is_begun_ = parts_.use.Begin({});
    if (!is_begun_) return Declined{kBusy};
    RETURN_IF_ERROR(SetOut(control));
    if (!outcome_.has_value()) return request_;
  }
  if (outcome_.has_value()) return *std::exchange(outcome_, std::nullopt);
  RETURN_IF_ERROR(Give(inputs));
  return Listen(control);
}

// --- The process and its files ---

absl::Status ExecutableTask::MakeDirectory(std::string path) {
  ASSIGN_OR_RETURN(directory_, TaskDirectory::Open(std::move(path)));
  return directory_->Write("task.json", TaskDescription(lease_, parts_.surroundings.data, parts_.executable.limits));
}

absl::Status ExecutableTask::StartProcess(const std::string& directory) {
  const Executable& executable = parts_.executable;
  const ExecutableSurroundings& surroundings = parts_.surroundings;
  ProcessSpec spec{.arguments = executable.arguments,
                   .environment = surroundings.environment,
                   .directory = directory,
                   .limits = executable.limits,
                   .is_watched_at_once = !executable.stays};
  // What the operator says goes before what we say. Of two variables of one name some programs take the first, and some
  // the last.
  const auto add = [&](std::string_view name, std::string_view value) {
    const std::string begin = fmt::format("{}=", name);
    const auto is_same = [&](const std::string& said) { return said.starts_with(begin); };
    if (std::any_of(surroundings.environment.begin(), surroundings.environment.end(), is_same)) return;
    spec.environment.push_back(fmt::format("{}{}", begin, value));
  };
  add("PATH", VariableOr("PATH", "/usr/local/bin:/usr/bin:/bin"));
  add("LANG", VariableOr("LANG", "C.UTF-8"));
  add("HOME", directory);
  add("TMPDIR", directory);
  if (surroundings.data.size() == 1) add("SHEAF_DATA", surroundings.data.begin()->second);
  if (executable.stays) {
    add("SHEAF_SERVE", "1");
  } else {
    spec.arguments.push_back(directory);
    add("SHEAF_TASK_DIR", directory);
    add("SHEAF_TASK", lease_.task());
    add("SHEAF_ROUND", lease_.round());
  }
  if (!surroundings.bwrap.empty()) {
    spec.arguments = Sandboxed(
        surroundings.bwrap, spec.arguments,
        {.writable = directory, .readable = ReadablePaths(executable, surroundings, parts_.broadcasts.folder())});
  }
  ASSIGN_OR_RETURN(process_, parts_.host.Start(spec));
  has_started_ = true;
  return absl::OkStatus();
}

absl::Status ExecutableTask::TakeProcess() {
  process_ = parts_.use.TakeIdle();
  // One that ended while it had nothing to do is none; what one says meanwhile would be taken for this task's.
  while (process_ != nullptr && process_->Wait(absl::ZeroDuration()).kind != ProcessEvent::Kind::kNothing) {
    process_ = parts_.use.TakeIdle();
  }
  if (process_ == nullptr) {
    ASSIGN_OR_RETURN(const std::string path, parts_.host.MakeDirectory());
    RETURN_IF_ERROR(StartProcess(path));
  }
  // Another for each task: what the program still writes for the last one is not taken for this one's.
  std::string path = fmt::format("{}/task-XXXXXX", process_->directory());
  if (mkdtemp(path.data()) == nullptr) {
    return absl::InternalError(fmt::format("cannot make the directory {}: {}", path, strerror(errno)));
  }
  ASSIGN_OR_RETURN(directory_, TaskDirectory::Open(path));
  const std::string task = TaskDescription(lease_, parts_.surroundings.data, parts_.executable.limits);
  RETURN_IF_ERROR(directory_->Write("task.json", task));
  return Say(fmt::format(R"({{"task": {}, "directory": {}}})", task, Quoted(path)));
}

void ExecutableTask::GiveBackProcess() {
  if (!parts_.executable.stays) return;
  process_->Rest();
  std::error_code error;
  std::filesystem::remove_all(directory_->path(), error);
  // What cannot be deleted would be in the way of the next task.
  if (error) return;
  parts_.use.GiveIdle(std::move(process_));
}

absl::Status ExecutableTask::Say(const std::string& line) {
  absl::Status said = process_->Say(line, kSayTimeout);
  if (said.ok()) return said;
  // Why it does not read is the better answer, if it has ended, which is heard a moment later.
  for (int look = 0; look < kLooksForEnd; ++look) {
    if (process_->Wait(kLookEvery).kind == ProcessEvent::Kind::kEnded) return Ended().status();
  }
  return Failure(std::string(said.message()), "", /*is_permanent=*/false).status();
}

absl::Status ExecutableTask::LinkBroadcast(const std::string& digest, std::string_view bytes) {
  ASSIGN_OR_RETURN(broadcast_, parts_.broadcasts.Hold(digest, bytes));
  return directory_->Link(kParams, broadcast_->path());
}

absl::Status ExecutableTask::Give(const TaskInputs& inputs) {
  // Who asks again has it. Whoever asks and gets none prepared for a round that was opened without one.
  if (broadcast_ == nullptr && inputs.broadcast != nullptr) {
    RETURN_IF_ERROR(LinkBroadcast(inputs.broadcast_digest, *inputs.broadcast));
  } else if (broadcast_ == nullptr && wants_ == Wants::kBroadcast) {
    const std::string no_tensors = EncodeSafetensors(std::vector<NamedTensor>{}, {});
    RETURN_IF_ERROR(LinkBroadcast(Sha256Hex(no_tensors), no_tensors));
  }
  switch (wants_) {
    case Wants::kToStart:
      return StartProcess(directory_->path());
    case Wants::kBroadcast:
      return Say(fmt::format(R"({{"broadcast": "{}"}})", kParams));
    case Wants::kRows: {
      const std::string file = fmt::format("rows-{}.safetensors", ++num_row_files_);
      RETURN_IF_ERROR(directory_->WriteTensors(file, inputs.selected));
      return Say(fmt::format(R"({{"rows": "{}"}})", file));
    }
  }
  return absl::OkStatus();
}

// --- What it says ---

absl::StatusOr<TaskOutcome> ExecutableTask::Listen(RunControl& control) {
  for (;;) {
    if (control.is_cancelled()) {
      process_.reset();
      return absl::CancelledError("told to stop");
    }
    const ProcessEvent event = process_->Wait(kLookEvery);
    // Also if it never stops talking.
    if (parts_.clock.Now() >= look_time_) NoteCpuTime(control);
    switch (event.kind) {
      case ProcessEvent::Kind::kNothing:
        break;
      case ProcessEvent::Kind::kEnded:
        return Ended();
      case ProcessEvent::Kind::kLine: {
        absl::StatusOr<SaidLine> said = ParseSaidLine(event.line);
        if (!said.ok()) return Failure(std::string(said.status().message()), "", /*is_permanent=*/false);
        if (std::optional<Outcome> outcome = Act(*std::move(said), control)) return *std::move(outcome);
      }
    }
  }
}

void ExecutableTask::NoteCpuTime(RunControl& control) {
  look_time_ = parts_.clock.Now() + kLookEvery;
  if (parts_.executable.stays && !process_->is_watched()) process_->Watch(directory_->path());
  if (says_progress_ || process_->cpu_time() <= cpu_time_) return;
  cpu_time_ = process_->cpu_time();
  control.ReportProgress();
}

std::optional<absl::StatusOr<TaskOutcome>> ExecutableTask::Act(SaidLine line, RunControl& control) {
  if (const auto* said = std::get_if<SaidProgress>(&line)) {
    if (!says_progress_ || said->value > progress_) control.ReportProgress();
    progress_ = says_progress_ ? std::max(progress_, said->value) : said->value;
    says_progress_ = true;
    return std::nullopt;
  }
  if (const auto* said = std::get_if<SaidUpdate>(&line)) {
    const absl::Status folded = Fold(*said);
    control.ReportProgress();
    if (folded.ok()) return std::nullopt;
    return Wrong(folded);
  }
  if (const auto* wanted = std::get_if<WantedRows>(&line)) {
    absl::StatusOr<InputRequest> request = Request(*wanted);
    if (!request.ok()) return Wrong(request.status());
    wants_ = Wants::kRows;
    return Outcome(*std::move(request));
  }
  if (std::holds_alternative<WantedBroadcast>(line)) {
    wants_ = Wants::kBroadcast;
    // Whoever prepares cannot know yet whether the round will have one.
    return Outcome(InputRequest{.whole_broadcast = true, .is_optional = lease_.announced(), .selections = {}});
  }
  if (const auto* said = std::get_if<SaidDone>(&line)) return Done(said->metrics);
  if (const auto* said = std::get_if<SaidFailed>(&line)) {
    Outcome failure = Failure(said->kind, said->message, said->is_permanent);
    GiveBackProcess();
    return failure;
  }
  const auto& said = std::get<SaidDeclined>(line);
  LogInfo("task {}: {} declined it: {}", lease_.task(), parts_.executable.name, CutUtf8(said.reason, kMessageBytesMax));
  has_declined_ = true;
  GiveBackProcess();
  return Outcome(Declined{"there is no data for it here"});
}

absl::StatusOr<InputRequest> ExecutableTask::Request(const WantedRows& wanted) const {
  InputRequest request;
  const auto add = [&request](const std::string& tensor, const int64_t* begin, const int64_t* end) {
    v1::RowSelection& selection = request.selections.emplace_back();
    selection.set_tensor(tensor);
    selection.mutable_rows()->Assign(begin, end);
  };
  for (const auto& [tensor, rows] : wanted.rows) add(tensor, rows.data(), rows.data() + rows.size());
  if (wanted.file.empty()) return request;
  ASSIGN_OR_RETURN(const std::vector<NamedTensor> tensors, directory_->ReadTensors(wanted.file, output_bytes_max()));
  for (const NamedTensor& tensor : tensors) {
    if (tensor.dtype != v1::INT64) {
      return absl::InvalidArgumentError(fmt::format("the rows wanted of '{}' are not I64", tensor.name));
    }
    std::vector<int64_t> rows(tensor.data.size() / sizeof(int64_t));
    if (!rows.empty()) std::memcpy(rows.data(), tensor.data.data(), rows.size() * sizeof(int64_t));
    add(tensor.name, rows.data(), rows.data() + rows.size());
  }
  directory_->Remove(wanted.file);
  return request;
}

absl::Status ExecutableTask::Fold(const SaidUpdate& update) {
  if (!sum_.has_value()) {
    ASSIGN_OR_RETURN(sum_, RoundAccumulator::Create(lease_.aggregate()));
  }
  ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors, directory_->ReadTensors(update.file, output_bytes_max()));
  ASSIGN_OR_RETURN(v1::Contribution contribution,
                   ContributionOf(std::move(tensors), update.metrics, lease_.aggregate()));
  ASSIGN_OR_RETURN(const ValidContribution valid, sum_->Validate(std::move(contribution)));
  sum_->Accumulate(valid);
  for (const auto& [name, value] : update.metrics.others) metric_sums_[name] += value;
  ++num_updates_;
  directory_->Remove(update.file);
  return absl::OkStatus();
}

absl::StatusOr<TaskOutcome> ExecutableTask::Done(const std::optional<ResultMetrics>& said) {
  std::error_code error;
  const bool is_there =
      sum_.has_value() || std::filesystem::exists(fmt::format("{}/{}", directory_->path(), kResult), error);
  Outcome result = Result(said);
  // Also if the result is wrong: the next may be right. Where there is none, the program may have meant the task
  // before, and would answer each task with the one before it from here on.
  if (is_there) GiveBackProcess();
  return result;
}

absl::StatusOr<TaskOutcome> ExecutableTask::Result(const std::optional<ResultMetrics>& said) {
  if (sum_.has_value()) return PartialAggregate();
  const auto read = [&]() -> absl::StatusOr<v1::Contribution> {
    ResultMetrics metrics = said.value_or(ResultMetrics());
    if (!said.has_value()) {
      const absl::StatusOr<std::string> text = directory_->Read(kMetrics, kMetricsBytesMax);
      if (!absl::IsNotFound(text.status())) RETURN_IF_ERROR(text.status());
      if (text.ok()) {
        ASSIGN_OR_RETURN(metrics, ParseResultMetrics(*text));
      }
    }
    ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors, directory_->ReadTensors(kResult, output_bytes_max()));
    ASSIGN_OR_RETURN(v1::Contribution contribution, ContributionOf(std::move(tensors), metrics, lease_.aggregate()));
    // The server would say the same, but to nobody who can see this program.
    ASSIGN_OR_RETURN(std::vector<OutputLayout> layouts, LayoutsOf(lease_.aggregate(), Operators()));
    ASSIGN_OR_RETURN(ValidContribution valid,
                     ContributionValidator(std::move(layouts)).Validate(std::move(contribution)));
    return std::move(valid).Take();
  };
  absl::StatusOr<v1::Contribution> contribution = read();
  if (!contribution.ok()) return Wrong(contribution.status());
  return TaskOutcome(*std::move(contribution));
}

v1::Contribution ExecutableTask::PartialAggregate() const {
  v1::Contribution partial = sum_->PartialAggregate();
  for (const auto& [name, total] : metric_sums_) {
    (*partial.mutable_metrics())[name] = total / static_cast<double>(num_updates_);
  }
  return partial;
}

absl::StatusOr<TaskOutcome> ExecutableTask::Ended() {
  const ProcessEnd& end = process_->end();
  if (!parts_.executable.stays && end.exit_code == 0) return Done(std::nullopt);
  if (end.exit_code == kExitDeclined) {
    has_declined_ = true;
    return TaskOutcome(Declined{"there is no data for it here"});
  }
  return Failure(end.Text(), "", end.exit_code == kExitWrongTask);
}

// --- What goes wrong ---

absl::StatusOr<TaskOutcome> ExecutableTask::Failure(std::string_view kind, std::string_view message,
                                                    bool is_permanent) {
  LogPrinted();
  const std::string text = fmt::format("{} failed: {}", parts_.executable.name, CutUtf8(kind, kKindBytesMax));
  const std::string with_message =
      message.empty() ? text : fmt::format("{}: {}", text, CutUtf8(message, kMessageBytesMax));
  const std::string& told = parts_.surroundings.shares_errors ? with_message : text;
  if (told != with_message) LogWarning("task {}: {}", lease_.task(), with_message);
  return is_permanent ? absl::InvalidArgumentError(told) : absl::UnknownError(told);
}

absl::Status ExecutableTask::Wrong(const absl::Status& status) {
  const std::string kind = RefusalOf(status).kind == RefusalKind::kUnspecified ? "" : RefusalOf(status).Summary();
  return Failure(fmt::format("what it returned cannot be used{}{}", kind.empty() ? "" : ": ", kind),
                 std::string(status.message()),
                 /*is_permanent=*/false)
      .status();
}

void ExecutableTask::LogPrinted() const {
  if (process_ == nullptr || process_->printed().empty()) return;
  LogWarning("task {}: {} printed last:\n{}", lease_.task(), parts_.executable.name, process_->printed());
}

}  // namespace sheaf
