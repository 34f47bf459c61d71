// Contributions and checkpoints.
#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/sql/sql_task_store.h"

namespace sheaf {

absl::StatusOr<ContributionRecord> SqlTaskStore::RecordContribution(const RecordContributionParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(CheckArguments(params));
  auto found = FindRound(params.task.round);
  if (absl::IsNotFound(found.status()) || params.task.index < 0) return NoSuchTask(params.task);
  RETURN_IF_ERROR(found.status());
  Round& round = **found;
  int64_t key = KeyOf(round, params.task.index);

  ASSIGN_OR_RETURN(const TaskRecord task, GetTaskState(params.task));
  RETURN_IF_ERROR(FindCollectingRound(params.task.round).status());
  if (task.state != TaskState::kLeased || task.lease_token != params.token) return LeaseIsGone(params.task, task.state);

  RETURN_IF_ERROR(Change(1, R"(-- complete_task
      UPDATE tasks SET state = 3, end_time = ?, poll_id = '', lease_time = 0, expire_time = NULL,
             attempt_deadline_time = 0, progress = 0
       WHERE task_key = ? AND state = 2 AND lease_token = ?)",
                         {ToSql(params.now), key, SqlText(params.token.value())}));
  leases_.Erase(params.task);
  RETURN_IF_ERROR(InsertAttempt(round, task,
                                {.end_time = params.now,
                                 .outcome = AttemptOutcome::kSucceeded,
                                 .timings = params.timings,
                                 .bytes_up = params.size_bytes}));
  int64_t sequence = round.record.num_contributions + 1;
  RETURN_IF_ERROR(
      Change(1, R"(-- record_contribution
      INSERT INTO contributions (round_key, sequence, task_key, worker, lease_token, digest, size_bytes, num_clients,
                                 spool_segment, spool_offset, spool_length, spool_crc, accept_time)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))",
             {round.key, sequence, key, SqlText(task.worker.value()), SqlText(params.token.value()),
              SqlText(params.digest), params.size_bytes, params.num_clients, params.payload.segment,
              params.payload.offset, params.payload.length, int64_t{params.payload.crc}, ToSql(params.now)}));
  RETURN_IF_ERROR(CountForWorker(round, task.worker, &WorkerRecord::num_succeeded, 1));
  Touch(round);
  RoundRecord& record = round.record;
  --record.tasks.leased;
  ++record.tasks.succeeded;
  record.num_contributions = sequence;
  record.num_clients += params.num_clients;
  record.bytes_up += params.size_bytes;
  record.progress = params.progress;
  return ContributionRecord{.task = params.task,
                            .sequence = sequence,
                            .worker = task.worker,
                            .lease_token = params.token,
                            .digest = params.digest,
                            .size_bytes = params.size_bytes,
                            .num_clients = params.num_clients,
                            .payload = params.payload,
                            .accept_time = params.now};
}

absl::StatusOr<std::vector<ContributionRecord>> SqlTaskStore::ListContributions(const RoundId& id, int64_t after,
                                                                                int limit) {
  ASSIGN_OR_RETURN(Round * round, FindRound(id));
  std::vector<ContributionRecord> contributions;
  RETURN_IF_ERROR(Run(R"(-- list_contributions
      SELECT task_key, sequence, worker, lease_token, digest, size_bytes, num_clients, spool_segment, spool_offset,
             spool_length, spool_crc, accept_time
        FROM contributions WHERE round_key = ? AND sequence > ? ORDER BY sequence LIMIT ?)",
                      {round->key, after, int64_t{std::max(limit, 0)}},
                      [&](const SqlRow& row) {
                        contributions.push_back({.task = {id, static_cast<int32_t>(row.Int(0) & INT32_MAX)},
                                                 .sequence = row.Int(1),
                                                 .worker = WorkerName(row.Bytes(2)),
                                                 .lease_token = LeaseToken(row.Bytes(3)),
                                                 .digest = row.String(4),
                                                 .size_bytes = row.Int(5),
                                                 .num_clients = row.Int(6),
                                                 .payload = {.segment = row.Int(7),
                                                             .offset = row.Int(8),
                                                             .length = row.Int(9),
                                                             .crc = static_cast<uint32_t>(row.Int(10))},
                                                 .accept_time = row.Time(11)});
                      })
                      .status());
  return contributions;
}

