#include "server/core/contribution_intake.h"

#include <fmt/format.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/log.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "server/core/blob_stream.h"
#include "server/core/message_parts.h"
#include "server/core/proto_time.h"
#include "server/core/retry_policy.h"
#include "server/core/round_timing.h"
#include "server/core/upload_names.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

constexpr size_t kErrorBytesMax = 1024;

// An error of the stores, as opposed to one of the worker's making.
bool IsOurs(const absl::Status& status) {
  return absl::IsInternal(status) || absl::IsDataLoss(status) || absl::IsResourceExhausted(status);
}

Refusal Refuse(RefusalKind kind, std::string told) {
  return Refusal{.told = std::move(told), .kind = kind, .output = {}};
}

// What a file could not give, as opposed to what is in it.
bool IsOfTheStore(const absl::Status& status) { return absl::IsInternal(status) || absl::IsDataLoss(status); }

// As the tensors declare it: whether they have as many is checked later.
int64_t NumEntries(const v1::Contribution& contribution) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t entries = 0;
  for (const v1::OutputValue& output : contribution.outputs()) {
    const auto& shape = output.has_sparse() ? output.sparse().indices().shape() : output.keyed().values().shape();
    if (!shape.empty()) entries += std::clamp<int64_t>(shape.Get(0), 0, kMost);
  }
  return entries;
}

// A worker's own words are stored as it sent them, but for a round of which nothing individual reaches the disk: a
// computation's error may quote the data that it met.
std::string Kept(const std::string& words, std::string_view otherwise, const LiveRound& round) {
  if (words.empty() || round.spec.durability() == v1::DURABLE) return words;
  return std::string(otherwise);
}

bool IsContributionUpload(const v1::TaskResult& result) { return result.upload_id().rfind("c-", 0) == 0; }

}  // namespace

