#include "storage/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/checksum.h"
#include "storage/transitions.h"

namespace sheaf {

absl::Status CheckArguments(const TaskStore::CreateRoundParams& params) {
  const RoundRecord& round = params.round;
  if (round.id.empty()) return absl::InvalidArgumentError("a round needs an id");
  if (round.request_id.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("round {} needs the request_id of the call that creates it", round.id));
  }
  if (round.state != RoundState::kAnnounced && round.state != RoundState::kCollecting) {
    return absl::InvalidArgumentError(
        fmt::format("round {} cannot start as {}: only as ANNOUNCED or COLLECTING", round.id, Name(round.state)));
  }
  if (params.num_staged < 0) {
    return absl::InvalidArgumentError(fmt::format("round {} cannot have {} staged tasks", round.id, params.num_staged));
  }
  if (params.tasks.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::InvalidArgumentError(fmt::format("round {} has too many tasks: {}", round.id, params.tasks.size()));
  }
  return absl::OkStatus();
}

absl::Status CheckArguments(const TaskStore::MoveRoundParams& params) {
  if (IsLegalMove(params.from, params.to)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("round {} cannot move from {} to {}", params.round, Name(params.from), Name(params.to)));
}

absl::Status CheckArguments(const TaskStore::CarryOverParams& params) {
  if (params.from == params.to) {
    return absl::InvalidArgumentError(fmt::format("round {} cannot continue itself", params.from));
  }
  if (params.tasks_max < 0) {
    return absl::InvalidArgumentError(fmt::format("round {} takes over {} tasks", params.to, params.tasks_max));
  }
  if (params.staleness_max >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("round {} takes tasks of a negative staleness: {}", params.to, params.staleness_max));
}

