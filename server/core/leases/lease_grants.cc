#include "server/core/leases/lease_grants.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/key_hash.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/leases/lease_renewal.h"
#include "server/core/leases/straggler_policy.h"
#include "server/core/rounds/round_states.h"
#include "storage/second_lease.h"

namespace sheaf {
namespace {

// 26 characters of 5 bits: 130 random bits.
constexpr int kTokenCharacters = 26;
// Requirements that are compared with a worker's labels in one call, of all rounds together, and of each at the least.
// A worker carries the rarest label of few requirements that it does not fulfil, unless both were made for that.
constexpr int64_t kCandidatesMax = 4096;
constexpr int64_t kCandidatesMin = 16;
// The names, tokens and numbers of a lease, apart from what its round and task bring.
constexpr int64_t kLeaseFrameBytes = 1 << 10;

v1::Lease ToLease(const LiveRound& round, const TaskRecord& task, absl::Time arrival) {
  v1::Lease lease;
  lease.set_task(task.id.ToString());
  lease.set_round(round.id.value());
  lease.set_lease_token(task.lease_token.value());
  lease.set_attempt(task.attempt);
  *lease.mutable_remaining() = ToProto(task.expire_time - arrival);
  *lease.mutable_computation() = round.spec.computation();
  lease.set_payload(task.payload);
  lease.set_data_selector(task.data_selector);
  *lease.mutable_aggregate() = round.spec.aggregate();
  lease.set_broadcast_digest(round.spec.broadcast_digest());
  lease.set_contribution_bytes_max(round.spec.contribution_bytes_max());
  lease.set_min_clients(round.spec.min_clients());
  lease.set_durability(round.spec.durability());
  lease.set_priority(round.spec.priority());
  *lease.mutable_attempt_deadline() = round.spec.attempt_deadline();
  lease.set_announced(WaitsForBroadcast(round.state));
  return lease;
}

// The first protocol whose workers know what an announced lease is.
constexpr int kPreparesSince = 2;

// Of an attempt that begins now. One that is prepared before its round opens has this time from then on: the first
// renewal that tells its worker so brings it forward (see LeaseRenewal).
absl::Time AttemptDeadline(const LiveRound& round, absl::Time now) {
  return (WaitsForBroadcast(round.state) ? round.deadline_time : now) + FromProto(round.spec.attempt_deadline());
}

}  // namespace

absl::StatusOr<LeaseGrants::Held> LeaseGrants::Resend(const v1::SyncRequest& request, const WorkerProfile& worker,
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
    // The answer that granted it is two rounds old: without its round it says nothing. It runs out.
    if (task.origin) continue;
    if (known.contains(task.lease_token.value()) || !worker.caller->OwnsLease(task.lease_token.value())) continue;
    if (held_by_worker.is_cut) continue;
    // It has run out while no batch could be committed, and is taken back in this one.
    if (task.expire_time <= now) continue;
    // Whoever was restarted under this name as an older version would run it without its broadcast.
    if (WaitsForBroadcast(round->state) && worker.protocol_version < kPreparesSince) continue;
    // With what its submitter wrote.
    ASSIGN_OR_RETURN(const TaskRecord whole, context_.store.GetTask(task.id));
    v1::Lease lease = ToLease(*round, AsHeldUnder(whole, task.lease_token), now);
    const auto bytes = static_cast<int64_t>(lease.ByteSizeLong());
    held_by_worker.is_cut = room_.NumFitting(bytes) == 0;
    if (held_by_worker.is_cut) continue;
    room_.Take(bytes);
    // The worker hears only now that it has this, and perhaps that the round has opened meanwhile.
    if (round->spec.announced() && !WaitsForBroadcast(round->state)) {
      RETURN_IF_ERROR(context_.store
                          .RenewLease({.task = task.id,
                                       .token = task.lease_token,
                                       .expire_time = task.expire_time,
                                       .attempt_deadline_time_max = AttemptDeadlineOfOpened(*round, task, now)})
                          .status());
    }
    *response.add_leases() = std::move(lease);
    *response.mutable_grant_time() = ToProto(now);
    ++(WaitsForBroadcast(round->state) ? held_by_worker.resent_announced : held_by_worker.resent);
    context_.figures.leases_resent.Add();
  }
  return held_by_worker;
}

absl::StatusOr<bool> LeaseGrants::Grant(const WorkerProfile& worker, const Wish& wish, const CallTimes& times,
                                        v1::SyncResponse& response) {
  ASSIGN_OR_RETURN(const bool is_cut,
                   GrantPortion(worker, {.poll_id = wish.poll_id, .want = wish.want}, times, response));
  if (is_cut) return true;
  return GrantPortion(worker, {.poll_id = wish.poll_id, .want = wish.want_announced, .is_announced = true}, times,
                      response);
}

