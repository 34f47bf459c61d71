#include "server/core/sync/contribution_intake.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/plural.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "server/core/contributions/staleness_discount.h"
#include "server/core/rounds/attempt_placement.h"
#include "server/core/rounds/round_states.h"
#include "server/core/uploads/upload_names.h"
#include "storage/carried_task.h"
#include "storage/second_lease.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

constexpr size_t kMessageBytesMax = 1024;

// A contribution of more bytes is received beside the core: to look at these takes about as long as the call's other
// work.
constexpr size_t kReceivedInBatchMax = 64 << 10;

Refusal Refuse(RefusalKind kind, std::string told) {
  return Refusal{.told = std::move(told), .kind = kind, .output = {}};
}

// A worker's own words are stored as it sent them, but for a round of which nothing individual reaches the disk: a
// computation's error may quote the data that it met.
std::string Kept(const std::string& words, std::string_view otherwise, const LiveRound& round) {
  if (words.empty() || IsSpooled(round)) return words;
  return std::string(otherwise);
}

bool IsUploaded(const v1::TaskResult& result) { return result.outcome_case() == v1::TaskResult::kUploadId; }

bool IsLarge(const v1::TaskResult& result) {
  return IsUploaded(result) || result.contribution().size() > kReceivedInBatchMax;
}

// The upload is another's, or no contribution's: it is not looked into.
std::optional<Refusal> RefuseForeign(const v1::TaskResult& result, const Identity& caller) {
  if (!IsContributionUpload(result.upload_id())) {
    return Refuse(RefusalKind::kUpload,
                  "the upload is not one of a contribution; name its task and lease_token in StartUpload");
  }
  if (!caller.OwnsUpload(result.upload_id())) return Refuse(RefusalKind::kUpload, "the upload is somebody else's");
  return std::nullopt;
}

// The upload was begun for this very lease, and its bytes are not there any more: it was in the memory of a server that
// ended, or nobody used it for unreferenced_keep. Not the worker's fault, and nothing speaks against the task. A
// StartUpload that comes late may have begun it anew, with nothing in it.
bool UploadIsGone(const Reception& reception, const v1::TaskResult& result, const TaskId& task,
                  const Identity& caller) {
  if (result.outcome_case() != v1::TaskResult::kUploadId || reception.refusal) return false;
  const absl::StatusOr<UploadName> name = ParseUploadName(result.upload_id());
  // Nobody but StartUpload can have given this name, and then the worker has sent its bytes.
  if (!name.ok() || name->id != ContributionUploadId(ShardOf(name->id.value()), name->digest, task,
                                                     LeaseToken(result.lease_token()), caller)) {
    return false;
  }
  return !reception.upload || reception.upload->committed_bytes == 0;
}

