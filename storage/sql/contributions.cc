// Contributions and checkpoints.
#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/second_lease.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sql/state_names.h"
#include "storage/sql/task_columns.h"
#include "storage/transitions.h"

namespace sheaf {

absl::StatusOr<ContributionRecord> SqlTaskStore::RecordContribution(const RecordContributionParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(CheckArguments(params));
  auto found = FindRound(params.task.round);
  if (absl::IsNotFound(found.status()) || params.task.index < 0) return NoSuchTask(params.task);
  RETURN_IF_ERROR(found.status());
  Round& round = **found;
  ASSIGN_OR_RETURN(const TaskRecord state, GetTaskState(params.task));
  if (!TakesContribution(state, round.record.state)) {
    return RoundIsElsewhere(round.record.id, round.record.state, RoundState::kCollecting);
  }
  ASSIGN_OR_RETURN(const TaskRecord seen, FindLease(params.task, params.token));
  const TaskRecord before = *leases_.Find(params.task);
  RETURN_IF_ERROR(CountForWorker(round, seen.worker, &WorkerRecord::num_succeeded, 1));

  // Task, attempt, contribution and round change in one batch, or none does: a crash leaves a task that is leased, and
  // bytes in the spool that no contribution refers to, or it leaves a contribution whose bytes were flushed before it.
  // The worker and the token stay: whoever hands it in again is told that it was taken.
  TaskRecord task = seen;
  EndFirstLease(task);
  if (task.attempt != 0) {
    // It was too slow: whatever it brings from now on finds a task that has succeeded.
    NoteAttempt(round, task,
                {.end_time = params.now, .outcome = AttemptOutcome::kCancelled, .error = kOtherAttemptWon});
    GiveBack(round, task.worker);
    EndFirstLease(task);
  }
  task.worker = seen.worker;
  task.lease_token = seen.lease_token;
  task.state = TaskState::kSucceeded;
  task.end_time = Kept(params.now);
  NoteUnleased(round, before, task, params.now);
  NoteAttempt(round, seen,
              {.end_time = params.now,
               .outcome = AttemptOutcome::kSucceeded,
               .timings = params.timings,
               .bytes_up = params.size_bytes});
  inputs_.Erase(KeyOf(round, params.task.index));
  Touch(round);
  RoundRecord& record = round.record;
  --record.tasks.leased;
  ++record.tasks.succeeded;
  ++record.num_contributions;
  record.num_clients += params.num_clients;
  record.bytes_up += params.size_bytes;
  record.progress = params.progress;
  ContributionRecord contribution{.task = params.task,
                                  .sequence = record.num_contributions,
                                  .worker = seen.worker,
                                  .lease_token = params.token,
                                  .digest = params.digest,
                                  .size_bytes = params.size_bytes,
                                  .num_clients = params.num_clients,
                                  .payload = params.payload,
                                  .accept_time = params.now,
                                  .staleness = seen.staleness};
  notes_.Add(BatchNotes::Contribution{
      .round_key = round.key, .task_key = KeyOf(round, params.task.index), .record = contribution});
  return contribution;
}

absl::StatusOr<std::vector<ContributionRecord>> SqlTaskStore::ListContributions(const RoundId& id, int64_t after,
                                                                                int limit) {
  ASSIGN_OR_RETURN(Round * round, FindRound(id));
  RETURN_IF_ERROR(WriteNotes());
  std::vector<ContributionRecord> contributions;
  RETURN_IF_ERROR(Run(R"(-- list_contributions
      SELECT a.task_key, a.sequence, a.worker, a.lease_token, a.digest, a.size_bytes, a.num_clients, a.spool_segment,
             a.spool_offset, a.spool_length, a.spool_crc, a.accept_time, c.staleness
        FROM contributions a LEFT JOIN carried_tasks c ON c.task_key = a.task_key
       WHERE a.round_key = ? AND a.sequence > ? ORDER BY a.sequence LIMIT ?)",
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
                                                 .accept_time = row.Time(11),
                                                 .staleness = static_cast<int32_t>(row.Int(12))});
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
  // The file is durable by now, and the payloads it covers are still there: they are deleted only after the commit. A
  // crash before the commit leaves a file that no round names; one after it, payloads that nobody reads any more.
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
  if (IsFinal(record.state)) return RoundIsElsewhere(id, record.state, RoundState::kCollecting);
  int64_t after = record.checkpoint_sequence;
  int64_t num_forgotten = record.num_contributions - after;
  if (num_forgotten == 0) return 0;
  RETURN_IF_ERROR(WriteNotes());
  // From the last contribution back to the checkpoint all is undone that RecordContribution did, in the batch that also
  // puts back the counts: a crash in between undoes nothing, and the next start finds the same to do.
  // It collects again; what was cancelled stays so.
  if (record.state == RoundState::kSealing) RETURN_IF_ERROR(WriteCancelled(*round));
  int64_t num_clients = 0;
  int64_t bytes_up = 0;
  RETURN_IF_ERROR(Run("-- sum_forgotten\nSELECT CAST(sum(num_clients) AS BIGINT), CAST(sum(size_bytes) AS BIGINT) FROM "
                      "contributions "
                      "WHERE round_key = ? AND sequence > ?",
                      {round->key, after},
                      [&](const SqlRow& row) {
                        num_clients = row.Int(0);
                        bytes_up = row.Int(1);
                      })
                      .status());
  RETURN_IF_ERROR(Change(num_forgotten, R"(-- forget_attempts
      UPDATE attempts SET outcome = $ATTEMPT_CANCELLED, error = ?
       WHERE outcome = $ATTEMPT_SUCCEEDED AND task_key IN
               (SELECT task_key FROM contributions WHERE round_key = ? AND sequence > ?))"_sql,
                         {SqlBlob(kForgottenContribution), round->key, after}));
  // Nobody is given again what was carried over.
  ASSIGN_OR_RETURN(const int64_t num_carried, Run(R"(-- forget_carried
      UPDATE tasks SET state = $TASK_CANCELLED, end_time = ?, worker = NULL, lease_token = ''
       WHERE state = $TASK_SUCCEEDED AND requirement < 0 AND task_key IN
               (SELECT task_key FROM contributions WHERE round_key = ? AND sequence > ?))"_sql,
                                                  {ToSql(now), round->key, after}));
  RETURN_IF_ERROR(Change(num_forgotten - num_carried, R"(-- forget_tasks
      UPDATE tasks SET state = $QUEUED, available_time = ?, delayed_until = NULL, end_time = ?, worker = NULL,
             lease_token = ''
       WHERE state = $TASK_SUCCEEDED AND task_key IN
               (SELECT task_key FROM contributions WHERE round_key = ? AND sequence > ?))"_sql,
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
  if (record.state == RoundState::kSealing) record.state = RoundState::kCollecting;
  record.progress = std::move(progress);
  record.num_contributions = after;
  record.num_clients -= num_clients;
  record.bytes_up -= bytes_up;
  record.tasks.succeeded -= num_forgotten;
  record.tasks.queued += num_forgotten - num_carried;
  record.tasks.cancelled += num_carried;
  return num_forgotten;
}

}  // namespace sheaf