namespace {

// What LeaseTasks and LeaseAgain have in common.
template <typename Params>
absl::Status CheckLeasing(const Params& params) {
  if (params.worker.empty()) return absl::InvalidArgumentError("a lease needs a worker's name");
  if (params.per_worker_max < 0) {
    return absl::InvalidArgumentError(fmt::format("per_worker_max is negative: {}", params.per_worker_max));
  }
  for (const LeaseToken& token : params.tokens) {
    if (token.empty()) return absl::InvalidArgumentError("a lease token is empty");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckArguments(const TaskStore::LeaseTasksParams& params) { return CheckLeasing(params); }
absl::Status CheckArguments(const TaskStore::LeaseAgainParams& params) { return CheckLeasing(params); }

bool MayTryAgain(const TaskRecord& task, const TaskStore::LeaseAgainParams& params) {
  return (params.lost_max == 0 || task.num_lost < params.lost_max) &&
         (params.failed_max == 0 || task.num_failed < params.failed_max);
}

absl::Status CheckArguments(const TaskStore::EndAttemptParams& params) {
  bool is_outcome = params.outcome == AttemptOutcome::kFailed || params.outcome == AttemptOutcome::kLost ||
                    params.outcome == AttemptOutcome::kReleased || params.outcome == AttemptOutcome::kCancelled;
  bool is_target =
      params.to == TaskState::kQueued || params.to == TaskState::kFailed || params.to == TaskState::kBuried;
  if (is_outcome && is_target) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("an attempt of task {} cannot end as {} with the task {}",
                                                params.task.ToString(), Name(params.outcome), Name(params.to)));
}

absl::Status CheckArguments(const TaskStore::RecordContributionParams& params) {
  if (params.size_bytes >= 0 && params.num_clients >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("the contribution to task {} has {} bytes of {} clients",
                                                params.task.ToString(), params.size_bytes, params.num_clients));
}

absl::Status CheckArguments(const TokenRecord& token) {
  if (token.id.empty() || token.request_id.empty() || token.name.empty()) {
    return absl::InvalidArgumentError("a token needs an id, a name, and the request_id of the call that creates it");
  }
  if (!IsSha256Hex(token.hash)) {
    return absl::InvalidArgumentError(fmt::format("token {} needs the SHA-256 of its secret in hex", token.id));
  }
  if (token.roles <= 0) return absl::InvalidArgumentError(fmt::format("token {} needs a role", token.id));
  return absl::OkStatus();
}

absl::Status NoSuchRequest(const std::string& request_id) {
  return absl::NotFoundError(fmt::format("request_id {} has created no round", request_id));
}

absl::Status NoSuchRound(const RoundId& id) { return absl::NotFoundError(fmt::format("there is no round {}", id)); }

absl::Status NoSuchTask(const TaskId& id) {
  return absl::NotFoundError(fmt::format("there is no task {}", id.ToString()));
}

absl::Status NotStaged(const RoundId& id, int64_t expected) {
  return absl::FailedPreconditionError(fmt::format("there are no {} tasks staged for round {}", expected, id));
}

absl::Status RoundIsThere(const RoundId& id) {
  return absl::AlreadyExistsError(fmt::format("there is a round {} already", id));
}

absl::Status NoSuchWorker(const std::string& population, const WorkerName& name) {
  return absl::NotFoundError(fmt::format("there is no worker {} in population '{}'", name, population));
}

absl::Status NoSuchToken(const TokenId& id) { return absl::NotFoundError(fmt::format("there is no token {}", id)); }

absl::Status NoSuchServer(const std::string& name) {
  return absl::NotFoundError(fmt::format("there is no server {}", name));
}

absl::Status TokenIsTaken(const TokenRecord& token) {
  return absl::AlreadyExistsError(
      token.certificate.empty()
          ? fmt::format("there is a token {} already, or one with the same secret", token.id)
          : fmt::format("the certificate {} has a token already; revoked ones keep theirs", token.certificate));
}

absl::Status RoundIsElsewhere(const RoundId& id, RoundState is, RoundState expected) {
  return absl::FailedPreconditionError(fmt::format("round {} is {}, not {}", id, Name(is), Name(expected)));
}

bool IsOpening(const TaskStore::MoveRoundParams& params) {
  return params.from == RoundState::kAnnounced && params.to == RoundState::kCollecting;
}

absl::Status RoundHasStopped(const RoundId& id, RoundState is) {
  return absl::FailedPreconditionError(fmt::format("round {} is {}, neither ANNOUNCED nor COLLECTING", id, Name(is)));
}

absl::Status LeaseIsGone(const TaskId& id, TaskState is) {
  return absl::FailedPreconditionError(
      fmt::format("task {} is {}, not leased under this token", id.ToString(), Name(is)));
}

absl::Status CannotRequeue(const TaskId& id, TaskState is) {
  return absl::FailedPreconditionError(
      fmt::format("task {} is {}: it cannot be queued again", id.ToString(), Name(is)));
}

absl::Status CannotRunAgain(const TaskId& id, const TaskId& origin) {
  return absl::FailedPreconditionError(
      fmt::format("task {} was carried over as {}, of an earlier round whose broadcast nobody is given any more: it "
                  "cannot be queued again",
                  id.ToString(), origin.ToString()));
}

absl::Status CannotCarryOver(const RoundRecord& from, const RoundRecord& to) {
  return absl::InvalidArgumentError(fmt::format("tasks of round {} of population '{}' cannot go on in round {} of '{}'",
                                                from.id, from.population, to.id, to.population));
}

std::string CarriedTo(const RoundId& round) { return fmt::format("carried over to round {}", round); }

TaskRecord AsCarried(const TaskRecord& task, TaskId id, absl::Time create_time) {
  TaskRecord carried = task;
  carried.id = std::move(id);
  carried.origin = task.origin.value_or(task.id);
  carried.staleness = task.staleness + 1;
  carried.create_time = create_time;
  carried.payload.clear();
  carried.data_selector.clear();
  carried.requirement.clear();
  carried.attempt = carried.num_attempts = 1;
  if (carried.second_lease) carried.second_lease->attempt = carried.num_attempts = 2;
  carried.num_failed = carried.num_lost = 0;
  carried.last_error.clear();
  return carried;
}

absl::Status CheckpointGoesBack(const RoundRecord& round, int64_t sequence) {
  return absl::FailedPreconditionError(
      fmt::format("a checkpoint of round {} at contribution {} does not lie between its checkpoint at {} and its {} "
                  "contributions",
                  round.id, sequence, round.checkpoint_sequence, round.num_contributions));
}

RoundRecord FreshRound(const TaskStore::CreateRoundParams& params) {
  const RoundRecord& given = params.round;
  return RoundRecord{.id = given.id,
                     .population = given.population,
                     .job = given.job,
                     .request_id = given.request_id,
                     .spec = given.spec,
                     .state = given.state,
                     .version = 1,
                     .create_time = given.create_time,
                     .deadline_time = given.deadline_time,
                     .broadcast_digest = given.broadcast_digest,
                     .tasks = {.queued = params.num_staged + static_cast<int64_t>(params.tasks.size())},
                     .progress = given.progress,
                     .task_digests = given.task_digests};
}

TokenRecord FreshToken(const TokenRecord& token) {
  TokenRecord fresh = token;
  std::sort(fresh.populations.begin(), fresh.populations.end());
  fresh.populations.erase(std::unique(fresh.populations.begin(), fresh.populations.end()), fresh.populations.end());
  fresh.revoke_time = absl::InfiniteFuture();
  return fresh;
}

int64_t& CountOf(TaskCounts& counts, TaskState state) {
  switch (state) {
    case TaskState::kQueued:
      return counts.queued;
    case TaskState::kLeased:
      return counts.leased;
    case TaskState::kSucceeded:
      return counts.succeeded;
    case TaskState::kFailed:
      return counts.failed;
    case TaskState::kCancelled:
      return counts.cancelled;
    case TaskState::kBuried:
      return counts.buried;
  }
  SHEAF_CHECK(false, "no such task state: {}", static_cast<int>(state));
  return counts.queued;
}

int64_t KeptMax(std::vector<int64_t> counts, int64_t keep_max) {
  std::sort(counts.begin(), counts.end());
  int64_t left = std::max<int64_t>(keep_max, 0);
  auto num_left = static_cast<int64_t>(counts.size());
  for (const int64_t count : counts) {
    // All that are left, this one included, get an equal part.
    if (count * num_left > left) return left / num_left;
    left -= count;
    --num_left;
  }
  return std::numeric_limits<int64_t>::max();
}

}  // namespace sheaf