// Why the upload cannot be taken: it was never begun, or not finished.
std::optional<Refusal> CheckUpload(const Reception& reception, const v1::TaskResult& result) {
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

// Why it cannot be discounted, where its round discounts what is stale.
std::optional<Refusal> CheckStaleness(const LiveRound& round, const TaskRecord& task, const ValidContribution& valid) {
  if (!valid.is_partial() || StalenessDiscount(round.spec.staleness(), task.staleness) == 1) return std::nullopt;
  return Refuse(RefusalKind::kStale,
                fmt::format("the task was carried through {}, and this one discounts what is stale "
                            "(staleness.function POLYNOMIAL): a partial aggregate has its weights inside its states, "
                            "where no discount reaches them",
                            Counted(task.staleness, "round")));
}

// What to say of a lease that is no longer the task's: never ACCEPTED.
v1::ResultVerdict::Verdict VerdictOnLost(const RoundRecord& round, const TaskRecord& task, const LeaseToken& token) {
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

}  // namespace

absl::StatusOr<v1::ResultVerdict> ContributionIntake::Take(const v1::TaskResult& result,
                                                           std::optional<Reception> received, const Sender& sender,
                                                           const CallTimes& times) {
  ASSIGN_OR_RETURN(
      const Verdict judged,
      Judge({.result = result, .received = std::move(received), .caller = sender.caller, .times = times}, sender));
  if (IsUploaded(result) && !RefuseForeign(result, sender.caller)) {
    // Accepted or not, nobody will refer to it again; an accepted one of a DURABLE round is in the spool by now. Not
    // before the commit: if that fails, or a crash prevents it, the worker hands the same upload in again.
    context_.executor.Defer([this, upload = UploadId(result.upload_id())](const absl::Status& commit) {
      if (!commit.ok()) return;
      context_.receptions.Run(upload.value(), [&payloads = context_.payloads, upload] {
        const absl::Status deleted = payloads.DeleteUpload(upload);
        if (!deleted.ok()) LogWarning("upload {} stays until it is stale: {}", upload, deleted.ToString());
      });
    });
  }
  v1::ResultVerdict verdict;
  verdict.set_task(result.task());
  verdict.set_lease_token(result.lease_token());
  verdict.set_verdict(judged.verdict);
  verdict.set_message(CutUtf8(judged.message, kMessageBytesMax));
  return verdict;
}

absl::StatusOr<ContributionIntake::Verdict> ContributionIntake::Judge(HandedIn handed_in, const Sender& sender) {
  const v1::TaskResult& result = handed_in.result;
  const std::optional<TaskId> id = TaskId::Parse(result.task());
  if (!id) return Verdict{v1::ResultVerdict::UNKNOWN_TASK};
  if (!sender.caller.OwnsLease(result.lease_token())) return Verdict{v1::ResultVerdict::LEASE_LOST};
  absl::StatusOr<TaskRecord> task = FindByName(context_.store, *id);
  if (absl::IsNotFound(task.status())) return Verdict{v1::ResultVerdict::UNKNOWN_TASK};
  RETURN_IF_ERROR(task.status());
  const LeaseToken token(result.lease_token());
  task = AsHeldUnder(*std::move(task), token);
  // Where there are no tokens, the name is all that tells one worker from another. A task that waits is nobody's.
  if (!task->worker.empty() && task->worker != sender.worker && task->lease_token.value() == result.lease_token()) {
    return Verdict{v1::ResultVerdict::LEASE_LOST};
  }
  LiveRound* round = rooms_.rounds.Find(task->id.round);
  const bool is_held = task->state == TaskState::kLeased && task->lease_token == token;
  if (round == nullptr || !HandsOutTasks(round->state) || !is_held) {
    ASSIGN_OR_RETURN(const RoundRecord record, context_.store.GetRound(task->id.round));
    if (record.population != sender.population) return Verdict{v1::ResultVerdict::UNKNOWN_TASK};
    return Verdict{VerdictOnLost(record, *task, token)};
  }
  if (round->spec.population() != sender.population) return Verdict{v1::ResultVerdict::UNKNOWN_TASK};
  return JudgeHeld(*round, *task, std::move(handed_in));
}

absl::StatusOr<ContributionIntake::Verdict> ContributionIntake::JudgeHeld(LiveRound& round, const TaskRecord& task,
                                                                          HandedIn handed_in) {
  const v1::TaskResult& result = handed_in.result;
  AttemptEnd::Ended ended{.outcome = AttemptOutcome::kFailed,
                          .timings = result.timings(),
                          .received = handed_in.times.arrival,
                          .now = handed_in.times.now};
  switch (result.outcome_case()) {
    case v1::TaskResult::kContribution:
    case v1::TaskResult::kUploadId:
      if (!TakesContribution(task, round.state)) {
        ended.error = "a contribution came before the round was opened";
        RETURN_IF_ERROR(rooms_.attempts.End(round, task, ended));
        return Verdict{v1::ResultVerdict::REJECTED, ended.error};
      }
      return JudgeContribution(round, task, std::move(handed_in));
    case v1::TaskResult::kRelease:
      ended.outcome = AttemptOutcome::kReleased;
      ended.error = Kept(result.release().reason(), "given back by its worker, which logged why", round);
      RETURN_IF_ERROR(rooms_.attempts.End(round, task, ended));
      return Verdict{v1::ResultVerdict::ACCEPTED};
    case v1::TaskResult::kFailure:
      ended.is_permanent = result.failure().permanent();
      ended.error = Kept(result.failure().message(), "it failed on its worker, which logged why", round);
      RETURN_IF_ERROR(rooms_.attempts.End(round, task, ended));
      return Verdict{v1::ResultVerdict::ACCEPTED};
    case v1::TaskResult::OUTCOME_NOT_SET:
      break;
  }
  // An outcome of a later protocol version, most likely.
  ended.error = "the result has no outcome that this server knows";
  RETURN_IF_ERROR(rooms_.attempts.End(round, task, ended));
  return Verdict{v1::ResultVerdict::REJECTED, ended.error};
}

absl::StatusOr<ContributionIntake::Verdict> ContributionIntake::JudgeContribution(LiveRound& round,
                                                                                  const TaskRecord& task,
                                                                                  HandedIn handed_in) {
  const auto& [result, received, caller, times] = handed_in;
  AttemptEnd::Ended ended{
      .outcome = AttemptOutcome::kLost, .timings = result.timings(), .received = times.arrival, .now = times.now};
  Reception reception;
  if (IsUploaded(result)) reception.refusal = RefuseForeign(result, caller);
  if (!reception.refusal) {
    reception = received ? *std::move(handed_in.received)
                         : Receive(context_.payloads, context_.limits, context_.parallel, rooms_.fold.unfolded(),
                                   *round.strand.validator(), round.spec.contribution_bytes_max(), result);
  }
  // What has become of the bytes of one upload is no reason to refuse what else the call brings.
  if (IsUploaded(result) && absl::IsDataLoss(reception.error)) {
    LogError("upload {} for task {} was damaged on this disk after it arrived: {}", result.upload_id(), result.task(),
             std::string(reception.error.message()));
    ended.error = "its upload was damaged on the server's disk";
    RETURN_IF_ERROR(rooms_.attempts.End(round, task, ended));
    return Verdict{v1::ResultVerdict::REJECTED,
                   fmt::format("upload {} was damaged on the server's disk after it arrived; the task is given out "
                               "again, and nothing speaks against this worker",
                               result.upload_id())};
  }
  RETURN_IF_ERROR(reception.error);
  // It was begun under the name that its worker was given.
  if (UploadIsGone(reception, result, task.origin.value_or(task.id), caller)) {
    ended.error = "its upload is gone: the server that had it in memory ended, or nobody used it for unreferenced_keep";
    RETURN_IF_ERROR(rooms_.attempts.End(round, task, ended));
    return Verdict{v1::ResultVerdict::LEASE_LOST};
  }
  ASSIGN_OR_RETURN(const std::optional<Refusal> refusal,
                   TakeContribution(round, task, std::move(reception), result, times));
  if (!refusal) return Verdict{v1::ResultVerdict::ACCEPTED};
  // What its worker is told may quote the contribution. What is stored, and shown to others, never does.
  ended.outcome = AttemptOutcome::kFailed;
  ended.error = fmt::format("contribution rejected: {}; its worker was told more", refusal->Summary());
  RETURN_IF_ERROR(rooms_.attempts.End(round, task, ended));
  return Verdict{v1::ResultVerdict::REJECTED, refusal->told};
}

absl::StatusOr<std::optional<Refusal>> ContributionIntake::TakeContribution(LiveRound& round, const TaskRecord& task,
                                                                            Reception reception,
                                                                            const v1::TaskResult& result,
                                                                            const CallTimes& times) {
  if (reception.refusal) return std::move(reception.refusal);
  if (IsUploaded(result)) {
    if (std::optional<Refusal> refusal = CheckUpload(reception, result)) return refusal;
  }
  if (std::optional<Refusal> refusal = CheckStaleness(round, task, *reception.valid)) return refusal;
  if (std::optional<Refusal> refusal = CheckMetrics(reception.valid->contribution(), round)) return refusal;
  int64_t growth_bytes = 0;
  ASSIGN_OR_RETURN(std::optional<Refusal> has_no_memory, CheckMemory(round, *reception.valid, growth_bytes));
  if (has_no_memory) return has_no_memory;
  if (absl::Status has_no_room = rooms_.spools.CheckRoom(round, reception.size_bytes); !has_no_room.ok()) {
    rooms_.checkpoints.WriteAll();
    return has_no_room;
  }
  ContributionFold::Acceptance acceptance{
      .task = task,
      .bytes = reception.bytes,
      .size_bytes = reception.size_bytes,
      .digest = reception.digest,
      .uploaded = {},
      .unfolded = {},
      .growth_bytes = growth_bytes,
      .timings = PlaceAttempt(
          result.timings(),
          {.available = task.available_time, .leased = task.lease_time, .received = times.arrival, .ended = times.now}),
      .now = times.now};
  if (IsUploaded(result) && IsSpooled(round)) {
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
  RETURN_IF_ERROR(rooms_.fold.Accept(round, std::move(acceptance)));
  rooms_.speculation.Note(round);
  if (task.second_lease) {
    rooms_.rounds.queue().OnOneOfTwoEnded(round, AttemptOutcome::kCancelled);
    // Its worker, which may have only so many of the round's tasks, may have another.
    if (round.spec.open_slots().per_worker_max() > 0) rooms_.rounds.work().MayHaveCome(round);
    on_cancelled_(round.spec.population(), task.second_lease->worker);
  }
  rooms_.closing.OnAccepted(round, times.now);
  return std::nullopt;
}

std::optional<Refusal> ContributionIntake::CheckMetrics(const v1::Contribution& contribution,
                                                        const LiveRound& round) const {
  const Limits& limits = context_.limits;
  int64_t total = static_cast<int64_t>(round.progress.metrics.size());
  for (const auto& [name, value] : contribution.metrics()) {
    if (static_cast<int64_t>(name.size()) > limits.metric_name_bytes_max) {
      return Refuse(RefusalKind::kMetrics,
                    limits.Sentence(&Limits::metric_name_bytes_max,
                                    fmt::format("the name of the metric \"{}...\" has {} bytes, over",
                                                name.substr(0, 32), name.size())));
    }
    if (!round.progress.metrics.contains(name)) ++total;
  }
  if (total <= limits.metrics_max) return std::nullopt;
  return Refuse(
      RefusalKind::kMetrics,
      limits.Sentence(&Limits::metrics_max, fmt::format("with its metrics the round would have {}, over", total)));
}

absl::StatusOr<std::optional<Refusal>> ContributionIntake::CheckMemory(const LiveRound& round,
                                                                       const ValidContribution& valid,
                                                                       int64_t& growth_bytes) const {
  const Limits& limits = context_.limits;
  const int64_t max = limits.accumulator_bytes_max;
  if (round.accumulator_bytes > max) {
    return Refuse(RefusalKind::kRoundFull,
                  limits.Sentence(&Limits::accumulator_bytes_max,
                                  fmt::format("the round's accumulators hold {} bytes, over", round.accumulator_bytes),
                                  "they take no more"));
  }
  const int64_t room = max - round.accumulator_bytes - round.reserved_bytes;
  growth_bytes = round.strand.validator()->GrowthMax(valid, room);
  if (growth_bytes > room + round.reserved_bytes) {
    return Refuse(
        RefusalKind::kRoundFull,
        limits.Sentence(&Limits::accumulator_bytes_max,
                        fmt::format("the round's accumulators hold {} bytes, and with it may take {} more, over",
                                    round.accumulator_bytes, growth_bytes),
                        "send fewer rows, or create the round with numerics F64, which values of other sizes do not "
                        "make larger"));
  }
  // There may be room once others are folded.
  if (growth_bytes > room) {
    return WithRetryAfter(
        limits.Refuse(&Limits::accumulator_bytes_max,
                      fmt::format("contributions that wait to be folded may take {} bytes, and {} more would be over",
                                  round.reserved_bytes, growth_bytes),
                      "try again"),
        absl::Seconds(1));
  }
  return std::nullopt;
}

LiveRound* ContributionIntake::FindRoundOf(const v1::TaskResult& result, const Sender& sender) {
  const std::optional<TaskId> id = TaskId::Parse(result.task());
  if (!id || !sender.caller.OwnsLease(result.lease_token())) return nullptr;
  // Whatever is leased has its place in memory.
  const TaskId place = context_.store.PlaceOf(*id).value_or(*id);
  LiveRound* round = rooms_.rounds.Find(place.round);
  if (round == nullptr || round->spec.population() != sender.population) return nullptr;
  const absl::StatusOr<TaskRecord> task = context_.store.GetTaskState(place);
  if (!task.ok() || !TakesContribution(*task, round->state)) return nullptr;
  const LeaseToken token(result.lease_token());
  const bool is_held = task->state == TaskState::kLeased && AsHeldUnder(*task, token).lease_token == token;
  return is_held ? round : nullptr;
}

bool ContributionIntake::HasLarge(const v1::SyncRequest& request) {
  return std::any_of(request.results().begin(), request.results().end(), IsLarge);
}

bool ContributionIntake::ReceiveBeside(const v1::SyncRequest& request, const Sender& sender,
                                       std::function<void(Receptions received, absl::Time now)> judge) {
  std::vector<std::pair<size_t, const LiveRound*>> large;
  const size_t num_results = static_cast<size_t>(request.results_size());
  for (size_t i = 0; i < num_results; ++i) {
    const v1::TaskResult& result = request.results(static_cast<int>(i));
    if (!IsLarge(result)) continue;
    if (IsUploaded(result) && RefuseForeign(result, sender.caller)) continue;
    const LiveRound* round = FindRoundOf(result, sender);
    if (round != nullptr) large.emplace_back(i, round);
  }
  if (large.empty()) return false;
  struct Call {
    size_t num_left;
    Receptions received;
    std::function<void(Receptions received, absl::Time now)> judge;
  };
  auto call = std::make_shared<Call>(
      Call{.num_left = large.size(), .received = Receptions(num_results), .judge = std::move(judge)});
  for (const auto& [place, round] : large) {
    const v1::TaskResult& result = request.results(static_cast<int>(place));
    rooms_.in_reception.Begin(LeaseToken(result.lease_token()));
    // Of no strand of the round: it would wait for the folds and checkpoints there.
    context_.receptions.Run(
        result.lease_token(), [this, call, &result, place = place, validator = round->strand.validator(),
                               bytes_max = round->spec.contribution_bytes_max()] {
          auto reception = std::make_shared<Reception>(Receive(context_.payloads, context_.limits, context_.parallel,
                                                               rooms_.fold.unfolded(), *validator, bytes_max, result));
          context_.executor.Post([this, call, &result, place, reception](absl::Time now) {
            call->received[place] = std::move(*reception);
            if (rooms_.in_reception.End(LeaseToken(result.lease_token()))) rooms_.due.NoLaterThan(now);
            if (--call->num_left == 0) call->judge(std::move(call->received), now);
          });
        });
  }
  return true;
}

}  // namespace sheaf
