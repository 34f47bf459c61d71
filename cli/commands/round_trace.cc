#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/commands.h"
#include "cli/commands/paging.h"
#include "cli/files.h"
#include "cli/terminal/errors.h"
#include "cli/trace_events.h"
#include "proto/methods.h"

namespace sheaf {
namespace {

// Each takes a call. A viewer that shows more shows nothing.
constexpr int64_t kTasksDefault = 2000;

class RoundTrace final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Positional("ROUND", "the round's id", &round_);
    arguments.Text("-o,--output", "FILE", "where to; - is stdout [-]", &path_);
    arguments.Number("--tasks", "N", "tasks to show, and the one of the critical path; 0 shows all", {.min = 0},
                     &tasks_);
    arguments.Flag("--force", "replace the file if it is there", &force_);
  }

  absl::Status Run(Session& session) override {
    const bool is_stdout = path_.empty() || path_ == "-";
    if (!is_stdout && !force_ && FileExists(path_)) return ExistsAlready(path_);
    v1::GetRoundRequest request;
    request.set_round(round_);
    ASSIGN_OR_RETURN(const v1::GetRoundResponse response, session.Call(kGetRound, request));
    const v1::Round& round = response.round();
    ASSIGN_OR_RETURN(const std::vector<v1::Task> tasks, ReadTasks(session, round));
    const std::string json = TraceEvents(round, tasks, session.now());
    if (is_stdout) {
      session.out() << json;
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(WriteFile(path_, json, force_ ? Overwrite::kYes : Overwrite::kNo));
    session.err() << fmt::format("wrote {} ({}, {} tasks): open it in https://ui.perfetto.dev\n", path_,
                                 HumanBytes(static_cast<int64_t>(json.size())),
                                 HumanCount(static_cast<int64_t>(tasks.size())));
    return absl::OkStatus();
  }

 private:
  // Those that a worker ever had, with their attempts: a call for each.
  absl::StatusOr<std::vector<v1::Task>> ReadTasks(Session& session, const v1::Round& round) const {
    v1::ListTasksRequest request;
    request.set_population(round.spec().population());
    request.set_round(round.id());
    ASSIGN_OR_RETURN(const v1::ListTasksResponse listed,
                     ListAll(session, kListTasks, request, tasks_, [](auto& page) { return page.mutable_tasks(); }));
    std::vector<std::string> ids;
    for (const v1::Task& task : listed.tasks()) {
      if (task.num_attempts() > 0) ids.push_back(task.id());
    }
    if (!listed.next_page_token().empty()) {
      session.err() << fmt::format("note: these are the first {} tasks; --tasks 0 shows all\n", HumanCount(tasks_));
      // The story of the round's end is told in any case.
      for (const v1::PhaseInterval& interval : round.critical_path()) {
        if (interval.task().empty()) continue;
        if (std::find(ids.begin(), ids.end(), interval.task()) == ids.end()) ids.push_back(interval.task());
        break;
      }
    }
    std::vector<v1::Task> tasks;
    for (const std::string& id : ids) {
      v1::GetTaskRequest get;
      get.set_task(id);
      ASSIGN_OR_RETURN(v1::GetTaskResponse got, session.Call(kGetTask, get));
      tasks.push_back(std::move(*got.mutable_task()));
    }
    return tasks;
  }

  std::string round_;
  std::string path_;
  int64_t tasks_ = kTasksDefault;
  bool force_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeRoundTrace() { return std::make_unique<RoundTrace>(); }

}  // namespace sheaf
