#include <fmt/format.h>

#include "cli/commands.h"
#include "proto/methods.h"

namespace sheaf {
namespace {

class TaskRequeue final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Positional("TASK", "the task's id, such as r-7k2m9q4x/17", &task_);
  }

  absl::Status Run(Session& session) override {
    v1::RequeueTaskRequest request;
    request.set_request_id(session.NewRequestId());
    request.set_task(task_);
    ASSIGN_OR_RETURN(const v1::RequeueTaskResponse response, session.Call(kRequeueTask, request));
    if (session.json()) return session.PrintJson(response);
    session.out() << fmt::format("task {} is queued again\n", response.task().id());
    return absl::OkStatus();
  }

 private:
  std::string task_;
};

}  // namespace

std::unique_ptr<Command> MakeTaskRequeue() { return std::make_unique<TaskRequeue>(); }

}  // namespace sheaf
