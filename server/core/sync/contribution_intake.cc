#include "server/core/sync/contribution_intake.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "proto/time.h"
#include "server/core/leases/retry_policy.h"
#include "server/core/rounds/round_timing.h"
#include "server/core/uploads/upload_names.h"
#include "server/stored/attempt_timings.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

constexpr size_t kErrorBytesMax = 1024;

// A contribution of more bytes is received beside the core: to look at these takes about as long as the call's other
// work.
constexpr size_t kReceivedInBatchMax = 64 << 10;

Refusal Refuse(RefusalKind kind, std::string told) {
  return Refusal{.told = std::move(told), .kind = kind, .output = {}};
}

// A worker's own words are stored as it sent them, but for a round of which nothing individual reaches the disk: a
// computation's error may quote the data that it met.
std::string Kept(const std::string& words, std::string_view otherwise, const LiveRound& round) {
  if (words.empty() || round.spec.durability() == v1::DURABLE) return words;
  return std::string(otherwise);
}

bool IsContributionUpload(const v1::TaskResult& result) { return result.upload_id().rfind("c-", 0) == 0; }

bool IsLarge(const v1::TaskResult& result) {
  return result.outcome_case() == v1::TaskResult::kUploadId || result.contribution().size() > kReceivedInBatchMax;
}

}  // namespace

std::optional<Refusal> ContributionIntake::CheckMetrics(const v1::Contribution& contribution,
                                                        const LiveRound& round) const {
  const Limits& limits = context_.limits;
  int64_t total = static_cast<int64_t>(round.progress.metrics.size());
  for (const auto& [name, value] : contribution.metrics()) {
    if (static_cast<int64_t>(name.size()) > limits.metric_name_bytes_max) {
      return Refuse(
          RefusalKind::kMetrics,
          fmt::format("the name of the metric \"{}...\" has {} bytes, over metric_name_bytes_max = {}; shorten it",
                      name.substr(0, 32), name.size(), limits.metric_name_bytes_max));
    }
    if (!round.progress.metrics.contains(name)) ++total;
  }
  if (total <= limits.metrics_max) return std::nullopt;
  return Refuse(RefusalKind::kMetrics,
                fmt::format("with its metrics the round would have {}, over metrics_max = {}; report fewer", total,
                            limits.metrics_max));
}

absl::StatusOr<v1::ResultVerdict> ContributionIntake::Take(const v1::TaskResult& result, const std::string& population,
                                                           const WorkerName& worker, const Identity& caller,
                                                           absl::Time now) {
  ASSIGN_OR_RETURN(v1::ResultVerdict verdict, Judge(result, population, worker, caller, now));
  const bool is_uploaded = result.outcome_case() == v1::TaskResult::kUploadId && IsContributionUpload(result);
  if (is_uploaded && caller.OwnsUpload(result.upload_id())) {
    // Accepted or not, nobody will refer to it again; an accepted one of a DURABLE round is in the spool by now.
    context_.executor.Defer([this, upload = UploadId(result.upload_id())](const absl::Status& commit) {
      if (!commit.ok()) return;  // The worker will refer to it again.
      context_.receptions.Run(upload.value(), [&payloads = context_.payloads, upload] {
        const absl::Status deleted = payloads.DeleteUpload(upload);
        if (!deleted.ok()) LogWarning("upload {} stays until it is stale: {}", upload, deleted.ToString());
      });
    });
  }
  return verdict;
}

