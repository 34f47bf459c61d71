#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/terminal/field_list.h"
#include "cli/terminal/state_text.h"
#include "proto/methods.h"
#include "proto/time.h"

namespace sheaf {
namespace {

// "-" for what was not measured.
std::string MeasuredTime(const google::protobuf::Duration& duration) {
  return FromProto(duration) == absl::ZeroDuration() ? "-" : HumanDuration(FromProto(duration));
}

class TaskDescribe final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Positional("TASK", "the task's id, such as r-7k2m9q4x/17", &task_);
    arguments.Choice("--time", "ages, or ISO 8601 times", {"relative", "iso"}, &time_);
  }

  absl::Status Run(Session& session) override {
    v1::GetTaskRequest request;
    request.set_task(task_);
    ASSIGN_OR_RETURN(const v1::GetTaskResponse response, session.Call(kGetTask, request));
    if (session.json()) return session.PrintJson(response);
    const TimeText time{.style = time_ == "iso" ? TimeStyle::kIso : TimeStyle::kRelative, .now = session.now()};
    PrintFields(session, response.task(), time);
    PrintAttempts(session, response.task(), time);
    return absl::OkStatus();
  }

 private:
  static void PrintFields(Session& session, const v1::Task& task, const TimeText& time) {
    FieldList fields;
    fields.Add("Task", {task.id(), Color::kBold});
    fields.Add("State", StateCell(task.state()));
    fields.AddIf("Data", task.data_selector());
    fields.AddIf("Worker", task.worker());
    if (!task.origin().empty()) {
      fields.Add("Carried over", fmt::format("from {}, through {} round{}", task.origin(), task.staleness(),
                                             task.staleness() == 1 ? "" : "s"));
    }
    fields.AddIf("Goes on as", task.carried_to());
    fields.Add("Attempts",
               fmt::format("{}, of these {} failed, {} lost", task.num_attempts(), task.num_failed(), task.num_lost()));
    fields.AddIf("Last error", {task.last_error(), Color::kRed});
    fields.Add("Created", time(task.create_time()));
    if (task.state() == v1::QUEUED) fields.Add("Available", time(task.available_time()));
    if (task.has_end_time()) fields.Add("Ended", time(task.end_time()));
    session.out() << fields.Render(session.table_style());
  }

  static void PrintAttempts(Session& session, const v1::Task& task, const TimeText& time) {
    if (task.attempts().empty()) {
      session.out() << "\nNo attempt yet.\n";
      return;
    }
    Table table({{"#", Align::kRight},
                 {"WORKER"},
                 {"OUTCOME"},
                 {"LEASED"},
                 {"ENDED"},
                 {"TOOK", Align::kRight},
                 {"DOWNLOAD", Align::kRight},
                 {"PREPARE", Align::kRight},
                 {"COMPUTE", Align::kRight},
                 {"UPLOAD", Align::kRight},
                 {"DOWN", Align::kRight},
                 {"UP", Align::kRight},
                 {"ERROR"}});
    for (const v1::Attempt& attempt : task.attempts()) {
      const bool ended = attempt.has_end_time();
      const absl::Time until = ended ? FromProto(attempt.end_time()) : session.now();
      const v1::AttemptTimings& timings = attempt.timings();
      table.AddRow({fmt::format("{}", attempt.number()), attempt.worker(), OutcomeCell(attempt.outcome()),
                    time(attempt.lease_time()),
                    ended ? time(attempt.end_time()) : fmt::format("(expires {})", time(attempt.expire_time())),
                    HumanDuration(until - FromProto(attempt.lease_time())), MeasuredTime(timings.download()),
                    MeasuredTime(timings.prepare()), MeasuredTime(timings.compute()), MeasuredTime(timings.upload()),
                    HumanBytes(timings.bytes_down()), HumanBytes(attempt.bytes_up()), attempt.error()});
    }
    TableStyle style = session.table_style();
    style.indent = 2;
    session.out() << "\nAttempts\n" << table.Render(style);
  }

  std::string task_;
  std::string time_ = "relative";
};

}  // namespace

std::unique_ptr<Command> MakeTaskDescribe() { return std::make_unique<TaskDescribe>(); }

}  // namespace sheaf
