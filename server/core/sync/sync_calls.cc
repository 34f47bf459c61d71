#include "server/core/sync/sync_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/requests/names.h"
#include "server/core/sync/pace.h"
#include "server/core/sync/sync_messages.h"

namespace sheaf {
namespace {

// Of the rounds of a population, the tasks of so many are counted to know how much work there is: the others' wait
// behind them, and there may be ten thousand.
constexpr int kRoundsCountedMax = 1024;

// Neither verdicts nor leases, and nothing new of the leases that the worker holds.
bool HasNothingToSay(const v1::SyncResponse& response) {
  return response.verdicts().empty() && response.leases().empty() &&
         std::all_of(response.held().begin(), response.held().end(),
                     [](const v1::LeaseUpdate& update) { return update.verdict() == v1::LeaseUpdate::HELD; });
}

bool WantsLeases(const v1::SyncRequest& request) { return request.want() > 0 || request.want_announced() > 0; }

bool HoldsNothing(const v1::SyncResponse& response) {
  return response.leases().empty() &&
         std::none_of(response.held().begin(), response.held().end(),
                      [](const v1::LeaseUpdate& update) { return update.verdict() == v1::LeaseUpdate::HELD; });
}

void CountVerdict(v1::ResultVerdict::Verdict verdict, PopulationFigures& figures) {
  const auto place = static_cast<size_t>(verdict);
  figures.verdicts[place < figures.verdicts.size() ? place : 0].Add();
}

ContributionIntake::Sender SenderOf(const WorkerProfile& worker) {
  return {.population = worker.population, .worker = worker.name, .caller = *worker.caller};
}

}  // namespace

void SyncCalls::Answer(const v1::SyncRequest& request, CallId call, const IdentityPtr& caller, absl::Time now,
                       Reply<v1::SyncResponse> reply) {
  if (absl::Status status = CheckSync(request, context_.limits); !status.ok()) return reply(std::move(status));
  const absl::StatusOr<const WorkerProfile*> worker = rooms_.workers.Saw(request, caller, now);
  if (!worker.ok()) return reply(TurnedAway(request, worker.status(), now));
  if (!ContributionIntake::HasLarge(request)) return AnswerReceived({request, call, now, {}}, **worker, now, reply);
  const auto answer_later = [this, &request, call, caller, arrival = now, reply](
                                ContributionIntake::Receptions received, absl::Time at) {
    const absl::StatusOr<const WorkerProfile*> known = rooms_.workers.Saw(request, caller, at);
    if (!known.ok()) return reply(known.status());
    AnswerReceived({request, call, arrival, std::move(received)}, **known, at, reply);
  };
  if (!rooms_.intake.ReceiveBeside(request, SenderOf(**worker), answer_later)) {
    return AnswerReceived({request, call, now, {}}, **worker, now, reply);
  }
  // The answer will say so later; but the call came now.
  for (const v1::HeldLease& held : request.held()) {
    static_cast<void>(rooms_.renewal.Renew(held, **worker, CallTimes::At(now)));
  }
}

void SyncCalls::AnswerReceived(ReceivedCall call, const WorkerProfile& worker, absl::Time now,
                               const Reply<v1::SyncResponse>& reply) {
  const v1::SyncRequest& request = call.request;
  rooms_.polls.Supersede(worker.population, worker.name);
  if (request.draining()) stops_.Info(now, "worker {} of population {} stops", worker.name, worker.population);
  Outcome outcome;
  absl::StatusOr<v1::SyncResponse> response = Serve(call, worker, now, outcome);
  const bool has_nothing_to_wait_for = WantsLeases(request) && !outcome.has_room();
  if (response.ok() && MayWait(request, worker) && !has_nothing_to_wait_for && !outcome.is_cut &&
      HasNothingToSay(*response)) {
    if (rooms_.polls.HasRoomFor(request, worker.population)) {
      return rooms_.polls.Park(request,
                               {.call = call.id,
                                .worker = worker,
                                .want = std::max(outcome.want, 0),
                                .want_announced = std::max(outcome.want_announced, 0)},
                               now, reply);
    }
    // The newest is sent away: whoever waits already goes on waiting.
    SetPace(Pace::kNowAndThen, *response);
    outcome.is_steered = true;
  }
  if (response.ok()) Steer(request, worker, outcome, now, *response);
  reply(std::move(response));
}

absl::StatusOr<v1::SyncResponse> SyncCalls::Serve(ReceivedCall& call, const WorkerProfile& worker, absl::Time now,
                                                  Outcome& outcome) {
  const v1::SyncRequest& request = call.request;
  v1::SyncResponse response = BeginResponse(worker, rooms_.rounds, context_.limits);
  rooms_.grants.BeginAnswer();
  const absl::Status taken = TakeResults(call, worker, now, response);
  // Renewals need no room: while a result waits for some, what else the worker holds stays its.
  for (const v1::HeldLease& held : request.held()) {
    ASSIGN_OR_RETURN(*response.add_held(), rooms_.renewal.Renew(held, worker, CallTimes::At(now)));
  }
  RETURN_IF_ERROR(taken);
  ASSIGN_OR_RETURN(const LeaseGrants::Held leased, rooms_.grants.Resend(request, worker, now, response));
  const int64_t room = std::max<int64_t>(context_.limits.leases_per_worker_max - leased.total, 0);
  // Not an error: what else the call brought has been done.
  if (WantsLeases(request) && room == 0) {
    response.set_suggested_concurrency(static_cast<int32_t>(context_.limits.leases_per_worker_max));
  }
  outcome.resent = leased.resent;
  outcome.is_cut = leased.is_cut;
  const auto num_opened = std::count_if(response.held().begin(), response.held().end(),
                                        [](const auto& update) { return update.verdict() == v1::LeaseUpdate::OPENED; });
  outcome.want = static_cast<int32_t>(std::min<int64_t>(request.want() - leased.resent - num_opened, room));
  outcome.want_announced = static_cast<int32_t>(
      std::min<int64_t>(request.want_announced() - leased.resent_announced, room - std::max(outcome.want, 0)));
  if (!request.draining() && !worker.is_draining && !rooms_.polls.is_draining() && !outcome.is_cut &&
      outcome.has_room()) {
    ASSIGN_OR_RETURN(
        outcome.is_cut,
        rooms_.grants.Grant(
            worker, {.poll_id = request.poll_id(), .want = outcome.want, .want_announced = outcome.want_announced},
            CallTimes::At(now), response));
  }
  // What had no room comes with the next call, at once.
  if (!outcome.is_cut) SetPaceOf(request, worker, outcome, response);
  return response;
}

absl::Status SyncCalls::TakeResults(ReceivedCall& call, const WorkerProfile& worker, absl::Time now,
                                    v1::SyncResponse& response) {
  for (int i = 0; i < call.request.results_size(); ++i) {
    std::optional<Reception> received;
    if (!call.received.empty()) received = std::move(call.received[static_cast<size_t>(i)]);
    ASSIGN_OR_RETURN(const v1::ResultVerdict verdict,
                     rooms_.intake.Take(call.request.results(i), std::move(received), SenderOf(worker),
                                        {.arrival = call.arrival, .now = now}));
    *response.add_verdicts() = verdict;
    CountVerdict(verdict.verdict(), context_.figures.Of(worker.slot));
    if (verdict.verdict() == v1::ResultVerdict::ACCEPTED) rooms_.rates.CountCompletion(worker.population, now);
  }
  return absl::OkStatus();
}

bool SyncCalls::MayWait(const v1::SyncRequest& request, const WorkerProfile& worker) const {
  // A drained worker waits until it is taken back into service, once it knows; and one that believes to be drained and
  // is not any more is told at once.
  return !rooms_.polls.is_draining() && !request.draining() && worker.is_draining == request.drained() &&
         FromProto(request.wait()) > absl::ZeroDuration();
}

void SyncCalls::SetPaceOf(const v1::SyncRequest& request, const WorkerProfile& worker, Outcome& outcome,
                          v1::SyncResponse& response) const {
  const bool may_wait = MayWait(request, worker) && (!WantsLeases(request) || outcome.has_room());
  const bool is_back_in_service = request.drained() && !worker.is_draining;
  SetPace(rooms_.polls.is_draining()    ? rooms_.polls.drain_pace()
          : is_back_in_service          ? Pace::kAtOnce
          : !may_wait                   ? Pace::kLater
          : response.verdicts().empty() ? Pace::kSoon
                                        : Pace::kAtOnce,
          response);
  if (worker.is_draining && !request.drained()) SetPace(Pace::kNowAndThen, response);
  outcome.is_steered =
      !may_wait && !is_back_in_service && (outcome.want > 0 || (request.want() == 0 && HoldsNothing(response)));
}

void SyncCalls::Steer(const v1::SyncRequest& request, const WorkerProfile& worker, const Outcome& outcome,
                      absl::Time now, v1::SyncResponse& response) {
  // They take no task, and are told when to come for other reasons.
  if (request.draining() || worker.is_draining || rooms_.polls.is_draining()) return;
  if (outcome.want > 0) {
    steering_.OnCall(
        worker.population,
        {.num_leases = response.leases_size() - outcome.resent, .appointment = worker.appointment, .now = now},
        [&] { return NumQueued(worker.population); });
  }
  absl::Time appointment = PaceSteering::kNoAppointment;
  if (outcome.is_steered && response.leases().empty()) {
    const PaceRange soon = {.min = FromProto(response.next_min()), .max = FromProto(response.next_max())};
    const PaceSteering::Next next = steering_.NextCall(worker.population, soon, now);
    SetPaceRange(next.range, response);
    appointment = next.appointment;
  }
  rooms_.workers.NoteAppointment(worker, appointment);
}

absl::Status SyncCalls::TurnedAway(const v1::SyncRequest& request, absl::Status refusal, absl::Time now) {
  const std::optional<absl::Duration> pause = RetryAfter(refusal);
  if (!pause) return refusal;
  // A refused caller comes back between once and twice the time that it is told.
  const PaceRange soon = {.min = *pause, .max = 2 * *pause};
  const PaceSteering::Next next = steering_.NextCall(PopulationOrDefault(request.population()), soon, now);
  return WithRetryAfter(std::move(refusal), std::max(*pause, next.range.min / 1.5));
}

int64_t SyncCalls::NumQueued(const std::string& population) const {
  const RoundWork::Rounds* const with_work = rooms_.rounds.work().In(population);
  if (with_work == nullptr) return 0;
  int64_t num_queued = 0;
  int num_left = kRoundsCountedMax;
  for (auto it = with_work->begin(); it != with_work->end() && num_left-- > 0; ++it) {
    const absl::StatusOr<TaskCounts> tasks = context_.store.CountTasks(it->second->id);
    if (tasks.ok()) num_queued += tasks->queued;
  }
  return num_queued;
}

}  // namespace sheaf
