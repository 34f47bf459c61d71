#include "server/core/sync/work_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "base/key_hash.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "proto/time.h"
#include "server/core/rounds/round_spec.h"

namespace sheaf {
namespace {

// 26 characters of 5 bits: 130 random bits.
constexpr int kTokenCharacters = 26;
constexpr int kExpiredPage = 256;
// Requirements that are compared with a worker's labels in one call, of all rounds together, and of each at the least.
// A worker carries the rarest label of few requirements that it does not fulfil, unless both were made for that.
constexpr int64_t kCandidatesMax = 4096;
constexpr int64_t kCandidatesMin = 16;
// When to call again after an answer without leases. A worker whose results were taken, and that may wait, comes back
// at once: its next call is parked. One that has waited comes back soon, at a time of its own; one that may not wait is
// told to take its time.
constexpr absl::Duration kAfterWait = absl::Milliseconds(50);
constexpr absl::Duration kWithoutWait = absl::Seconds(1);
// Where everybody waits who may, the others come back now and then; so does a drained worker that wants tasks.
constexpr absl::Duration kWhenCrowded = absl::Seconds(10);
// The names, tokens and numbers of a lease, apart from what its round and task bring.
constexpr int64_t kLeaseFrameBytes = 1 << 10;
// A stopping server is given this long to come back.
constexpr absl::Duration kAfterDrain = absl::Seconds(2);

absl::Status Validate(const v1::SyncRequest& request, const Limits& limits) {
  RETURN_IF_ERROR(ValidateName("worker", request.worker()));
  if (!request.population().empty()) RETURN_IF_ERROR(ValidateName("population", request.population()));
  if (request.protocol_version() < kProtocolVersionMin) {
    return absl::FailedPreconditionError(
        fmt::format("this worker speaks protocol version {}; the server serves {} to {}; upgrade the worker",
                    request.protocol_version(), kProtocolVersionMin, kProtocolVersionMax));
  }
  if (FromProto(request.wait()) < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(fmt::format("wait is {}; ask for 0 to {}",
                                                  absl::FormatDuration(FromProto(request.wait())),
                                                  absl::FormatDuration(limits.poll_wait_max)));
  }
  if (request.want() < 0) return absl::InvalidArgumentError("want is negative");
  if (request.want() > 0 && (request.poll_id().empty() || request.poll_id().size() > 64)) {
    return absl::InvalidArgumentError("poll_id must have 1 to 64 characters when want > 0");
  }
  const int64_t items = std::max({static_cast<int64_t>(request.want()), static_cast<int64_t>(request.results_size()),
                                  static_cast<int64_t>(request.held_size())});
  if (items > limits.sync_items_max) {
    return absl::InvalidArgumentError(
        fmt::format("results, held and want are limited to sync_items_max = {} each; this call has {}, so make several",
                    limits.sync_items_max, items));
  }
  return absl::OkStatus();
}

}  // namespace

void WorkDesk::Sync(const v1::SyncRequest& request, CallId call, const IdentityPtr& caller, absl::Time now,
                    Reply<v1::SyncResponse> reply) {
  if (absl::Status status = Validate(request, context_.limits); !status.ok()) return reply(std::move(status));
  const absl::StatusOr<const WorkerProfile*> worker = workers_.Saw(request, caller, now);
  if (!worker.ok()) return reply(worker.status());
  if (!ContributionIntake::HasLarge(request)) return Judge(request, call, **worker, now, reply);
  const auto judge_later = [this, &request, call, caller, reply](absl::Time at) {
    const absl::StatusOr<const WorkerProfile*> known = workers_.Saw(request, caller, at);
    if (known.ok()) {
      Judge(request, call, **known, at, reply);
    } else {
      reply(known.status());
    }
    intake_.Drop(request);
  };
  if (!intake_.ReceiveBeside(request, (*worker)->population, *caller, judge_later)) {
    return Judge(request, call, **worker, now, reply);
  }
  // The answer will say so later; but the call came now.
  for (const v1::HeldLease& held : request.held()) static_cast<void>(Update(held, **worker, now, now));
}

void WorkDesk::Judge(const v1::SyncRequest& request, CallId call, const WorkerProfile& worker, absl::Time now,
                     const Reply<v1::SyncResponse>& reply) {
  Supersede(worker.population, worker.name);
  if (request.draining()) {
    stops_.Info(now, "worker {} of population {} stops", worker.name, worker.population);
  }
  Outcome outcome;
  absl::StatusOr<v1::SyncResponse> response = Answer(request, worker, now, outcome);
  const bool may_wait = MayWait(request, worker);
  const bool has_nothing_to_wait_for = request.want() > 0 && outcome.want <= 0;
  if (response.ok() && may_wait && !has_nothing_to_wait_for && !outcome.is_cut && response->verdicts().empty() &&
      response->leases().empty() &&
      std::all_of(response->held().begin(), response->held().end(),
                  [](const v1::LeaseUpdate& update) { return update.verdict() == v1::LeaseUpdate::HELD; })) {
    if (HasRoomToPark(request, worker.population)) return Park(request, call, worker, outcome.want, now, reply);
    // The newest is sent away: whoever waits already goes on waiting.
    ComeBackLater(*response);
  }
  reply(std::move(response));
}

absl::StatusOr<v1::SyncResponse> WorkDesk::Answer(const v1::SyncRequest& request, const WorkerProfile& worker,
                                                  absl::Time now, Outcome& outcome) {
  v1::SyncResponse response = EmptyResponse(worker);
  lease_room_.BeginAnswer();
  absl::Status refusal;
  for (const v1::TaskResult& result : request.results()) {
    const absl::StatusOr<v1::ResultVerdict> verdict =
        intake_.Take(result, worker.population, worker.name, *worker.caller, now);
    refusal = verdict.status();
    if (!refusal.ok()) break;
    *response.add_verdicts() = *verdict;
    if (verdict->verdict() == v1::ResultVerdict::ACCEPTED) rates_[worker.population].completions.Add(now);
  }
  // Renewals need no room: while a result waits for some, what else the worker holds stays its.
  for (const v1::HeldLease& held : request.held()) {
    ASSIGN_OR_RETURN(*response.add_held(), Update(held, worker, now, now));
  }
  RETURN_IF_ERROR(refusal);
  ASSIGN_OR_RETURN(const Held leased, Resend(request, worker, now, response));
  const int64_t room = std::max<int64_t>(context_.limits.leases_per_worker_max - leased.total, 0);
  // Not an error: what else the call brought has been done.
  if (request.want() > 0 && room == 0) {
    response.set_suggested_concurrency(static_cast<int32_t>(context_.limits.leases_per_worker_max));
  }
  outcome.is_cut = leased.is_cut;
  outcome.want = static_cast<int32_t>(std::min<int64_t>(request.want() - leased.resent, room));
  if (!request.draining() && !worker.is_draining && !is_draining_ && !outcome.is_cut && outcome.want > 0) {
    ASSIGN_OR_RETURN(outcome.is_cut, Grant(worker, request.poll_id(), outcome.want, now, now, response));
  }
  // What had no room comes with the next call, at once.
  if (!outcome.is_cut) {
    const bool may_wait = MayWait(request, worker) && (request.want() == 0 || outcome.want > 0);
    const bool is_back_in_service = request.drained() && !worker.is_draining;
    SetPace(is_back_in_service            ? Pace::kAtOnce
            : !may_wait                   ? Pace::kLater
            : response.verdicts().empty() ? Pace::kSoon
                                          : Pace::kAtOnce,
            response);
    if (worker.is_draining && !request.drained()) ComeBackLater(response);
  }
  return response;
}

v1::SyncResponse WorkDesk::EmptyResponse(const WorkerProfile& worker) const {
  v1::SyncResponse response;
  response.set_protocol_version(std::min(worker.protocol_version, kProtocolVersionMax));
  response.set_protocol_version_min(kProtocolVersionMin);
  response.set_protocol_version_max(kProtocolVersionMax);
  response.set_server_version(kVersion);
  response.set_inline_bytes_max(context_.limits.inline_bytes_max);
  response.set_drain(worker.is_draining);
  return response;
}

void WorkDesk::SetPace(Pace pace, v1::SyncResponse& response) const {
  if (!response.leases().empty()) return;  // Call when there is a result.
  if (is_draining_) pace = Pace::kLater;
  const absl::Duration longest = is_draining_            ? kAfterDrain
                                 : pace == Pace::kAtOnce ? absl::ZeroDuration()
                                 : pace == Pace::kSoon   ? kAfterWait
                                                         : kWithoutWait;
  *response.mutable_next_min() = ToProto(pace == Pace::kLater ? longest / 2 : absl::ZeroDuration());
  *response.mutable_next_max() = ToProto(longest);
}

void WorkDesk::ComeBackLater(v1::SyncResponse& response) {
  *response.mutable_next_min() = ToProto(kWhenCrowded / 2);
  *response.mutable_next_max() = ToProto(kWhenCrowded);
}

bool WorkDesk::MayWait(const v1::SyncRequest& request, const WorkerProfile& worker) const {
  // A drained worker waits until it is taken back into service, once it knows; and one that believes to be drained and
  // is not any more is told at once.
  return !is_draining_ && !request.draining() && worker.is_draining == request.drained() &&
         FromProto(request.wait()) > absl::ZeroDuration();
}

absl::StatusOr<v1::LeaseUpdate> WorkDesk::Update(const v1::HeldLease& held, const WorkerProfile& worker,
                                                 absl::Time arrival, absl::Time now) {
  v1::LeaseUpdate update;
  update.set_task(held.task());
  update.set_lease_token(held.lease_token());
  update.set_verdict(v1::LeaseUpdate::LOST);
  const std::optional<TaskId> id = TaskId::Parse(held.task());
  if (!id) return update;
  const LiveRound* round = rounds_.Find(id->round);
  if (round == nullptr || round->state != RoundState::kCollecting) {
    update.set_verdict(v1::LeaseUpdate::CANCELLED);
    return update;
  }
  if (round->spec.population() != worker.population || !worker.caller->OwnsLease(held.lease_token())) return update;
  // Where there are no tokens, the name is all that tells one worker from another.
  const absl::StatusOr<TaskRecord> state = context_.store.GetTaskState(*id);
  if (absl::IsNotFound(state.status()) || (state.ok() && state->worker != worker.name)) return update;
  RETURN_IF_ERROR(state.status());
  const absl::StatusOr<TaskRecord> task =
      context_.store.RenewLease({.task = *id,
                                 .token = LeaseToken(held.lease_token()),
                                 .progress = held.progress(),
                                 .expire_time = now + FromProto(round->spec.lease_duration())});
  if (absl::IsFailedPrecondition(task.status()) || absl::IsNotFound(task.status())) return update;
  RETURN_IF_ERROR(task.status());
  update.set_verdict(v1::LeaseUpdate::HELD);
  *update.mutable_remaining() = ToProto(task->expire_time - arrival);
  return update;
}

absl::StatusOr<WorkDesk::Held> WorkDesk::Resend(const v1::SyncRequest& request, const WorkerProfile& worker,
                                                absl::Time now, v1::SyncResponse& response) {
  ASSIGN_OR_RETURN(const std::vector<TaskRecord> leased, context_.store.ListLeases(worker.population, worker.name));
  Held held_by_worker;
  if (leased.empty()) return held_by_worker;
  std::unordered_set<std::string, KeyHash> known;
  for (const v1::HeldLease& held : request.held()) known.insert(held.lease_token());
  for (const v1::TaskResult& result : request.results()) known.insert(result.lease_token());
  for (const TaskRecord& task : leased) {
    const LiveRound* round = rounds_.Find(task.id.round);
    if (round == nullptr) continue;
    ++held_by_worker.total;
    if (known.contains(task.lease_token.value()) || !worker.caller->OwnsLease(task.lease_token.value())) continue;
    if (held_by_worker.is_cut) continue;
    // With what its submitter wrote.
    ASSIGN_OR_RETURN(const TaskRecord whole, context_.store.GetTask(task.id));
    v1::Lease lease = ToLease(*round, whole, now);
    const auto bytes = static_cast<int64_t>(lease.ByteSizeLong());
    held_by_worker.is_cut = lease_room_.NumFitting(bytes) == 0;
    if (held_by_worker.is_cut) continue;
    lease_room_.Take(bytes);
    *response.add_leases() = std::move(lease);
    ++held_by_worker.resent;
  }
  return held_by_worker;
}

RequirementIndex::Match WorkDesk::MatchOf(const WorkerProfile& worker, const LiveRound& round,
                                          int64_t& candidates_left) {
  RequirementIndex::Look look{.candidates_max = std::max(candidates_left, kCandidatesMin)};
  RequirementIndex::Match match = round.requirements.FulfilledBy(worker.labels, look);
  if (!match.is_complete) {
    // Others each time, so that each has its turn.
    look.first = context_.random.Bits();
    match = round.requirements.FulfilledBy(worker.labels, look);
  }
  candidates_left = std::max<int64_t>(candidates_left - match.num_candidates, 0);
  return match;
}

absl::StatusOr<bool> WorkDesk::Grant(const WorkerProfile& worker, const std::string& poll_id, int32_t want,
                                     absl::Time arrival, absl::Time now, v1::SyncResponse& response) {
  const int64_t work_version = rounds_.work_version();
  int64_t candidates_left = kCandidatesMax;
  bool is_complete = true;
  for (LiveRound* round : scheduler_.RoundsFor(worker, rounds_, worker.looked_at)) {
    if (want == 0) return false;
    const RequirementIndex::Match match = MatchOf(worker, *round, candidates_left);
    is_complete = is_complete && match.is_complete;
    if (match.numbers.empty()) {
      round->may_have_work = HasQueued(round->id);
      continue;
    }
    // A task's size is known once it is leased, so that only as many are leased at once as fit if all are as large as
    // they may be. At most `want` turns: each but the last leases one at least.
    for (bool has_more = true; has_more && want > 0;) {
      const int32_t portion = std::min(want, lease_room_.NumFitting(LeaseBytesMax(*round)));
      if (portion == 0) return true;
      ASSIGN_OR_RETURN(const int32_t num_leased,
                       LeaseFrom(*round, match, worker, poll_id, portion, arrival, now, response));
      want -= num_leased;
      has_more = num_leased == portion;
    }
  }
  if (want > 0 && is_complete) workers_.NoteLook(worker, work_version);
  return false;
}

int64_t WorkDesk::LeaseBytesMax(const LiveRound& round) const {
  return static_cast<int64_t>(round.spec.computation().ByteSizeLong() + round.spec.aggregate().ByteSizeLong()) +
         context_.limits.task_payload_bytes_max + context_.limits.data_selector_bytes_max + kLeaseFrameBytes;
}

absl::StatusOr<int32_t> WorkDesk::LeaseFrom(LiveRound& round, const RequirementIndex::Match& match,
                                            const WorkerProfile& worker, const std::string& poll_id, int32_t want,
                                            absl::Time arrival, absl::Time now, v1::SyncResponse& response) {
  std::vector<LeaseToken> tokens;
  for (int32_t i = 0; i < want; ++i) {
    tokens.emplace_back(context_.random.Token(kTokenCharacters) + worker.caller->lease_tag);
  }
  std::vector<std::string> fulfilled;
  fulfilled.reserve(match.numbers.size());
  for (const int32_t number : match.numbers) {
    fulfilled.push_back(round.requirements.texts()[static_cast<size_t>(number)]);
  }
  const int32_t per_worker_max = round.spec.open_slots().per_worker_max();
  const bool could_take_any = fulfilled.size() == round.requirements.size() && per_worker_max == 0;
  const absl::Duration lease = FromProto(round.spec.lease_duration());
  ASSIGN_OR_RETURN(
      const std::vector<TaskRecord> tasks,
      context_.store.LeaseTasks({.round = round.id,
                                 .worker = worker.name,
                                 .poll_id = poll_id,
                                 .tokens = std::move(tokens),
                                 .fulfilled_requirements = std::move(fulfilled),
                                 .per_worker_max = per_worker_max,
                                 .now = now,
                                 .expire_time = now + lease,
                                 .attempt_deadline_time = now + FromProto(round.spec.attempt_deadline())}));
  const auto num_leased = static_cast<int32_t>(tasks.size());
  if (num_leased < want) {
    // Tasks that are queued but delayed wake everyone when their time comes; those this worker may not take stay.
    round.may_have_work = !could_take_any && HasQueued(round.id);
  }
  for (const TaskRecord& task : tasks) {
    DueAt(task.expire_time);
    v1::Lease& granted = *response.add_leases() = ToLease(round, task, arrival);
    lease_room_.Take(static_cast<int64_t>(granted.ByteSizeLong()));
  }
  if (num_leased > 0) {
    scheduler_.Served(round, rounds_);
    rates_[worker.population].leases.Add(now, num_leased);
  }
  return num_leased;
}

v1::Lease WorkDesk::ToLease(const LiveRound& round, const TaskRecord& task, absl::Time arrival) const {
  v1::Lease lease;
  lease.set_task(task.id.ToString());
  lease.set_round(round.id.value());
  lease.set_lease_token(task.lease_token.value());
  lease.set_attempt(task.num_attempts);
  *lease.mutable_remaining() = ToProto(task.expire_time - arrival);
  *lease.mutable_computation() = round.spec.computation();
  lease.set_payload(task.payload);
  lease.set_data_selector(task.data_selector);
  *lease.mutable_aggregate() = round.spec.aggregate();
  lease.set_broadcast_digest(round.spec.broadcast_digest());
  lease.set_contribution_bytes_max(round.spec.contribution_bytes_max());
  lease.set_min_clients(round.spec.min_clients());
  return lease;
}

absl::StatusOr<TaskRecord> WorkDesk::Requeue(const TaskId& id, absl::Time now) {
  ASSIGN_OR_RETURN(TaskRecord task, context_.store.RequeueTask({.task = id, .now = now}));
  if (LiveRound* round = rounds_.Find(id.round); round != nullptr) rounds_.WorkMayHaveCome(*round);
  return task;
}

void WorkDesk::OnDrainChanged(const std::string& population, const WorkerName& worker) {
  drain_changed_.insert({population, worker});
}

void WorkDesk::Tick(absl::Time now, absl::Time read_until) {
  if (read_until >= due_time_) ExpireLeases(now, read_until);
  ServeParked(now);
  // It ends the batch.
  lease_room_.BeginBatch();
}

absl::Time WorkDesk::NextTick() const {
  if (has_more_parked_) return absl::InfinitePast();
  return by_until_.empty() ? due_time_ : std::min(due_time_, by_until_.begin()->first.first);
}

void WorkDesk::ExpireLeases(absl::Time now, absl::Time read_until) {
  const absl::StatusOr<std::vector<TaskRecord>> expired =
      context_.store.ListExpired(read_until, kExpiredPage + intake_.num_receiving());
  if (!expired.ok()) return;  // The batch fails with it.
  for (const TaskRecord& task : *expired) {
    LiveRound* round = rounds_.Find(task.id.round);
    if (round == nullptr || round->state != RoundState::kCollecting) continue;
    if (intake_.LeavesExpired(task.lease_token)) continue;
    const bool is_overdue = task.attempt_deadline_time <= read_until;
    const std::string error = is_overdue
                                  ? fmt::format("the attempt did not end within {}",
                                                absl::FormatDuration(task.attempt_deadline_time - task.lease_time))
                                  : fmt::format("worker {} made no progress until its lease expired", task.worker);
    const absl::Status ended = intake_.EndAttempt(*round, task, AttemptOutcome::kLost, false, error, {}, now);
    if (!ended.ok()) LogError("task {} cannot be taken back: {}", task.id.ToString(), ended.ToString());
  }
  rounds_.WorkMayHaveCome(now);
  const absl::StatusOr<absl::Time> due = context_.store.NextDueTime(read_until);
  due_time_ = !due.ok() || expired->size() >= kExpiredPage ? read_until : *due;
}

bool WorkDesk::HasQueued(const RoundId& id) {
  const absl::StatusOr<TaskCounts> tasks = context_.store.CountTasks(id);
  return tasks.ok() && tasks->queued > 0;
}

void WorkDesk::BeginDrain(absl::Time /*now*/) {
  is_draining_ = true;
  // The batch's tick answers them.
  has_more_parked_ = true;
}

int64_t WorkDesk::num_parked(const std::string& population) const { return num_parked_.Of(population); }

bool WorkDesk::IsParked(const std::string& population, const WorkerName& worker) const {
  return parked_by_worker_.contains({population, worker});
}

double WorkDesk::LeasesPerSecond(const std::string& population, absl::Time now) const {
  const auto found = rates_.find(population);
  return found == rates_.end() ? 0 : found->second.leases.Rate(now);
}

double WorkDesk::CompletionsPerSecond(const std::string& population, absl::Time now) const {
  const auto found = rates_.find(population);
  return found == rates_.end() ? 0 : found->second.completions.Rate(now);
}

}  // namespace sheaf