absl::StatusOr<v1::ResultVerdict> ContributionIntake::Judge(const v1::TaskResult& result, const std::string& population,
                                                            const WorkerName& worker, const Identity& caller,
                                                            absl::Time now) {
  v1::ResultVerdict verdict;
  verdict.set_task(result.task());
  verdict.set_lease_token(result.lease_token());
  const auto answer = [&](v1::ResultVerdict::Verdict value, const std::string& message = "") {
    verdict.set_verdict(value);
    verdict.set_message(CutUtf8(message, kErrorBytesMax));
    return verdict;
  };
  const std::optional<TaskId> id = TaskId::Parse(result.task());
  if (!id) return answer(v1::ResultVerdict::UNKNOWN_TASK);
  if (!caller.OwnsLease(result.lease_token())) return answer(v1::ResultVerdict::LEASE_LOST);
  const absl::StatusOr<TaskRecord> task = context_.store.GetTaskState(*id);
  if (absl::IsNotFound(task.status())) return answer(v1::ResultVerdict::UNKNOWN_TASK);
  RETURN_IF_ERROR(task.status());
  // Where there are no tokens, the name is all that tells one worker from another. A task that waits is nobody's.
  if (!task->worker.empty() && task->worker != worker && task->lease_token.value() == result.lease_token()) {
    return answer(v1::ResultVerdict::LEASE_LOST);
  }
  LiveRound* round = rounds_.Find(id->round);
  const LeaseToken token(result.lease_token());
  const bool is_held = task->state == TaskState::kLeased && task->lease_token == token;
  if (round == nullptr || round->state != RoundState::kCollecting || !is_held) {
    ASSIGN_OR_RETURN(const RoundRecord record, context_.store.GetRound(id->round));
    if (record.population != population) return answer(v1::ResultVerdict::UNKNOWN_TASK);
    return answer(VerdictOnLost(record, *task, token));
  }
  if (round->spec.population() != population) return answer(v1::ResultVerdict::UNKNOWN_TASK);

  switch (result.outcome_case()) {
    case v1::TaskResult::kContribution:
    case v1::TaskResult::kUploadId: {
      const bool is_uploaded = result.outcome_case() == v1::TaskResult::kUploadId;
      Reception reception;
      if (is_uploaded && !IsContributionUpload(result)) {
        reception.refusal =
            Refuse(RefusalKind::kUpload,
                   "the upload is not one of a contribution; name its task and lease_token in StartUpload");
      } else if (is_uploaded && !caller.OwnsUpload(result.upload_id())) {
        reception.refusal = Refuse(RefusalKind::kUpload, "the upload is somebody else's");
      } else {
        reception = Received(*round, result);
      }
      // What has become of the bytes of one upload is no reason to refuse what else the call brings.
      if (is_uploaded && absl::IsDataLoss(reception.error)) {
        LogError("upload {} for task {} was damaged on this disk after it arrived: {}", result.upload_id(),
                 result.task(), std::string(reception.error.message()));
        RETURN_IF_ERROR(EndAttempt(*round, *task, AttemptOutcome::kLost, false,
                                   "its upload was damaged on the server's disk", result.timings(), now));
        return answer(v1::ResultVerdict::REJECTED,
                      fmt::format("upload {} was damaged on the server's disk after it arrived; the task is given out "
                                  "again, and nothing speaks against this worker",
                                  result.upload_id()));
      }
      RETURN_IF_ERROR(reception.error);
      if (UploadIsGone(reception, result, *id, caller)) {
        RETURN_IF_ERROR(EndAttempt(*round, *task, AttemptOutcome::kLost, false,
                                   "its upload is gone: the server that had it in memory ended, or nobody used it for "
                                   "unreferenced_keep",
                                   result.timings(), now));
        return answer(v1::ResultVerdict::LEASE_LOST);
      }
      ASSIGN_OR_RETURN(const std::optional<Refusal> refusal,
                       TakeContribution(*round, *task, std::move(reception), result, now));
      if (!refusal) return answer(v1::ResultVerdict::ACCEPTED);
      // What its worker is told may quote the contribution. What is stored, and shown to others, never does.
      RETURN_IF_ERROR(EndAttempt(*round, *task, AttemptOutcome::kFailed, false,
                                 fmt::format("contribution rejected: {}; its worker was told more", refusal->Summary()),
                                 result.timings(), now));
      return answer(v1::ResultVerdict::REJECTED, refusal->told);
    }
    case v1::TaskResult::kRelease:
      RETURN_IF_ERROR(EndAttempt(*round, *task, AttemptOutcome::kReleased, false,
                                 Kept(result.release().reason(), "given back by its worker, which logged why", *round),
                                 result.timings(), now));
      return answer(v1::ResultVerdict::ACCEPTED);
    case v1::TaskResult::kFailure:
      RETURN_IF_ERROR(EndAttempt(*round, *task, AttemptOutcome::kFailed, result.failure().permanent(),
                                 Kept(result.failure().message(), "it failed on its worker, which logged why", *round),
                                 result.timings(), now));
      return answer(v1::ResultVerdict::ACCEPTED);
    case v1::TaskResult::OUTCOME_NOT_SET:
      break;
  }
  // An outcome of a later protocol version, most likely.
  RETURN_IF_ERROR(EndAttempt(*round, *task, AttemptOutcome::kFailed, false,
                             "the result has no outcome that this server knows", result.timings(), now));
  return answer(v1::ResultVerdict::REJECTED, "the result has no outcome that this server knows");
}

