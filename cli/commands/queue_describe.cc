#include <fmt/format.h>

#include "cli/commands.h"
#include "proto/methods.h"
#include "proto/time.h"

namespace sheaf {
namespace {

class QueueDescribe final : public Command {
 public:
  absl::Status Run(Session& session) override {
    v1::DescribeQueueRequest request;
    request.set_population(session.options().population);
    ASSIGN_OR_RETURN(const v1::DescribeQueueResponse queue, session.Call(kDescribeQueue, request));
    if (session.json()) return session.PrintJson(queue);
    Print(session, queue);
    Explain(session, queue);
    return absl::OkStatus();
  }

 private:
  static void Print(Session& session, const v1::DescribeQueueResponse& queue) {
    Table table({{"POPULATION"},
                 {"ROUNDS", Align::kRight},
                 {"QUEUED", Align::kRight},
                 {"DELAYED", Align::kRight},
                 {"LEASED", Align::kRight},
                 {"SUCCEEDED", Align::kRight},
                 {"FAILED", Align::kRight},
                 {"BURIED", Align::kRight},
                 {"OLDEST", Align::kRight},
                 {"LEASES/S", Align::kRight},
                 {"DONE/S", Align::kRight},
                 {"WAITING WORKERS", Align::kRight}});
    const v1::TaskCounts& tasks = queue.tasks();
    const auto alarming = [](int64_t count) { return Cell(HumanCount(count), count > 0 ? Color::kRed : Color::kNone); };
    table.AddRow({queue.population(), HumanCount(queue.num_live_rounds()), HumanCount(tasks.queued()),
                  HumanCount(queue.num_delayed()), HumanCount(tasks.leased()), HumanCount(tasks.succeeded()),
                  alarming(tasks.failed()), alarming(tasks.buried()),
                  queue.has_oldest_age() ? HumanDuration(FromProto(queue.oldest_age())) : "-",
                  fmt::format("{:.1f}", queue.leases_per_second()),
                  fmt::format("{:.1f}", queue.completions_per_second()), HumanCount(queue.num_parked_polls())});
    session.PrintTable(table);
  }

  // Tasks nobody can run are the commonest reason for a queue that stands still.
  static void Explain(Session& session, const v1::DescribeQueueResponse& queue) {
    if (queue.num_unschedulable() == 0) return;
    session.err() << fmt::format(
        "note: {} queued tasks fit no worker seen lately; 'sheaf worker list' shows what the workers offer\n",
        HumanCount(queue.num_unschedulable()));
  }
};

}  // namespace

std::unique_ptr<Command> MakeQueueDescribe() { return std::make_unique<QueueDescribe>(); }

}  // namespace sheaf