absl::Status SqlTaskStore::SaveCheckpoint(const SaveCheckpointParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  ASSIGN_OR_RETURN(Round * round, FindRound(params.round));
  RoundRecord& record = round->record;
  if (params.sequence < record.checkpoint_sequence || params.sequence > record.num_contributions) {
    return CheckpointGoesBack(record, params.sequence);
  }
  Touch(*round);
  record.checkpoint = params.checkpoint;
  record.checkpoint_sequence = params.sequence;
  if (params.sequence == record.num_contributions) record.progress = params.progress;
  return Change(1, "-- save_checkpoint\nUPDATE round_texts SET checkpoint_progress = ? WHERE round_key = ?",
                {SqlBlob(params.progress), round->key});
}

absl::StatusOr<int64_t> SqlTaskStore::ForgetContributionsAfterCheckpoint(const RoundId& id, absl::Time now) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  ASSIGN_OR_RETURN(Round * round, FindRound(id));
  RoundRecord& record = round->record;
  if (record.state != RoundState::kSealing && record.state != RoundState::kCollecting) {
    return RoundIsElsewhere(id, record.state, RoundState::kCollecting);
  }
  int64_t after = record.checkpoint_sequence;
  int64_t num_forgotten = record.num_contributions - after;
  if (num_forgotten == 0) return 0;
  // It collects again; what was cancelled stays so.
  if (record.state == RoundState::kSealing) RETURN_IF_ERROR(WriteCancelled(*round));
  int64_t num_clients = 0;
  int64_t bytes_up = 0;
  RETURN_IF_ERROR(Run("-- sum_forgotten\nSELECT sum(num_clients), sum(size_bytes) FROM contributions "
                      "WHERE round_key = ? AND sequence > ?",
                      {round->key, after},
                      [&](const SqlRow& row) {
                        num_clients = row.Int(0);
                        bytes_up = row.Int(1);
                      })
                      .status());
  RETURN_IF_ERROR(Change(num_forgotten, R"(-- forget_attempts
      UPDATE attempts SET outcome = 5, error = ?
       WHERE (task_key, number) IN (SELECT c.task_key, t.num_attempts FROM contributions c
                                      JOIN tasks t ON t.task_key = c.task_key
                                     WHERE c.round_key = ? AND c.sequence > ?))",
                         {SqlBlob(kForgottenContribution), round->key, after}));
  RETURN_IF_ERROR(Change(num_forgotten, R"(-- forget_tasks
      UPDATE tasks SET state = 1, available_time = ?, delayed_until = NULL, end_time = ?, worker = NULL,
             lease_token = ''
       WHERE state = 3 AND task_key IN (SELECT task_key FROM contributions WHERE round_key = ? AND sequence > ?))",
                         {ToSql(now), ToSql(absl::InfiniteFuture()), round->key, after}));
  RETURN_IF_ERROR(Change(num_forgotten,
                         "-- forget_contributions\nDELETE FROM contributions WHERE round_key = ? AND "
                         "sequence > ?",
                         {round->key, after}));
  std::string progress;
  RETURN_IF_ERROR(Run("-- get_checkpoint_progress\nSELECT checkpoint_progress FROM round_texts WHERE round_key = ?",
                      {round->key}, [&](const SqlRow& row) { progress = row.String(0); })
                      .status());
  Touch(*round);
  round->num_taken.reset();
  round->waiting.reset();
  record.state = RoundState::kCollecting;
  record.progress = std::move(progress);
  record.num_contributions = after;
  record.num_clients -= num_clients;
  record.bytes_up -= bytes_up;
  record.tasks.succeeded -= num_forgotten;
  record.tasks.queued += num_forgotten;
  return num_forgotten;
}

}  // namespace sheaf
