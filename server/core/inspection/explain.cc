#include "server/core/inspection/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/plural.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/inspection/worker_outlook.h"
#include "server/core/leases/straggler_policy.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

// Whoever works or waits calls again within this, but for renewals of long leases.
constexpr absl::Duration kCallsAgainWithin = absl::Seconds(15);
// For one requirement.
constexpr int kWorkersLookedAt = 1000;
// Requirements that nobody fulfils, of which the nearest miss is looked for.
constexpr int kNearMisses = 3;
constexpr int kErrorsShown = 3;
// Of the tasks that were not done when a round ended, so many are looked at.
constexpr int kUnfinishedShown = 1000;

// Without digits that say nothing: "412us", "91.2ms", "204ms", "3.8s", "1m12s". What is short is rounded, as `sheaf`
// and the dashboard do beside it; of what is long, whole units have passed, or are left.
std::string Ago(absl::Duration duration) {
  const absl::Duration size = absl::AbsDuration(duration);
  const absl::Duration unit = size < absl::Milliseconds(1)     ? absl::Microseconds(1)
                              : size < absl::Milliseconds(100) ? absl::Microseconds(100)
                              : size < absl::Seconds(1)        ? absl::Milliseconds(1)
                              : size < absl::Seconds(10)       ? absl::Milliseconds(100)
                                                               : absl::Seconds(1);
  return absl::FormatDuration(size < absl::Seconds(1) ? absl::Floor(duration + unit / 2, unit)
                                                      : absl::Trunc(duration, unit));
}

class Explanation {
 public:
  // `successor` continues it, if it is not null.
  Explanation(const RoundRecord& record, const LiveRound* successor, CoreContext& context, const WhoIsThere& who,
              absl::Time now)
      : record_(record), successor_(successor), context_(context), who_(who), now_(now) {}

  void Ended() {
    response_.set_summary(fmt::format("Round {} {} after {}{}.", record_.id, Name(record_.state),
                                      Ago(record_.end_time - record_.create_time),
                                      record_.error.empty() ? "" : ": " + record_.error));
    if (record_.state == RoundState::kSucceeded) {
      Hint(fmt::format("Read what it released with `sheaf round result {} -o result.npz`.", record_.id));
    }
    Errors(TaskState::kBuried);
    Errors(TaskState::kFailed);
    if (record_.state != RoundState::kFailed) return;
    const bool has_bad_tasks = record_.tasks.buried + record_.tasks.failed > 0;
    const bool has_waited_in_vain = Unfinished();
    if (record_.num_failed_attempts + record_.num_lost_attempts > 0) {
      Reason(fmt::format("{} failed, {} lost.", Counted(record_.num_failed_attempts, "attempt"),
                         record_.num_lost_attempts == 1 ? "1 was" : fmt::format("{} were", record_.num_lost_attempts)));
      Hint(fmt::format("See what went wrong with `sheaf task list --round {}` and `sheaf task describe TASK`.",
                       record_.id));
    }
    if (has_waited_in_vain) Hint("See which workers there are, with their labels, with `sheaf worker list`.");
    if (has_bad_tasks || has_waited_in_vain) {
      Hint("Correct the cause, then create the round again.");
    } else {
      Hint("Create the round again, with a later deadline if it ran out of time.");
    }
  }

  void Live(const LiveRound& round) {
    const TaskCounts& tasks = record_.tasks;
    if (record_.state == RoundState::kSealing) {
      response_.set_summary(fmt::format("Round {} has all it needs; its aggregate is being written.", record_.id));
      return;
    }
    if (record_.state == RoundState::kAnnounced) return Announced(round);
    const int64_t missing = round.spec.goal() - record_.num_contributions;
    response_.set_summary(fmt::format("Round {} waits for {} of {}; {} left until its deadline.", record_.id,
                                      Counted(missing, "contribution"), round.spec.goal(),
                                      Ago(record_.deadline_time - now_)));
    if (tasks.leased > 0)
      Reason(fmt::format("{} being computed.", Counted(tasks.leased, "task") + (tasks.leased == 1 ? " is" : " are")));
    if (round.spec.has_straggler() && tasks.leased > 0) Stragglers(round);
    if (tasks.queued > 0) Queued(round);
    if (tasks.buried > 0) {
      Reason(fmt::format("{} given up after too many attempts.",
                         Counted(tasks.buried, "task") + (tasks.buried == 1 ? " was" : " were")));
      Errors(TaskState::kBuried);
      Hint(
          fmt::format("Correct the cause, then put them back with `sheaf task requeue`; `sheaf task list --round {} "
                      "--state BURIED` names them.",
                      record_.id));
    }
    if (tasks.failed > 0) {
      Reason(fmt::format("{} failed for good.", Counted(tasks.failed, "task")));
      Errors(TaskState::kFailed);
      Hint(
          fmt::format("Correct the cause, then put them back with `sheaf task requeue`; `sheaf task list --round {} "
                      "--state FAILED` names them.",
                      record_.id));
    }
    Carried(round);
    if (tasks.queued + tasks.leased < missing) OutOfReach(round);
    if (record_.num_lost_attempts > 0) {
      Reason(fmt::format(
          "{} lost: workers vanished or made no progress.",
          Counted(record_.num_lost_attempts, "attempt") + (record_.num_lost_attempts == 1 ? " was" : " were")));
    }
  }

