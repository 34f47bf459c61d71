#include "tests/simulation/ledger.h"

#include <algorithm>

#include "proto/time.h"
#include "storage/transitions.h"
#include "tests/simulation/store_monitor.h"

namespace sheaf::simulation {
namespace {

bool IsContribution(const v1::TaskResult& result) {
  return result.outcome_case() == v1::TaskResult::kContribution || result.outcome_case() == v1::TaskResult::kUploadId;
}

}  // namespace

int64_t Ledger::OnSyncArrives(const v1::SyncRequest& request) {
  for (const v1::TaskResult& result : request.results()) {
    if (IsContribution(result)) offered_.emplace(result.task(), result.lease_token());
  }
  if (request.want_announced() > 0) prepares_.insert(request.worker());
  auto& calls = open_[request.worker()];
  const bool is_alone = calls.empty();
  for (auto& [id, call] : calls) call.is_alone = false;
  Open& call = calls[++newest_call_];
  call.is_alone = is_alone;
  for (const v1::HeldLease& held : request.held()) {
    int64_t& most = progress_[held.lease_token()];
    if (held.progress() > most) call.advanced.insert(held.lease_token());
    most = std::max(most, held.progress());
  }
  return newest_call_;
}

void Ledger::OnSyncEnded(int64_t call, const v1::SyncRequest& request) { open_[request.worker()].erase(call); }

void Ledger::OnSyncAnswered(int64_t call, const v1::SyncRequest& request, const v1::SyncResponse& response,
                            const CallTimes& times, TaskStore& store, const StoreMonitor& monitor) {
  const absl::Time arrival = times.arrival;
  const auto [is_alone, advanced] = open_[request.worker()][call];
  OnSyncEnded(call, request);
  // A newer call has ended this one's wait: it is told nothing.
  const bool is_empty = response.held().empty() && response.leases().empty() && request.results().empty();
  if (is_empty && !is_alone) return;
  if (response.verdicts_size() != request.results_size() || response.held_size() != request.held_size()) {
    return journal_.Break("every result gets a verdict", "{} results got {} verdicts, {} leases got {} updates",
                          request.results_size(), response.verdicts_size(), request.held_size(), response.held_size());
  }
  for (int i = 0; i < request.results_size(); ++i)
    CheckVerdict(request.results(i), response.verdicts(i), store, monitor);
  for (int i = 0; i < request.held_size(); ++i) {
    const v1::LeaseUpdate& update = response.held(i);
    if (update.lease_token() != request.held(i).lease_token()) {
      journal_.Break("every result gets a verdict", "lease update {} is for another lease", i);
    }
    CheckOpened(request.held(i), update, times, store, monitor);
    if (update.verdict() == v1::LeaseUpdate::HELD || update.verdict() == v1::LeaseUpdate::OPENED) {
      CheckPromise("held", request, update.task(), update.lease_token(), update.remaining(), arrival, monitor);
      if (advanced.contains(update.lease_token())) {
        CheckRenewal(request, update.task(), update.lease_token(), arrival, monitor);
      }
    }
  }
  for (const v1::Lease& lease : response.leases()) {
    payloads_[lease.lease_token()] = lease.payload();
    CheckPromise("granted", request, lease.task(), lease.lease_token(), lease.remaining(), arrival, monitor);
    CheckLease(request, lease, times, store, monitor);
  }
  if (is_alone) CheckNothingWithheld(request, response, store);
}

void Ledger::CheckVerdict(const v1::TaskResult& result, const v1::ResultVerdict& verdict, TaskStore& store,
                          const StoreMonitor& monitor) {
  using V = v1::ResultVerdict;
  ++statistics_.verdicts[V::Verdict_Name(verdict.verdict())];
  const std::string& name = result.task();
  const std::string& token = result.lease_token();
  journal_.Note("verdict {} on task {} under {}", V::Verdict_Name(verdict.verdict()), name, token);
  if (verdict.task() != name || verdict.lease_token() != token) {
    journal_.Break("every result gets a verdict", "the verdict on task {} is for {}", name, verdict.task());
  }
  // Where it is by now.
  const StoreMonitor::Place place = monitor.PlaceOf(*TaskId::Parse(name));
  const std::optional<TaskId> id = place.id;
  const StoreMonitor::TaskImage* task = monitor.FindTask(*id);
  if (task == nullptr) return journal_.Break("rounds exist", "a worker has task {}, which never was", name);
  const bool was_deleted = monitor.WasDeleted(id->round);
  if (task->origin) {
    statistics_.carried["results repeated"] += verdict.verdict() == V::DUPLICATE;
    statistics_.carried["results that were not needed"] += verdict.verdict() == V::NOT_NEEDED;
  }
  if (verdict.verdict() == V::UNKNOWN_TASK) {
    if (place.is_traceable) journal_.Break("verdicts are true", "task {} exists and was called unknown", name);
    return;
  }
  const absl::StatusOr<TaskRecord> stored = store.GetTask(*id);
  if (stored.ok() == was_deleted || (stored.ok() && stored->state != task->state)) {
    return journal_.Break("the store answers", "task {} is {} in the store", name,
                          stored.ok() ? std::string(Name(stored->state)) : stored.status().ToString());
  }
  bool is_counted = task->state == TaskState::kSucceeded && task->token.value() == token;
  // A round that was deleted forgets what has become of its tasks: then nobody can tell that it was counted.
  if (place.is_traceable) CheckReason(verdict, id->round, store);
  if (!IsContribution(result)) return;
  // What a worker hands in wrong in this world is not even a message.
  if (verdict.verdict() == V::REJECTED && verdict.message().find("not a serialised") == std::string::npos) {
    journal_.Break("what is right is not rejected", "task {} under {}: {}", name, token, verdict.message());
  }
  bool is_said_counted = verdict.verdict() == V::ACCEPTED || verdict.verdict() == V::DUPLICATE;
  if (is_said_counted && !is_counted) {
    journal_.Break("accepted, so counted", "task {} under {} got {} and is {} under {}", name, token,
                   V::Verdict_Name(verdict.verdict()), Name(task->state), task->token);
  }
  if (!is_said_counted && is_counted && place.is_traceable) {
    journal_.Break("verdicts are true", "task {} under {} is counted and got {}", name, token,
                   V::Verdict_Name(verdict.verdict()));
  }
  if (is_said_counted) acked_[name] = token;
}

void Ledger::CheckReason(const v1::ResultVerdict& verdict, const RoundId& round, TaskStore& store) {
  using V = v1::ResultVerdict;
  const absl::StatusOr<RoundRecord> record = store.GetRound(round);
  if (!record.ok()) return;  // Deleted in the very batch that said it.
  const bool has_failed = record->state == RoundState::kFailed || record->state == RoundState::kCancelled;
  const bool has_enough = record->state == RoundState::kSealing || record->state == RoundState::kSucceeded;
  // A round that was sealing when the verdict was found may have failed in the same batch.
  if ((verdict.verdict() == V::LATE && !has_failed) ||
      (verdict.verdict() == V::NOT_NEEDED && !has_enough && record->state != RoundState::kFailed)) {
    journal_.Break("verdicts are true", "round {} is {}, and a result of it got {}", round, Name(record->state),
                   V::Verdict_Name(verdict.verdict()));
  }
}

void Ledger::CheckRenewal(const v1::SyncRequest& request, const std::string& task, const std::string& token,
                          absl::Time arrival, const StoreMonitor& monitor) {
  const StoreMonitor::Grant* grant = monitor.FindGrant(token);
  if (grant == nullptr) return;
  // The call may have been read before the task was carried over, and answered after.
  absl::Time least = grant->attempt_deadline_time;
  for (std::optional<TaskId> place = grant->task; place; place = monitor.FindTask(*place)->carried_to) {
    const v1::RoundSpec* spec = monitor.FindSpec(place->round);
    // Others have taken less time meanwhile, and so may this one.
    if (spec->straggler().deadline_factor() > 0) return;
    least = std::min(least, arrival + FromProto(spec->lease_duration()));
  }
  // A store may keep whole microseconds.
  if (grant->expire_time >= least - absl::Microseconds(1)) return;
  journal_.Break("a lease is renewed by progress", "worker {} made progress with task {}, and its lease ends {} early",
                 request.worker(), task, absl::FormatDuration(least - grant->expire_time));
}

void Ledger::CheckPromise(std::string_view what, const v1::SyncRequest& request, const std::string& task,
                          const std::string& token, const google::protobuf::Duration& remaining, absl::Time arrival,
                          const StoreMonitor& monitor) {
  const StoreMonitor::Grant* grant = monitor.FindGrant(token);
  if (grant == nullptr || grant->task.ToString() != task || grant->worker.value() != request.worker()) {
    return journal_.Break("a lease has a holder", "worker {} was {} task {} under {}, which it was not granted",
                          request.worker(), what, task, token);
  }
  if (FromProto(remaining) <= absl::ZeroDuration()) {
    journal_.Break("what is held runs", "worker {} was {} task {} for {}", request.worker(), what, task,
                   absl::FormatDuration(FromProto(remaining)));
  }
  // The worker counts from when it sent the call, which is not later than its arrival.
  absl::Time promised = arrival + FromProto(remaining);
  if (promised > grant->expire_time + absl::Microseconds(1)) {
    journal_.Break("a task is never held by two live tokens", "worker {} was {} task {} for {} longer than it has it",
                   request.worker(), what, task, absl::FormatDuration(promised - grant->expire_time));
  }
}

void Ledger::CheckOpened(const v1::HeldLease& held, const v1::LeaseUpdate& update, const CallTimes& times,
                         TaskStore& store, const StoreMonitor& monitor) {
  const std::optional<TaskId> task = TaskId::Parse(held.task());
  const bool is_told = update.verdict() == v1::LeaseUpdate::OPENED;
  const bool goes_on = is_told || update.verdict() == v1::LeaseUpdate::HELD;
  if (!goes_on || !task.has_value() || (!is_told && !held.announced())) return;
  // In the batch that this answers.
  if (monitor.WasDeleted(task->round)) return;
  // Also where the task was carried over since, it runs on what it was prepared for.
  const absl::StatusOr<RoundRecord> round = store.GetRound(task->round);
  if (!round.ok()) return journal_.Break("the store answers", "{}", round.status().ToString());
  const TaskId place = monitor.PlaceOf(*task).id;
  if (is_told && place != *task) ++statistics_.carried["told of the opening of a round before"];
  if (!is_told) {
    if (monitor.OpenTimeOf(task->round) < times.arrival) {
      journal_.Break("who prepares hears of the opening", "task {} is held as announced, and its round is open",
                     held.task());
    }
    return;
  }
  if (!held.announced() || round->state == RoundState::kAnnounced) {
    return journal_.Break("OPENED is true", "round {} is {}, and the holder of task {} was told that it is open",
                          task->round, Name(round->state), held.task());
  }
  if (update.broadcast_digest() != round->broadcast_digest) {
    journal_.Break("OPENED is true", "the holder of task {} was told of the broadcast \"{}\" and not of \"{}\"",
                   held.task(), update.broadcast_digest(), round->broadcast_digest);
  }
  CheckAttemptDeadline(place, held.lease_token(), times.now, monitor);
  const bool is_new = told_open_.insert(held.lease_token()).second;
  const bool was_parked = monitor.OpenTimeOf(task->round) > times.arrival;
  ++statistics_.announced[!is_new      ? "leases told again"
                          : was_parked ? "leases told in a parked call"
                                       : "leases told in a later call"];
}

void Ledger::CheckLease(const v1::SyncRequest& request, const v1::Lease& lease, const CallTimes& times,
                        TaskStore& store, const StoreMonitor& monitor) {
  const std::optional<TaskId> task = TaskId::Parse(lease.task());
  // In the batch that this answers.
  if (monitor.WasDeleted(task->round)) return;
  const absl::StatusOr<RoundRecord> round = store.GetRound(task->round);
  if (!round.ok()) return journal_.Break("the store answers", "{}", round.status().ToString());
  if (lease.announced()) {
    announced_.insert(lease.lease_token());
    if (prepares_.contains(request.worker())) return;
    return journal_.Break("who prepares nothing gets what can run", "worker {} got task {} to prepare",
                          request.worker(), lease.task());
  }
  if (round->state == RoundState::kAnnounced || lease.broadcast_digest() != round->broadcast_digest) {
    return journal_.Break("what is to run has its broadcast", "round {} is {}, and worker {} got task {} with \"{}\"",
                          task->round, Name(round->state), request.worker(), lease.task(), lease.broadcast_digest());
  }
  told_open_.insert(lease.lease_token());
  if (!announced_.contains(lease.lease_token())) {
    if (!monitor.FindSpec(task->round)->announced()) return;
  } else {
    ++statistics_.announced["leases sent again as open"];
  }
  CheckAttemptDeadline(*task, lease.lease_token(), times.now, monitor);
}

void Ledger::CheckAttemptDeadline(const TaskId& task, const std::string& token, absl::Time now,
                                  const StoreMonitor& monitor) {
  const StoreMonitor::TaskImage* held = monitor.FindTask(task);
  if (held == nullptr || held->token.value() != token) return;
  // What the lease was promised for before is not taken back.
  const absl::Time most =
      std::max(now + FromProto(monitor.FindSpec(task.round)->attempt_deadline()), held->expire_time);
  if (held->attempt_deadline_time <= most + absl::Microseconds(1)) return;
  journal_.Break("an attempt's time counts from the opening", "task {} was told, and may take {} longer than it should",
                 task.ToString(), absl::FormatDuration(held->attempt_deadline_time - most));
}

void Ledger::CheckNothingWithheld(const v1::SyncRequest& request, const v1::SyncResponse& response, TaskStore& store) {
  absl::StatusOr<std::vector<TaskRecord>> leases = store.ListLeases(request.population(), WorkerName(request.worker()));
  if (!leases.ok()) return journal_.Break("the store answers", "{}", leases.status().ToString());
  std::set<std::string> known;
  for (const v1::TaskResult& result : request.results()) known.insert(result.lease_token());
  for (const v1::HeldLease& held : request.held()) known.insert(held.lease_token());
  for (const v1::Lease& lease : response.leases()) known.insert(lease.lease_token());
  for (const TaskRecord& task : *leases) {
    // What was carried over is not: its round is not the one that it was granted of.
    if (!known.contains(task.lease_token.value()) && !task.origin) {
      journal_.Break("a lease the worker does not know of is sent again", "worker {} was not told of task {} under {}",
                     request.worker(), task.id.ToString(), task.lease_token);
    }
  }
}

}  // namespace sheaf::simulation