v1::ResultVerdict::Verdict ContributionIntake::VerdictOnLost(const RoundRecord& round, const TaskRecord& task,
                                                             const LeaseToken& token) {
  if (task.state == TaskState::kSucceeded && task.lease_token == token) return v1::ResultVerdict::DUPLICATE;
  switch (round.state) {
    case RoundState::kSealing:
    case RoundState::kSucceeded:
      return v1::ResultVerdict::NOT_NEEDED;
    case RoundState::kFailed:
    case RoundState::kCancelled:
      return v1::ResultVerdict::LATE;
    case RoundState::kAnnounced:
    case RoundState::kCollecting:
      break;
  }
  return v1::ResultVerdict::LEASE_LOST;
}

absl::Status ContributionIntake::EndAttempt(LiveRound& round, const TaskRecord& task, AttemptOutcome outcome,
                                            bool is_permanent, const std::string& error,
                                            const v1::AttemptTimings& timings, absl::Time now) {
  const RetryDecision decision =
      DecideRetry(task, outcome, is_permanent, round.spec.retry(), context_.limits, context_.random, now);
  RETURN_IF_ERROR(context_.store
                      .EndAttempt({.task = task.id,
                                   .token = task.lease_token,
                                   .outcome = outcome,
                                   .to = decision.to,
                                   .available_time = decision.available_time,
                                   .error = CutUtf8(error, kErrorBytesMax),
                                   .timings = EncodeTimings(Plausible(timings)),
                                   .now = now})
                      .status());
  // Not the reason: a worker words it, and `sheaf task describe` shows what of it may be kept.
  ends_.Info(now, "task {}: attempt {} of worker {} {}, the task is {}", task.id.ToString(), task.num_attempts,
             task.worker, Name(outcome), Name(decision.to));
  if (decision.to == TaskState::kQueued) {
    rounds_.WorkMayHaveCome(round);
    if (decision.available_time > now) {
      rounds_.WorkWillCome(round, decision.available_time);
      on_delayed_(decision.available_time);
    }
  } else {
    // A worker that may have only so many of the round's tasks may have another.
    if (round.spec.open_slots().per_worker_max() > 0) rounds_.WorkMayHaveCome(round);
    rounds_.CheckExhausted(round, now);
  }
  return absl::OkStatus();
}

bool ContributionIntake::UploadIsGone(const Reception& reception, const v1::TaskResult& result, const TaskId& task,
                                      const Identity& caller) {
  if (result.outcome_case() != v1::TaskResult::kUploadId || reception.refusal) return false;
  const absl::StatusOr<UploadName> name = ParseUploadName(result.upload_id());
  // Nobody but StartUpload can have given this name, and then the worker has sent its bytes.
  if (!name.ok() || name->id != ContributionUploadId(name->digest, task, LeaseToken(result.lease_token()), caller)) {
    return false;
  }
  return !reception.upload || reception.upload->committed_bytes == 0;
}

