#include "server/core/explain.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

constexpr int kErrorsShown = 3;

std::string Plural(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string Ago(absl::Duration duration) {
  return absl::FormatDuration(
      absl::Trunc(duration, duration < absl::Seconds(10) ? absl::Milliseconds(100) : absl::Seconds(1)));
}

class Explanation {
 public:
  Explanation(const RoundRecord& record, CoreContext& context, const UnmetRequirements::Found& unmet, absl::Time now)
      : record_(record), context_(context), unmet_(unmet), now_(now) {}

  void Ended() {
    response_.set_summary(fmt::format("Round {} {} after {}{}.", record_.id, Name(record_.state),
                                      Ago(record_.end_time - record_.create_time),
                                      record_.error.empty() ? "" : ": " + record_.error));
    if (record_.state == RoundState::kSucceeded) {
      Hint(fmt::format("Read what it released with `sheaf round result {} -o result.npz`.", record_.id));
    }
    Errors(TaskState::kBuried);
    Errors(TaskState::kFailed);
  }

  void Live(const LiveRound& round) {
    const TaskCounts& tasks = record_.tasks;
    if (record_.state == RoundState::kSealing) {
      response_.set_summary(fmt::format("Round {} has all it needs; its aggregate is being written.", record_.id));
      return;
    }
    const int64_t missing = round.spec.goal() - record_.num_contributions;
    response_.set_summary(fmt::format("Round {} waits for {} of {}; {} left until its deadline.", record_.id,
                                      Plural(missing, "contribution"), round.spec.goal(),
                                      Ago(record_.deadline_time - now_)));
    if (tasks.leased > 0)
      Reason(fmt::format("{} being computed.", Plural(tasks.leased, "task") + (tasks.leased == 1 ? " is" : " are")));
    if (tasks.queued > 0) Queued(round);
    if (tasks.buried > 0) {
      Reason(fmt::format("{} given up after too many attempts.",
                         Plural(tasks.buried, "task") + (tasks.buried == 1 ? " was" : " were")));
      Errors(TaskState::kBuried);
      Hint(
          fmt::format("Mend the cause, then put them back with `sheaf task requeue`; `sheaf task list --round {} "
                      "--state BURIED` names them.",
                      record_.id));
    }
    if (tasks.failed > 0) {
      Reason(fmt::format("{} failed for good.", Plural(tasks.failed, "task")));
      Errors(TaskState::kFailed);
    }
    if (tasks.queued + tasks.leased < missing) {
      Reason(
          fmt::format("Only {} can still contribute, so the goal is out of reach; at the deadline {} or more "
                      "contributions suffice.",
                      Plural(tasks.queued + tasks.leased, "task"), round.spec.min_goal()));
    }
    if (record_.num_lost_attempts > 0) {
      Reason(fmt::format(
          "{} lost: workers vanished or made no progress.",
          Plural(record_.num_lost_attempts, "attempt") + (record_.num_lost_attempts == 1 ? " was" : " were")));
    }
  }

  v1::ExplainRoundResponse Take() && { return std::move(response_); }

 private:
  void Reason(std::string sentence) { response_.add_reasons(std::move(sentence)); }
  void Hint(std::string sentence) { response_.add_hints(std::move(sentence)); }

  void Queued(const LiveRound& round) {
    const v1::Computation& computation = round.spec.computation();
    Reason(
        fmt::format("{} queued.", Plural(record_.tasks.queued, "task") + (record_.tasks.queued == 1 ? " is" : " are")));
    for (const std::string& requirement : unmet_.requirements) {
      const std::string version =
          computation.version_min() > 0 ? fmt::format(" (version {} or newer)", computation.version_min()) : "";
      const std::string labels = requirement.empty() ? "" : fmt::format(" with the labels {}", requirement);
      Reason(fmt::format("No worker seen in the last {} offers the computation \"{}\"{}{} to population \"{}\".",
                         absl::FormatDuration(UnmetRequirements::kSeenLately), computation.name(), version, labels,
                         record_.population));
      Hint(fmt::format("Start a worker that offers \"{}\"{}, or cancel the round with `sheaf round cancel {}`.",
                       computation.name(), labels, record_.id));
    }
    const int64_t num_further = unmet_.num_requirements - static_cast<int64_t>(unmet_.requirements.size());
    if (num_further > 0)
      Reason(fmt::format("Nor does any carry the labels of {}.", Plural(num_further, "further requirement")));
    if (unmet_.is_partial) {
      Reason("There are too many workers and requirements to look at all of them: more tasks may be without a worker.");
    }
  }

  void Errors(TaskState state) {
    const absl::StatusOr<std::vector<TaskRecord>> tasks =
        context_.store.ListTasks({.round = record_.id, .states = {state}, .limit = 100});
    if (!tasks.ok()) return;
    std::set<std::string> seen;
    for (const TaskRecord& task : *tasks) {
      if (static_cast<int>(seen.size()) == kErrorsShown) break;
      if (!seen.insert(task.last_error).second) continue;
      Reason(fmt::format("Task {} is {}: {}", task.id.ToString(), Name(state), task.last_error));
    }
  }

  const RoundRecord& record_;
  CoreContext& context_;
  const UnmetRequirements::Found& unmet_;
  const absl::Time now_;
  v1::ExplainRoundResponse response_;
};

}  // namespace

absl::StatusOr<v1::ExplainRoundResponse> ExplainRound(const RoundId& id, CoreContext& context, RoundManager& rounds,
                                                      const UnmetRequirements::Found& unmet, absl::Time now) {
  ASSIGN_OR_RETURN(const RoundRecord record, context.store.GetRound(id));
  Explanation explanation(record, context, unmet, now);
  if (const LiveRound* live = rounds.Find(id); live != nullptr && !IsFinal(record.state)) {
    explanation.Live(*live);
  } else {
    explanation.Ended();
  }
  return std::move(explanation).Take();
}

}  // namespace sheaf