std::optional<Refusal> ContributionIntake::CheckMetrics(const v1::Contribution& contribution,
                                                        const LiveRound& round) const {
  const Limits& limits = context_.limits;
  int64_t total = round.progress.metrics_size();
  for (const auto& [name, value] : contribution.metrics()) {
    if (static_cast<int64_t>(name.size()) > limits.metric_name_bytes_max) {
      return Refuse(
          RefusalKind::kMetrics,
          fmt::format("the name of the metric \"{}...\" has {} bytes, over metric_name_bytes_max = {}; shorten it",
                      name.substr(0, 32), name.size(), limits.metric_name_bytes_max));
    }
    if (!round.progress.metrics().contains(name)) ++total;
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
      const absl::Status deleted = context_.payloads.DeleteUpload(upload);
      if (!deleted.ok()) LogWarning("upload {} stays until it is stale: {}", upload, deleted.ToString());
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
      if (UploadIsGone(result, *id, caller)) {
        RETURN_IF_ERROR(EndAttempt(*round, *task, AttemptOutcome::kLost, false,
                                   "its upload is gone: the server restarted, could not commit it, or had kept it for "
                                   "unreferenced_keep",
                                   result.timings(), now));
        return answer(v1::ResultVerdict::LEASE_LOST);
      }
      ASSIGN_OR_RETURN(const std::optional<Refusal> refusal, TakeContribution(*round, *task, result, caller, now));
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
                                   .timings = Plausible(timings).SerializeAsString(),
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

bool ContributionIntake::UploadIsGone(const v1::TaskResult& result, const TaskId& task, const Identity& caller) {
  if (result.outcome_case() != v1::TaskResult::kUploadId) return false;
  const absl::StatusOr<UploadName> name = ParseUploadName(result.upload_id());
  // Nobody but StartUpload can have given this name, and then the worker has sent its bytes.
  if (!name.ok() || name->id != ContributionUploadId(name->digest, task, LeaseToken(result.lease_token()), caller)) {
    return false;
  }
  const absl::StatusOr<PayloadStore::Upload> upload = context_.payloads.GetUpload(name->id);
  return upload.ok() ? upload->committed_bytes == 0 : absl::IsNotFound(upload.status());
}

std::optional<Refusal> ContributionIntake::CheckUpload(const v1::TaskResult& result, const Identity& caller) {
  if (!IsContributionUpload(result)) {
    return Refuse(RefusalKind::kUpload,
                  "the upload is not one of a contribution; name its task and lease_token in StartUpload");
  }
  if (!caller.OwnsUpload(result.upload_id())) return Refuse(RefusalKind::kUpload, "the upload is somebody else's");
  const absl::StatusOr<PayloadStore::Upload> upload = context_.payloads.GetUpload(UploadId(result.upload_id()));
  if (absl::IsNotFound(upload.status())) {
    return Refuse(
        RefusalKind::kUploadUnknown,
        fmt::format("there is no upload \"{}\" for this lease; call StartUpload with its task and lease_token, "
                    "send the bytes, call FinishUpload, and hand in the upload_id that StartUpload gave",
                    result.upload_id().substr(0, 128)));
  }
  // Other errors are met again, and told, when it is read.
  if (!upload.ok() || upload->is_finished) return std::nullopt;
  return Refuse(RefusalKind::kUploadUnfinished,
                fmt::format("the upload has {} of {} bytes and is not finished; call FinishUpload before the Sync that "
                            "hands it in",
                            upload->committed_bytes, upload->size_bytes));
}

absl::StatusOr<ContributionIntake::Received> ContributionIntake::Receive(const LiveRound& round,
                                                                         const v1::TaskResult& result) {
  if (result.outcome_case() == v1::TaskResult::kContribution) {
    return Received{.bytes = &result.contribution(),
                    .file = nullptr,
                    .size_bytes = static_cast<int64_t>(result.contribution().size()),
                    .digest = Sha256Hex(result.contribution())};
  }
  ASSIGN_OR_RETURN(const PayloadStore::Upload upload, context_.payloads.GetUpload(UploadId(result.upload_id())));
  if (upload.size_bytes > round.spec.contribution_bytes_max()) {
    return RefusedAs(
        RefusalKind::kTooLarge, "",
        absl::InvalidArgumentError(fmt::format("it has {} bytes, over the round's contribution_bytes_max = {}; create "
                                               "the round with a higher one, or send less",
                                               upload.size_bytes, round.spec.contribution_bytes_max())));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const BlobView> file, context_.payloads.OpenUpload(upload.id));
  // The digest was checked when the upload was finished.
  const int64_t size_bytes = file->size_bytes();
  return Received{.bytes = nullptr, .file = std::move(file), .size_bytes = size_bytes, .digest = upload.digest};
}

absl::Status ContributionIntake::CheckPartsOf(const Received& received, const Limits& limits) {
  const auto check = [&](google::protobuf::io::ZeroCopyInputStream& stream) {
    return CheckParts(*v1::Contribution::descriptor(), stream, "contribution_parts_max", limits.contribution_parts_max);
  };
  if (received.file == nullptr) {
    google::protobuf::io::ArrayInputStream stream(received.bytes->data(), static_cast<int>(received.size_bytes));
    return check(stream);
  }
  BlobStream stream(*received.file);
  const absl::Status status = check(stream);
  return stream.status().ok() ? status : stream.status();
}

absl::Status ContributionIntake::Parse(const Received& received, v1::Contribution& contribution) {
  absl::Status malformed = absl::InvalidArgumentError("it is not a serialised sheaf.v1.Contribution");
  if (received.size_bytes > INT32_MAX) return malformed;
  if (received.file == nullptr) {
    return contribution.ParseFromString(*received.bytes) ? absl::OkStatus() : malformed;
  }
  BlobStream stream(*received.file);
  if (contribution.ParseFromZeroCopyStream(&stream)) return absl::OkStatus();
  return stream.status().ok() ? malformed : stream.status();
}

absl::StatusOr<std::optional<Refusal>> ContributionIntake::TakeContribution(LiveRound& round, const TaskRecord& task,
                                                                            const v1::TaskResult& result,
                                                                            const Identity& caller, absl::Time now) {
  const bool is_uploaded = result.outcome_case() == v1::TaskResult::kUploadId;
  if (is_uploaded) {
    if (std::optional<Refusal> refusal = CheckUpload(result, caller)) return refusal;
  }
  const absl::StatusOr<Received> received = Receive(round, result);
  if (!received.ok()) {
    if (IsOurs(received.status())) return received.status();
    return RefusalOf(received.status());
  }
  const int64_t size = received->size_bytes;
  if (!is_uploaded && size > context_.limits.inline_bytes_max) {
    return Refuse(
        RefusalKind::kTooLarge,
        fmt::format("it has {} bytes, over inline_bytes_max = {}; upload it (BlobService.StartUpload), and name "
                    "the upload",
                    size, context_.limits.inline_bytes_max));
  }
  if (size > round.spec.contribution_bytes_max()) {
    return Refuse(RefusalKind::kTooLarge,
                  fmt::format("it has {} bytes, over the round's contribution_bytes_max = {}; create the round with a "
                              "higher one, or send less",
                              size, round.spec.contribution_bytes_max()));
  }
  if (size > kUncountedBytesMax && size <= INT32_MAX) {
    const absl::Status status = CheckPartsOf(*received, context_.limits);
    if (IsOfTheStore(status)) return status;
    if (!status.ok()) return Refuse(RefusalKind::kTooManyParts, std::string(status.message()));
  }
  v1::Contribution contribution;
  const absl::Status parsed = Parse(*received, contribution);
  if (IsOfTheStore(parsed)) return parsed;
  if (!parsed.ok()) return Refuse(RefusalKind::kNotParsed, std::string(parsed.message()));
  if (const int64_t entries = NumEntries(contribution); entries > context_.limits.contribution_entries_max) {
    return Refuse(
        RefusalKind::kTooManyEntries,
        fmt::format("it has {} rows of sparse and keyed outputs, over contribution_entries_max = {}; send fewer",
                    entries, context_.limits.contribution_entries_max));
  }
  if (std::optional<Refusal> refusal = CheckMetrics(contribution, round)) return refusal;
  if (round.accumulator_bytes > context_.limits.accumulator_bytes_max) {
    return Refuse(
        RefusalKind::kRoundFull,
        fmt::format("the round's accumulators hold {} bytes, over accumulator_bytes_max = {}; they take no more",
                    round.accumulator_bytes, context_.limits.accumulator_bytes_max));
  }
  absl::StatusOr<ValidContribution> valid = round.accumulator.Validate(std::move(contribution));
  if (!valid.ok()) return RefusalOf(valid.status());
  // Zeros take next to nothing on their way, and room when they are folded: here, and after each restart.
  if (const int64_t bytes = valid->memory_bytes(); bytes > context_.limits.accumulator_bytes_max) {
    return Refuse(
        RefusalKind::kRoundFull,
        fmt::format("its states take {} bytes of memory, over accumulator_bytes_max = {}; combine fewer rows in one",
                    bytes, context_.limits.accumulator_bytes_max));
  }
  const int64_t room = context_.limits.accumulator_bytes_max - round.accumulator_bytes - round.reserved_bytes;
  const int64_t growth = round.accumulator.GrowthMax(*valid, room);
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

  // Before an upload moves: whoever sends it again finds it there.
  RETURN_IF_ERROR(rounds_.CheckSpool(round, size));
  RoundManager::Acceptance acceptance{.task = task,
                                      .bytes = received->bytes == nullptr ? std::string_view() : *received->bytes,
                                      .size_bytes = size,
                                      .digest = received->digest,
                                      .uploaded = {},
                                      .valid = *std::move(valid),
                                      .growth_bytes = growth,
                                      .timings = Plausible(result.timings()),
                                      .now = now};
  if (is_uploaded && round.spec.durability() == v1::DURABLE) {
    ASSIGN_OR_RETURN(acceptance.uploaded, context_.payloads.MoveUploadToSpool(UploadId(result.upload_id()), round.id));
  }
  RETURN_IF_ERROR(rounds_.Accept(round, std::move(acceptance)));
  return std::nullopt;
}

}  // namespace sheaf
