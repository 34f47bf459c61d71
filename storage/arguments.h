// What every TaskStore checks in its arguments before it looks at any state, and the sentences in which all of them
// refuse. Pure functions, so that two stores cannot disagree.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "storage/records.h"
#include "storage/task_store.h"

namespace sheaf {

// INVALID_ARGUMENT, naming the field.
absl::Status CheckArguments(const TaskStore::CreateRoundParams& params);
absl::Status CheckArguments(const TaskStore::MoveRoundParams& params);
absl::Status CheckArguments(const TaskStore::CarryOverParams& params);
absl::Status CheckArguments(const TaskStore::LeaseTasksParams& params);
absl::Status CheckArguments(const TaskStore::LeaseAgainParams& params);
absl::Status CheckArguments(const TaskStore::EndAttemptParams& params);
absl::Status CheckArguments(const TaskStore::RecordContributionParams& params);
absl::Status CheckArguments(const TokenRecord& token);

absl::Status NoSuchRound(const RoundId& id);
absl::Status NoSuchRequest(const std::string& request_id);
absl::Status NoSuchTask(const TaskId& id);
absl::Status NotStaged(const RoundId& id, int64_t expected);
absl::Status RoundIsThere(const RoundId& id);
absl::Status NoSuchWorker(const std::string& population, const WorkerName& name);
absl::Status NoSuchToken(const TokenId& id);
absl::Status NoSuchServer(const std::string& name);
// ALREADY_EXISTS.
absl::Status TokenIsTaken(const TokenRecord& token);
// FAILED_PRECONDITION.
absl::Status RoundIsElsewhere(const RoundId& id, RoundState is, RoundState expected);
// It brings the broadcast of an announced round.
bool IsOpening(const TaskStore::MoveRoundParams& params);
// Its tasks are not handed out any more.
absl::Status RoundHasStopped(const RoundId& id, RoundState is);
absl::Status LeaseIsGone(const TaskId& id, TaskState is);
absl::Status CannotRequeue(const TaskId& id, TaskState is);
// It was carried over.
absl::Status CannotRunAgain(const TaskId& id, const TaskId& origin);
// INVALID_ARGUMENT.
absl::Status CannotCarryOver(const RoundRecord& from, const RoundRecord& to);
absl::Status CheckpointGoesBack(const RoundRecord& round, int64_t sequence);

// Error of an attempt whose accepted contribution a crash forgot.
inline constexpr char kForgottenContribution[] =
    "its contribution was accepted, but the server stopped before a checkpoint contained it";

// Error of an attempt that ran when another at the same task was accepted.
inline constexpr char kOtherAttemptWon[] = "another attempt at the task was accepted first";

// Error of an attempt that goes on in another round.
std::string CarriedTo(const RoundId& round);

// The task as it goes on in another round.
TaskRecord AsCarried(const TaskRecord& task, TaskId id, absl::Time create_time);

// The task has not lost or failed as many attempts as it may.
bool MayTryAgain(const TaskRecord& task, const TaskStore::LeaseAgainParams& params);

// The record a new round starts with: counts, version and outcome as the store sets them.
RoundRecord FreshRound(const TaskStore::CreateRoundParams& params);

// The record a new token starts with: not revoked, its populations in order.
TokenRecord FreshToken(const TokenRecord& token);

// How many of the rounds that have ended each population keeps for certain, where all keep no more than `keep_max`
// together: the largest number for which that is so if those with more are cut to it. `counts` is by
// population, in any order.
int64_t KeptMax(std::vector<int64_t> counts, int64_t keep_max);

// The count of one state.
int64_t& CountOf(TaskCounts& counts, TaskState state);

}  // namespace sheaf