std::optional<Refusal> ContributionIntake::CheckUpload(const Reception& reception, const v1::TaskResult& result) {
  if (!reception.upload) {
    return Refuse(
        RefusalKind::kUploadUnknown,
        fmt::format("there is no upload \"{}\" for this lease; call StartUpload with its task and lease_token, "
                    "send the bytes, call FinishUpload, and hand in the upload_id that StartUpload gave",
                    result.upload_id().substr(0, 128)));
  }
  if (reception.upload->is_finished) return std::nullopt;
  return Refuse(RefusalKind::kUploadUnfinished,
                fmt::format("the upload has {} of {} bytes and is not finished; call FinishUpload before the Sync that "
                            "hands it in",
                            reception.upload->committed_bytes, reception.upload->size_bytes));
}

LiveRound* ContributionIntake::FindRoundOf(const v1::TaskResult& result, const std::string& population,
                                           const Identity& caller) {
  const std::optional<TaskId> id = TaskId::Parse(result.task());
  if (!id || !caller.OwnsLease(result.lease_token())) return nullptr;
  LiveRound* round = rounds_.Find(id->round);
  if (round == nullptr || round->state != RoundState::kCollecting || round->spec.population() != population) {
    return nullptr;
  }
  const absl::StatusOr<TaskRecord> task = context_.store.GetTaskState(*id);
  const bool is_held =
      task.ok() && task->state == TaskState::kLeased && task->lease_token == LeaseToken(result.lease_token());
  return is_held ? round : nullptr;
}

bool ContributionIntake::HasLarge(const v1::SyncRequest& request) {
  return std::any_of(request.results().begin(), request.results().end(), IsLarge);
}

bool ContributionIntake::ReceiveBeside(const v1::SyncRequest& request, const std::string& population,
                                       const Identity& caller, std::function<void(absl::Time now)> judge) {
  std::vector<std::pair<const v1::TaskResult*, const LiveRound*>> large;
  for (const v1::TaskResult& result : request.results()) {
    if (!IsLarge(result)) continue;
    const bool is_uploaded = result.outcome_case() == v1::TaskResult::kUploadId;
    if (is_uploaded && (!IsContributionUpload(result) || !caller.OwnsUpload(result.upload_id()))) continue;
    const LiveRound* round = FindRoundOf(result, population, caller);
    if (round != nullptr) large.emplace_back(&result, round);
  }
  if (large.empty()) return false;
  auto num_left = std::make_shared<size_t>(large.size());
  for (const auto& [result, round] : large) {
    ++receiving_[LeaseToken(result->lease_token())].num_calls;
    // Of no strand of the round: it would wait for the folds and checkpoints there.
    context_.receptions.Run(
        result->lease_token(), [this, result = result, num_left, judge, validator = round->strand.validator(),
                                bytes_max = round->spec.contribution_bytes_max()] {
          auto reception = std::make_shared<Reception>(
              Receive(context_.payloads, context_.limits, rounds_.unfolded(), *validator, bytes_max, *result));
          context_.executor.Post([this, result, num_left, judge, reception](absl::Time now) {
            received_.insert_or_assign(result, std::move(*reception));
            const auto found = receiving_.find(LeaseToken(result->lease_token()));
            if (found->second.is_overdue) on_delayed_(now);
            if (--found->second.num_calls == 0) receiving_.erase(found);
            if (--*num_left == 0) judge(now);
          });
        });
  }
  return true;
}

bool ContributionIntake::LeavesExpired(const LeaseToken& token) {
  const auto found = receiving_.find(token);
  if (found == receiving_.end()) return false;
  return found->second.is_overdue = true;
}