  v1::ExplainRoundResponse Take() && { return std::move(response_); }

 private:
  void Announced(const LiveRound& round) {
    const TaskCounts& tasks = record_.tasks;
    response_.set_summary(fmt::format("Round {} is announced, and waits for its broadcast; {} left until it fails.",
                                      record_.id, Ago(record_.deadline_time - now_)));
    const bool is_continuing = !round.spec.continues().empty();
    Reason(fmt::format("Workers {} {} of its {}{}; the others wait for workers, or for the round to open.",
                       is_continuing ? "have" : "prepare", tasks.leased,
                       Counted(tasks.total() - tasks.cancelled, "task"),
                       is_continuing ? ": they prepare them, or go on with those of the round before" : ""));
    if (tasks.buried + tasks.failed > 0) {
      Reason(fmt::format(
          "{} given up while it was prepared.",
          Counted(tasks.buried + tasks.failed, "task") + (tasks.buried + tasks.failed == 1 ? " was" : " were")));
      Errors(tasks.buried > 0 ? TaskState::kBuried : TaskState::kFailed);
    }
    if (record_.num_contributions > 0) {
      Reason(fmt::format(
          "{} accepted of tasks that were carried over from earlier rounds; it is sealed when it opens, if "
          "that is its goal by then.",
          Counted(record_.num_contributions, "contribution") + (record_.num_contributions == 1 ? " was" : " were")));
    }
    Hint("Its program opens it (OpenRound) when the round before has ended; `sheaf round list` shows that one.");
  }

  void Reason(std::string sentence) { response_.add_reasons(std::move(sentence)); }
  void Hint(std::string sentence) { response_.add_hints(std::move(sentence)); }

  // Which tasks came from other rounds, and where those go on that still run when this one is sealed.
  void Carried(const LiveRound& round) {
    const v1::RoundSpec& spec = round.spec;
    if (!spec.continues().empty()) {
      int64_t num_stale = 0;
      for (const auto& [staleness, count] : round.progress.staleness) num_stale += staleness > 0 ? count : 0;
      Reason(
          fmt::format("It continues round {}: {} accepted of tasks that were carried over from earlier rounds, "
                      "through {} at most.",
                      spec.continues(), Counted(num_stale, "contribution") + (num_stale == 1 ? " was" : " were"),
                      Counted(spec.staleness().max(), "round")));
    }
    if (successor_ != nullptr && record_.tasks.leased > 0) {
      Reason(
          fmt::format("Tasks that still run when it is sealed go on in round {}, which continues it.", successor_->id));
    }
  }

  // What is done about attempts that take long, and since when or why not yet.
  void Stragglers(const LiveRound& round) {
    const v1::StragglerPolicy& policy = round.spec.straggler();
    const RunTimes& finished = round.progress.run_times;
    if (finished.count() < policy.finished_min()) {
      return Reason(fmt::format("What a straggler is, is known once {} {} succeeded; {} so far.",
                                Counted(policy.finished_min(), "attempt"), policy.finished_min() == 1 ? "has" : "have",
                                finished.count()));
    }
    const std::string measure =
        fmt::format("the {:g} quantile of {} that succeeded, {}", policy.quantile(),
                    Counted(finished.count(), "attempt"), Ago(finished.Quantile(policy.quantile())));
    if (policy.speculate()) Speculating(round, measure);
    if (policy.deadline_factor() > 0 && finished.count() < FinishedForLimit(round.spec)) {
      Reason(fmt::format("How long an attempt may take is known once {} have succeeded, {:g} of the goal; {} so far.",
                         FinishedForLimit(round.spec), policy.quantile(), finished.count()));
    } else if (policy.deadline_factor() > 0) {
      Reason(fmt::format("An attempt is lost that takes longer than {}: {:g} times {}.",
                         Ago(AttemptLimit(round.spec, finished)), policy.deadline_factor(), measure));
    }
    if (round.progress.num_speculative_wins > 0) {
      Reason(fmt::format("{} accepted from a second attempt while the first still ran.",
                         Counted(round.progress.num_speculative_wins, "contribution") +
                             (round.progress.num_speculative_wins == 1 ? " was" : " were")));
    }
  }