absl::StatusOr<bool> LeaseGrants::GrantPortion(const WorkerProfile& worker, const Portion& wish, const CallTimes& times,
                                               v1::SyncResponse& response) {
  int32_t want = wish.want;
  if (want <= 0) return false;
  int64_t WorkerProfile::*const looked_at =
      wish.is_announced ? &WorkerProfile::looked_at_announced : &WorkerProfile::looked_at;
  const int64_t work_version = rounds_.work().version();
  int64_t candidates_left = kCandidatesMax;
  bool is_complete = true;
  for (LiveRound* round :
       scheduler_.RoundsFor(worker, rounds_, {.for_announced = wish.is_announced, .since = worker.*looked_at})) {
    if (want == 0) return false;
    const RequirementIndex::Match match = MatchOf(worker, *round, candidates_left);
    is_complete = is_complete && match.is_complete;
    if (match.numbers.empty()) {
      round->may_have_work = HasWork(*round, times.now);
      continue;
    }
    // A task's size is known once it is leased, so that only as many are leased at once as fit if all are as large as
    // they may be. At most `want` turns: each but the last leases one at least.
    for (bool has_more = true; has_more && want > 0;) {
      const int32_t portion = std::min(want, room_.NumFitting(LeaseBytesMax(*round)));
      if (portion == 0) return true;
      ASSIGN_OR_RETURN(const int32_t num_leased,
                       LeaseFrom(*round, match, worker, {.poll_id = wish.poll_id, .want = portion}, times, response));
      want -= num_leased;
      has_more = num_leased == portion;
    }
  }
  if (want > 0 && is_complete) workers_.NoteLook(worker, looked_at, work_version);
  return false;
}

absl::StatusOr<int32_t> LeaseGrants::LeaseFrom(LiveRound& round, const RequirementIndex::Match& match,
                                               const WorkerProfile& worker, const Portion& wish, const CallTimes& times,
                                               v1::SyncResponse& response) {
  std::vector<LeaseToken> tokens;
  for (int32_t i = 0; i < wish.want; ++i) {
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
  // What is too slow now may not be when more attempts have succeeded: each renewal asks again.
  const absl::Duration limit = AttemptLimit(round.spec, round.progress.run_times);
  const TaskStore::LeaseTasksParams params{.round = round.id,
                                           .worker = worker.name,
                                           .poll_id = wish.poll_id,
                                           .tokens = std::move(tokens),
                                           .fulfilled_requirements = std::move(fulfilled),
                                           .per_worker_max = per_worker_max,
                                           .now = times.now,
                                           .expire_time = times.now + std::min(lease, limit),
                                           .attempt_deadline_time = AttemptDeadline(round, times.now)};
  ASSIGN_OR_RETURN(std::vector<TaskRecord> tasks, context_.store.LeaseTasks(params));
  ASSIGN_OR_RETURN(std::vector<TaskRecord> again, LeaseAgain(round, params, tasks.size(), times.now));
  const auto num_first = static_cast<int64_t>(tasks.size());
  const auto num_again = static_cast<int64_t>(again.size());
  std::move(again.begin(), again.end(), std::back_inserter(tasks));
  const auto num_leased = static_cast<int32_t>(tasks.size());
  if (num_leased > 0) speculation_.Note(round);
  if (num_leased < wish.want) {
    // Tasks that are queued but delayed wake everyone when their time comes; those this worker may not take stay.
    const bool has_work = HasWork(round, times.now);
    round.may_have_work = has_work && (!could_take_any || speculation_.HasStraggler(round, times.now));
  }
  for (const TaskRecord& task : tasks) {
    due_.NoLaterThan(task.expire_time);
    if (!task.second_lease) {
      context_.figures.task_wait_seconds.Observe(absl::ToDoubleSeconds(times.now - task.available_time));
    }
    v1::Lease& granted = *response.add_leases() = ToLease(round, task, times.arrival);
    room_.Take(static_cast<int64_t>(granted.ByteSizeLong()));
  }
  if (num_leased > 0) {
    *response.mutable_grant_time() = ToProto(times.now);
    scheduler_.Served(round, rounds_);
    if (num_first > 0) rounds_.queue().OnLeased(round, num_first);
    if (num_again > 0) rounds_.queue().OnLeasedAgain(round, num_again);
    rates_.CountLeases(worker.population, num_leased, times.now);
  }
  return num_leased;
}

RequirementIndex::Match LeaseGrants::MatchOf(const WorkerProfile& worker, const LiveRound& round,
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

absl::StatusOr<std::vector<TaskRecord>> LeaseGrants::LeaseAgain(const LiveRound& round,
                                                                const TaskStore::LeaseTasksParams& like,
                                                                size_t num_leased, absl::Time now) {
  const absl::Time begun_by = speculation_.BegunBy(round, now);
  if (begun_by == absl::InfinitePast() || num_leased == like.tokens.size()) return std::vector<TaskRecord>();
  return context_.store.LeaseAgain(
      {.round = round.id,
       .worker = like.worker,
       .poll_id = like.poll_id,
       .tokens = {like.tokens.begin() + static_cast<std::ptrdiff_t>(num_leased), like.tokens.end()},
       .fulfilled_requirements = like.fulfilled_requirements,
       .per_worker_max = like.per_worker_max,
       .lost_max = round.spec.retry().lost_max(),
       .failed_max = round.spec.retry().failed_max(),
       .begun_by = begun_by,
       .now = now,
       .expire_time = like.expire_time,
       .attempt_deadline_time = like.attempt_deadline_time});
}

bool LeaseGrants::HasWork(const LiveRound& round, absl::Time now) const {
  const absl::StatusOr<TaskCounts> tasks = context_.store.CountTasks(round.id);
  return (tasks.ok() && tasks->queued > 0) || speculation_.HasStraggler(round, now);
}

int64_t LeaseGrants::LeaseBytesMax(const LiveRound& round) const {
  return static_cast<int64_t>(round.spec.computation().ByteSizeLong() + round.spec.aggregate().ByteSizeLong()) +
         context_.limits.task_payload_bytes_max + context_.limits.data_selector_bytes_max + kLeaseFrameBytes;
}

}  // namespace sheaf
