#include "cli/commands.h"
#include "cli/commands/paging.h"
#include "cli/terminal/state_text.h"
#include "proto/methods.h"

namespace sheaf {
namespace {

class TaskList final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Text("--round", "ROUND", "only tasks of this round", &round_);
    arguments.Choices("--state", "STATE", "only tasks in this state", TaskStateNames(), &states_);
    arguments.Text("--worker", "NAME", "only tasks that this worker holds or completed", &worker_);
    arguments.Number("--limit", "N", "stop after this many; 0 shows all", {.min = 0}, &limit_);
    DeclarePageToken(arguments, &page_token_);
  }

  absl::Status Run(Session& session) override {
    v1::ListTasksRequest request;
    request.set_population(session.options().population);
    request.set_page_token(page_token_);
    request.set_round(round_);
    for (const std::string& state : states_) request.add_states(ParseTaskState(state));
    request.set_worker(worker_);
    ASSIGN_OR_RETURN(v1::ListTasksResponse response,
                     ListAll(session, kListTasks, request, limit_, [](auto& page) { return page.mutable_tasks(); }));
    if (session.json()) return session.PrintJson(response);
    Print(session, response);
    NoteIfCut(session, response, limit_);
    return absl::OkStatus();
  }

 private:
  static void Print(Session& session, const v1::ListTasksResponse& response) {
    Table table({{"TASK"},
                 {"STATE"},
                 {"DATA"},
                 {"WORKER"},
                 {"ATTEMPTS", Align::kRight},
                 {"FAILED", Align::kRight},
                 {"LOST", Align::kRight},
                 {"AGE", Align::kRight},
                 {"LAST ERROR"}});
    for (const v1::Task& task : response.tasks()) {
      table.AddRow({task.id(), StateCell(task.state()), task.data_selector(), task.worker(),
                    HumanCount(task.num_attempts()), HumanCount(task.num_failed()), HumanCount(task.num_lost()),
                    AgeOf(task.create_time(), session.now()), task.last_error()});
    }
    session.PrintTable(table);
  }

  std::string round_;
  std::vector<std::string> states_;
  std::string worker_;
  int64_t limit_ = kListLimitDefault;
  std::string page_token_;
};

}  // namespace

std::unique_ptr<Command> MakeTaskList() { return std::make_unique<TaskList>(); }

}  // namespace sheaf