  void Speculating(const LiveRound& round, const std::string& measure) {
    const v1::StragglerPolicy& policy = round.spec.straggler();
    const TaskCounts& tasks = record_.tasks;
    if (tasks.queued > 0) {
      return Reason("No task is leased a second time while others are queued.");
    }
    if (const int64_t max = RemainingMax(policy, tasks.total()); tasks.leased > max) {
      return Reason(
          fmt::format("Tasks are leased a second time once {} or fewer are left (remaining_share_max {:g} of "
                      "{}).",
                      max, policy.remaining_share_max(), tasks.total()));
    }
    const absl::Duration age = StragglerAge({.policy = policy, .tasks = tasks, .finished = round.progress.run_times});
    std::string first;
    const absl::StatusOr<absl::Time> begun = context_.store.FirstLeaseTime(record_.id, absl::InfinitePast());
    if (begun.ok() && *begun != absl::InfiniteFuture()) {
      // Those that were prepared run since the opening.
      const absl::Duration longest = now_ - std::max(*begun, OpenTime(round));
      first = longest >= age ? fmt::format(" The longest has run for {} and waits for another worker.", Ago(longest))
                             : fmt::format(" The longest without a second attempt has run for {}.", Ago(longest));
    }
    Reason(fmt::format("A task whose attempt runs for more than {} is leased a second time, to another worker: {}.{}",
                       Ago(age),
                       age == FromProto(policy.age_min()) ? std::string("age_min")
                                                          : fmt::format("{:g} times {}", policy.factor(), measure),
                       first));
  }

  // The goal is.
  void OutOfReach(const LiveRound& round) {
    const int64_t possible = record_.tasks.queued + record_.tasks.leased;
    const int64_t needed = round.spec.min_goal() - record_.num_contributions;
    if (possible < needed) {
      Reason(fmt::format("It will fail: it needs {}, and {} can still contribute.",
                         Counted(needed, "more contribution"),
                         possible == 0 ? "no task" : "only " + Counted(possible, "task")));
    } else if (needed <= 0) {
      Reason(
          fmt::format("Only {} can still contribute, so the goal is out of reach; at the deadline it succeeds with the "
                      "{} that it has.",
                      Counted(possible, "task"), Counted(record_.num_contributions, "contribution")));
    } else {
      Reason(fmt::format(
          "Only {} can still contribute, so the goal is out of reach; at the deadline it succeeds if {} {}.",
          Counted(possible, "task"), Counted(needed, "more contribution"), needed == 1 ? "has come" : "have come"));
    }
  }

  // What the tasks waited for that were not done when the round ended; true if some were never given to a worker.
  bool Unfinished() {
    const absl::StatusOr<std::vector<TaskRecord>> tasks =
        context_.store.ListTasks({.round = record_.id, .states = {TaskState::kCancelled}, .limit = kUnfinishedShown});
    if (!tasks.ok() || tasks->empty()) return false;
    // How many of each requirement were never given out, and an example of each error of the others.
    std::map<std::string, int64_t> untouched;
    std::map<std::string, std::string> errors;
    int64_t num_untouched = 0;
    for (const TaskRecord& task : *tasks) {
      if (task.num_attempts == 0) {
        ++num_untouched;
        ++untouched[task.requirement];
      } else if (!task.last_error.empty() && static_cast<int>(errors.size()) < kErrorsShown) {
        errors.emplace(task.last_error, task.id.ToString());
      }
    }
    const std::string of =
        record_.tasks.cancelled > kUnfinishedShown ? fmt::format(" of the first {}", kUnfinishedShown) : "";
    Reason(fmt::format("{} not done when it ended{}.",
                       Counted(record_.tasks.cancelled, "task") + (record_.tasks.cancelled == 1 ? " was" : " were"),
                       num_untouched == 0 ? ""
                                          : fmt::format("; {}{} {} never given to a worker", num_untouched, of,
                                                        num_untouched == 1 ? "was" : "were")));
    int64_t num_shown = 0;
    for (const auto& [requirement, count] : untouched) {
      if (requirement.empty() || ++num_shown > kErrorsShown) continue;
      Reason(fmt::format("{} wanted a worker with the labels {}.", count, requirement));
    }
    for (const auto& [error, task] : errors) Reason(fmt::format("Task {} was tried again after: {}", task, error));
    return num_untouched > 0;
  }

