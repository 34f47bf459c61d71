#include "tests/simulation/store_monitor.h"

#include <algorithm>

#include "storage/transitions.h"
#include "tests/simulation/ledger.h"

namespace sheaf::simulation {

// --- Batches -------------------------------------------------------------------------------------

void StoreMonitor::OnBegin() { before_batch_.clear(); }

void StoreMonitor::OnCommit() { before_batch_.clear(); }

void StoreMonitor::OnRollback() {
  for (auto& [id, image] : before_batch_) {
    if (image.has_value()) {
      rounds_[id] = *std::move(image);
    } else {
      rounds_.erase(id);
    }
  }
  before_batch_.clear();
}

// --- Operations ----------------------------------------------------------------------------------

void StoreMonitor::OnCreateRound(const TaskStore::CreateRoundParams& params,
                                 const TaskStore::CreateRoundResult& result) {
  RoundImage image;
  if (!image.spec.ParseFromString(params.round.spec)) journal_.Break("spec", "the stored spec does not parse");
  image.population = result.round.population;
  image.version = result.round.version - 1;
  image.tasks.resize(params.tasks.size());
  before_batch_.emplace(result.round.id, std::nullopt);
  rounds_[result.round.id] = std::move(image);
  Look("CreateRound", result.round.id);
}

void StoreMonitor::OnLease(const TaskStore::LeaseTasksParams& params, const std::vector<TaskRecord>& leased) {
  for (const TaskRecord& task : leased) {
    journal_.Note("task {} leased to {} under {} until +{}", task.id.ToString(), params.worker, task.lease_token,
                  absl::FormatDuration(task.expire_time - params.now));
    bool is_new = grants_
                      .emplace(task.lease_token.value(),
                               Grant{.task = task.id, .worker = params.worker, .expire_time = task.expire_time})
                      .second;
    if (!is_new) journal_.Break("one token, one lease", "token {} was granted twice", task.lease_token);
    if (task.available_time > params.now) {
      journal_.Break("backoff", "task {} was leased before its time", task.id.ToString());
    }
  }
  const RoundImage* round = Find(params.round);
  if (round != nullptr && ledger_.PopulationOf(params.worker.value()) != round->population) {
    journal_.Break("nothing crosses populations", "worker {} was leased a task of round {}", params.worker,
                   params.round);
  }
  Look("LeaseTasks", params.round);
}

void StoreMonitor::OnRenew(const TaskRecord& task) {
  auto grant = grants_.find(task.lease_token.value());
  if (grant == grants_.end()) return;
  grant->second.expire_time = std::max(grant->second.expire_time, task.expire_time);
  Look("RenewLease", task.id.round);
}

void StoreMonitor::BeforeEndAttempt(const TaskStore::EndAttemptParams& params) {
  RoundImage* round = Find(params.task.round);
  if (round == nullptr || params.outcome != AttemptOutcome::kLost) return;
  // The holder itself came, with a result whose upload a crash had taken.
  if (ledger_.WasOffered(params.task.ToString(), params.token.value())) return;
  const TaskImage& task = round->tasks[params.task.index];
  if (task.token == params.token && task.state == TaskState::kLeased && params.now < task.expire_time &&
      params.now < task.attempt_deadline_time) {
    journal_.Break("a task is never held by two live tokens", "the lease {} of task {} ended {} early", params.token,
                   params.task.ToString(), absl::FormatDuration(task.expire_time - params.now));
  }
}

void StoreMonitor::OnContribution(const TaskStore::RecordContributionParams& params, const ContributionRecord& record) {
  ++statistics_.contributions;
  const std::string token = params.token.value();
  const std::string task = params.task.ToString();
  journal_.Note("contribution {} of round {}: task {} under {}", record.sequence, params.task.round, task, token);
  const RoundImage* round = Find(params.task.round);
  if (round == nullptr) return;
  const TaskImage& before = round->tasks[params.task.index];
  if (round->state != RoundState::kCollecting) {
    journal_.Break("none counted after close", "task {} was counted in a round that is {}", task, Name(round->state));
  }
  if (before.state != TaskState::kLeased || before.token != params.token) {
    journal_.Break("only the holder's contribution counts", "task {} was {} under {} and counted under {}", task,
                   Name(before.state), before.token, token);
  }
  if (!ledger_.WasOffered(task, token)) {
    journal_.Break("counted, so attempted", "no worker offered a contribution of task {} under {}", task, token);
  }
  if (record.sequence != round->num_contributions + 1) {
    journal_.Break("sequence", "contribution {} of round {} follows {}", record.sequence, params.task.round,
                   round->num_contributions);
  }
  const bool is_spooled = params.payload.segment != 0;
  if (is_spooled != (round->spec.durability() == v1::DURABLE)) {
    journal_.Break("durability", "task {} of a {} round was {}spooled", task,
                   v1::Durability_Name(round->spec.durability()), is_spooled ? "" : "not ");
  }
  Look("RecordContribution", params.task.round);
}

void StoreMonitor::OnForget(const RoundId& round, int64_t count) {
  const RoundImage* image = Find(round);
  if (image == nullptr) return;
  journal_.Note("round {} forgets {} contributions", round, count);
  if (count > 0 && image->spec.durability() != v1::EPHEMERAL) {
    journal_.Break("durable is durable", "the DURABLE round {} forgot {} contributions", round, count);
  }
  if (count > 0 && !has_crashed_) {
    journal_.Break("a graceful stop loses nothing", "round {} forgot {} contributions", round, count);
  }
  Look("Forget", round);
}

void StoreMonitor::OnChange(std::string_view operation, const RoundId& round) { Look(operation, round); }

void StoreMonitor::OnSpool(const RoundId& round) {
  const RoundImage* image = Find(round);
  if (image != nullptr && image->spec.durability() == v1::EPHEMERAL) {
    journal_.Break("nothing individual on disk", "a contribution of the EPHEMERAL round {} is spooled", round);
  }
}

const StoreMonitor::Grant* StoreMonitor::FindGrant(const std::string& token) const {
  auto found = grants_.find(token);
  return found == grants_.end() ? nullptr : &found->second;
}

const v1::RoundSpec* StoreMonitor::FindSpec(const RoundId& round) const {
  auto found = rounds_.find(round);
  return found == rounds_.end() ? nullptr : &found->second.spec;
}

// --- Looking -------------------------------------------------------------------------------------

StoreMonitor::RoundImage* StoreMonitor::Find(const RoundId& round) {
  auto found = rounds_.find(round);
  if (found != rounds_.end()) return &found->second;
  journal_.Break("rounds exist", "round {} was changed and never created", round);
  return nullptr;
}

void StoreMonitor::Look(std::string_view operation, const RoundId& round) {
  RoundImage* image = Find(round);
  if (image == nullptr) return;
  before_batch_.emplace(round, *image);
  absl::StatusOr<RoundRecord> record = store_->GetRound(round);
  absl::StatusOr<std::vector<TaskRecord>> tasks = store_->ListTasks({.round = round, .limit = 1000});
  if (!record.ok() || !tasks.ok() || tasks->size() != image->tasks.size()) {
    return journal_.Break("the store answers", "after {} round {} cannot be read: {} {}", operation, round,
                          record.status().ToString(), tasks.status().ToString());
  }
  CheckCounts(*record, *tasks);
  CheckRound(operation, *image, *record);
  for (size_t i = 0; i < tasks->size(); ++i) {
    const TaskRecord& task = (*tasks)[i];
    CheckTask(operation, *image, image->tasks[i], task);
    image->tasks[i] = {.state = task.state,
                       .token = task.lease_token,
                       .expire_time = task.expire_time,
                       .attempt_deadline_time = task.attempt_deadline_time,
                       .num_attempts = task.num_attempts};
  }
  image->state = record->state;
  image->version = record->version;
  image->counts = record->tasks;
  image->num_contributions = record->num_contributions;
}

void StoreMonitor::CheckRound(std::string_view operation, const RoundImage& image, const RoundRecord& record) {
  if (record.state != image.state) {
    journal_.Note("round {}: {} -> {} {}", record.id, Name(image.state), Name(record.state), record.error);
    statistics_.round_moves.emplace(image.state, record.state);
    if (!IsLegalMove(image.state, record.state)) {
      journal_.Break("states move along the table", "{} moved round {} from {} to {}", operation, record.id,
                     Name(image.state), Name(record.state));
    }
  }
  if (IsFinal(image.state)) {
    journal_.Break("what is final stays", "{} changed round {}, which is {}", operation, record.id, Name(image.state));
  }
  const bool has_changed = record.state != image.state || record.tasks != image.counts;
  if (record.version < image.version || (has_changed && record.version == image.version)) {
    journal_.Break("etag", "{} changed round {} and left its version at {}", operation, record.id, record.version);
  }
}

void StoreMonitor::CheckTask(std::string_view operation, const RoundImage& round, const TaskImage& before,
                             const TaskRecord& now) {
  if (now.state != before.state) {
    statistics_.task_moves.emplace(before.state, now.state);
    if (!IsLegalMove(before.state, now.state)) {
      journal_.Break("states move along the table", "{} moved task {} from {} to {}", operation, now.id.ToString(),
                     Name(before.state), Name(now.state));
    }
    bool was_forgotten = before.state == TaskState::kSucceeded && now.state == TaskState::kQueued;
    if (was_forgotten && (operation != "Forget" || round.spec.durability() != v1::EPHEMERAL)) {
      journal_.Break("durable is durable", "{} queued task {} again, whose contribution was accepted", operation,
                     now.id.ToString());
    }
    if (was_forgotten) ledger_.OnForgotten(now.id.ToString());
  } else if (now.state == TaskState::kLeased && now.lease_token != before.token) {
    journal_.Break("a task is never held by two live tokens", "{} replaced token {} of task {} by {}", operation,
                   before.token, now.id.ToString(), now.lease_token);
  }
  if (now.state == TaskState::kLeased && (now.lease_token.empty() || now.worker.empty())) {
    journal_.Break("a lease has a holder", "task {} is leased to nobody", now.id.ToString());
  }
  const v1::RetryPolicy& retry = round.spec.retry();
  bool can_run = now.state == TaskState::kQueued || now.state == TaskState::kLeased;
  if (now.num_failed > retry.failed_max() || now.num_lost > retry.lost_max() ||
      (can_run && (now.num_failed >= retry.failed_max() || now.num_lost >= retry.lost_max()))) {
    journal_.Break("attempts within limits", "task {} is {} with {} failed and {} lost attempts, limits {} and {}",
                   now.id.ToString(), Name(now.state), now.num_failed, now.num_lost, retry.failed_max(),
                   retry.lost_max());
  }
}

void StoreMonitor::CheckCounts(const RoundRecord& record, const std::vector<TaskRecord>& tasks) {
  TaskCounts counts;
  for (const TaskRecord& task : tasks) {
    counts.queued += task.state == TaskState::kQueued;
    counts.leased += task.state == TaskState::kLeased;
    counts.succeeded += task.state == TaskState::kSucceeded;
    counts.failed += task.state == TaskState::kFailed;
    counts.cancelled += task.state == TaskState::kCancelled;
    counts.buried += task.state == TaskState::kBuried;
  }
  if (counts != record.tasks || record.num_contributions != counts.succeeded) {
    journal_.Break("counts equal a recount",
                   "round {} says {} queued, {} leased, {} succeeded, {} contributions; there are {}, {} and {}",
                   record.id, record.tasks.queued, record.tasks.leased, record.tasks.succeeded,
                   record.num_contributions, counts.queued, counts.leased, counts.succeeded);
  }
}

}  // namespace sheaf::simulation