void ContributionIntake::Drop(const v1::SyncRequest& request) {
  if (received_.empty()) return;
  for (const v1::TaskResult& result : request.results()) received_.erase(&result);
}

Reception ContributionIntake::Received(const LiveRound& round, const v1::TaskResult& result) {
  if (auto received = received_.extract(&result); !received.empty()) return std::move(received.mapped());
  return Receive(context_.payloads, context_.limits, rounds_.unfolded(), *round.strand.validator(),
                 round.spec.contribution_bytes_max(), result);
}

absl::StatusOr<std::optional<Refusal>> ContributionIntake::TakeContribution(LiveRound& round, const TaskRecord& task,
                                                                            Reception reception,
                                                                            const v1::TaskResult& result,
                                                                            absl::Time now) {
  if (reception.refusal) return std::move(reception.refusal);
  const bool is_uploaded = result.outcome_case() == v1::TaskResult::kUploadId;
  if (is_uploaded) {
    if (std::optional<Refusal> refusal = CheckUpload(reception, result)) return refusal;
  }
  const v1::Contribution& contribution = reception.valid->contribution();
  if (std::optional<Refusal> refusal = CheckMetrics(contribution, round)) return refusal;
  if (round.accumulator_bytes > context_.limits.accumulator_bytes_max) {
    return Refuse(
        RefusalKind::kRoundFull,
        fmt::format("the round's accumulators hold {} bytes, over accumulator_bytes_max = {}; they take no more",
                    round.accumulator_bytes, context_.limits.accumulator_bytes_max));
  }
  const int64_t room = context_.limits.accumulator_bytes_max - round.accumulator_bytes - round.reserved_bytes;
  const int64_t growth = round.strand.validator()->GrowthMax(*reception.valid, room);
  if (growth > room + round.reserved_bytes) {
    return Refuse(
        RefusalKind::kRoundFull,
        fmt::format("the round's accumulators hold {} bytes, and with it may take {} more, over "
                    "accumulator_bytes_max = {}; send fewer rows, or create the round with numerics F64, which "
                    "values of other sizes do not make larger",
                    round.accumulator_bytes, growth, context_.limits.accumulator_bytes_max));
  }
  // There may be room once others are folded.
  if (growth > room) {
    return WithRetryAfter(absl::ResourceExhaustedError(fmt::format(
                              "contributions that wait to be folded may take {} bytes, and {} more would be over "
                              "accumulator_bytes_max = {}; try again",
                              round.reserved_bytes, growth, context_.limits.accumulator_bytes_max)),
                          absl::Seconds(1));
  }
  RETURN_IF_ERROR(rounds_.CheckSpool(round, reception.size_bytes));
  RoundManager::Acceptance acceptance{.task = task,
                                      .bytes = reception.bytes,
                                      .size_bytes = reception.size_bytes,
                                      .digest = reception.digest,
                                      .uploaded = {},
                                      .unfolded = {},
                                      .growth_bytes = growth,
                                      .timings = Plausible(result.timings()),
                                      .now = now};
  if (is_uploaded && round.spec.durability() == v1::DURABLE) {
    const UploadId upload(result.upload_id());
    absl::StatusOr<SpoolRef> spooled = context_.payloads.AddUploadToSpool(upload, round.id);
    if (absl::IsNotFound(spooled.status()) || absl::IsFailedPrecondition(spooled.status())) {
      return absl::UnavailableError(
          fmt::format("upload {} was begun anew while it was looked at; hand the result in again", upload));
    }
    ASSIGN_OR_RETURN(acceptance.uploaded, std::move(spooled));
  }
  acceptance.unfolded =
      std::make_shared<Unfolded>(Unfolded({.valid = *std::move(reception.valid), .claim = std::move(reception.claim)}));
  RETURN_IF_ERROR(rounds_.Accept(round, std::move(acceptance)));
  return std::nullopt;
}

}  // namespace sheaf