  void Queued(const LiveRound& round) {
    const v1::Computation& computation = round.spec.computation();
    Reason(fmt::format("{} queued.",
                       Counted(record_.tasks.queued, "task") + (record_.tasks.queued == 1 ? " is" : " are")));
    int num_near_misses = 0;
    for (const std::string& requirement : who_.unmet.requirements) {
      const std::string version =
          computation.version_min() > 0 ? fmt::format(" (version {} or newer)", computation.version_min()) : "";
      const std::string labels = requirement.empty() ? "" : fmt::format(" with the labels {}", requirement);
      Reason(fmt::format("No worker seen in the last {} offers the computation \"{}\"{}{} to population \"{}\".",
                         absl::FormatDuration(UnmetRequirements::kSeenLately), computation.name(), version, labels,
                         record_.population));
      Hint(fmt::format("Start a worker that offers \"{}\"{}, or cancel the round with `sheaf round cancel {}`.",
                       computation.name(), labels, record_.id));
      if (++num_near_misses <= kNearMisses) NearMiss(OutlookOf(computation, requirement));
    }
    // One requirement stands for those that are met: where there are several, some worker is there for each.
    if (who_.unmet.num_requirements == 0)
      Absent(OutlookOf(computation, round.requirements.size() == 0 ? "" : round.requirements.texts().front()));
    const int64_t num_further = who_.unmet.num_requirements - static_cast<int64_t>(who_.unmet.requirements.size());
    if (num_further > 0) {
      Reason(fmt::format("Nor does any worker have the labels of {}.", Counted(num_further, "further requirement")));
    }
    if (who_.unmet.is_partial) {
      Reason("There are too many workers and requirements to look at all of them: more tasks may be without a worker.");
    }
  }

  // O(workers * labels), for at most kWorkersLookedAt of them.
  WorkerOutlook OutlookOf(const v1::Computation& computation, const std::string& requirement) const {
    WorkerOutlook outlook(computation, requirement, now_);
    int num_looked_at = 0;
    who_.workers.ForEach(record_.population, WorkerName(), [&](const WorkerProfile& worker) {
      if (now_ - worker.last_seen_time <= UnmetRequirements::kSeenLately) {
        const bool is_connected =
            who_.polls.IsParked(worker.population, worker.name) || now_ - worker.last_seen_time <= kCallsAgainWithin;
        outlook.Look(worker, is_connected);
      }
      return ++num_looked_at < kWorkersLookedAt;
    });
    return outlook;
  }

  // Of a requirement that nobody fulfils.
  void NearMiss(const WorkerOutlook& outlook) {
    if (!outlook.Nearest().empty()) Reason(fmt::format("The closest worker does not qualify: {}.", outlook.Nearest()));
    if (outlook.num_drained() > 0) {
      Reason(fmt::format("{} could, but {} drained.", Counted(outlook.num_drained(), "worker"),
                         outlook.num_drained() == 1 ? "is" : "are"));
      Hint(
          "Take workers back into service with `sheaf worker drain --undo NAME`; `sheaf worker list --state DRAINED` "
          "names them.");
    } else if (outlook.Nearest().empty() && !outlook.offered().empty()) {
      Reason(fmt::format("Workers offer {}.", fmt::join(outlook.offered(), ", ")));
    }
  }

  // Of tasks that could be run by workers that called not long ago.
  void Absent(const WorkerOutlook& outlook) {
    if (outlook.num_able() == 0 || outlook.num_connected() > 0 || record_.tasks.leased > 0) return;
    Reason(fmt::format("{} could run {}, but {} connected now: the last call was {} ago.",
                       Counted(outlook.num_able(), "worker"), record_.tasks.queued == 1 ? "it" : "them",
                       outlook.num_able() == 1 ? "is not" : "none is", Ago(outlook.since_last_call())));
    Hint("Look at the workers: `sheaf worker list` names them, and their logs say why they left.");
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
  const LiveRound* const successor_;
  CoreContext& context_;
  const WhoIsThere& who_;
  const absl::Time now_;
  v1::ExplainRoundResponse response_;
};

}  // namespace

absl::StatusOr<v1::ExplainRoundResponse> ExplainRound(const RoundId& id, CoreContext& context, LiveRounds& rounds,
                                                      const WhoIsThere& who, absl::Time now) {
  ASSIGN_OR_RETURN(const RoundRecord record, context.store.GetRound(id));
  Explanation explanation(record, rounds.SuccessorOf(id), context, who, now);
  if (const LiveRound* live = rounds.Find(id); live != nullptr && !IsFinal(record.state)) {
    explanation.Live(*live);
  } else {
    explanation.Ended();
  }
  return std::move(explanation).Take();
}

}  // namespace sheaf
