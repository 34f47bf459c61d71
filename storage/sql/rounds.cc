// Creating, moving and listing rounds.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/sql/round_columns.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sql/state_names.h"
#include "storage/sql/task_columns.h"
#include "storage/transitions.h"

namespace sheaf {

absl::StatusOr<TaskStore::CreateRoundResult> SqlTaskStore::CreateRound(const CreateRoundParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(CheckArguments(params));
  const RoundId& id = params.round.id;
  std::string earlier;
  bool is_there = false;
  RETURN_IF_ERROR(Run("-- find_request\nSELECT id, request_id FROM rounds WHERE request_id = ? OR id = ?",
                      {SqlText(params.round.request_id), SqlText(id.value())},
                      [&](const SqlRow& row) {
                        if (row.Bytes(1) == params.round.request_id) earlier = row.String(0);
                        is_there |= row.Bytes(0) == id.value();
                      })
                      .status());
  if (!earlier.empty()) {
    staged_.erase(id);
    ASSIGN_OR_RETURN(Round * round, FindRound(RoundId(earlier)));
    return CreateRoundResult{.round = round->record, .created = false};
  }
  if (!params.may_create) {
    staged_.erase(id);
    return NoSuchRequest(params.round.request_id);
  }
  if (is_there) return RoundIsThere(id);

  Round round;
  if (const auto staged = staged_.find(id); staged != staged_.end() || params.num_staged > 0) {
    if (staged == staged_.end() || staged->second.num_tasks != params.num_staged ||
        staged->second.round.record.create_time != params.round.create_time) {
      return NotStaged(id, params.num_staged);
    }
    round = std::move(staged->second.round);
    staged_.erase(staged);
    RETURN_IF_ERROR(Change(1, "-- keep_staged\nDELETE FROM deleted_rounds WHERE round_key = ?", {round.key}));
  } else {
    ASSIGN_OR_RETURN(round.key, NextKey());
    std::set<std::string> requirements;
    for (const NewTask& task : params.tasks) requirements.insert(task.requirement);
    round.requirements.assign(requirements.begin(), requirements.end());
    round.waiting.emplace(round.requirements.size(), params.round.create_time);
  }
  round.record = FreshRound(params);
  round.stored_version = 1;
  const RoundRecord& r = round.record;
  RETURN_IF_ERROR(
      Change(1, R"(-- create_round
      INSERT INTO rounds (round_key, id, population, job, request_id, create_time, deadline_time, broadcast_digest, state, version,
                          end_time, num_queued, num_leased, num_succeeded, num_failed, num_cancelled, num_buried,
                          num_failed_attempts, num_lost_attempts, num_contributions, num_clients, bytes_up, checkpoint,
                          checkpoint_sequence, progress, error)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '', 0, ?, ?))",
             {round.key, SqlText(id.value()), SqlText(r.population), SqlText(r.job), SqlText(r.request_id),
              ToSql(r.create_time), ToSql(r.deadline_time), SqlText(r.broadcast_digest), static_cast<int64_t>(r.state),
              r.version, ToSql(r.end_time), r.tasks.queued, SqlBlob(r.progress), SqlBlob("")}));
  RETURN_IF_ERROR(
      Change(1,
             "-- create_round_texts\nINSERT INTO round_texts (round_key, spec, aggregate, checkpoint_progress, "
             "task_digests) VALUES (?, ?, ?, ?, ?)",
             {round.key, SqlBlob(r.spec), SqlBlob(""), SqlBlob(r.progress), SqlBlob(r.task_digests)}));
  RETURN_IF_ERROR(InsertTasks(round, params.num_staged, params.tasks));
  touched_rounds_.push_back(id);
  return CreateRoundResult{.round = (rounds_[id] = std::move(round)).record, .created = true};
}

absl::StatusOr<int64_t> SqlTaskStore::NextKey() {
  if (next_key_ == 0) {
    next_key_ = 1;
    RETURN_IF_ERROR(Run("-- next_key\nSELECT max(round_key) FROM rounds UNION ALL SELECT max(round_key) FROM "
                        "deleted_rounds",
                        {}, [&](const SqlRow& row) { next_key_ = std::max(next_key_, row.Int(0) + 1); })
                        .status());
  }
  return next_key_++;
}

absl::Status SqlTaskStore::StageTasks(const StageTasksParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  const auto found = staged_.find(params.round);
  if ((found == staged_.end() ? 0 : found->second.num_tasks) != params.num_staged) {
    return NotStaged(params.round, params.num_staged);
  }
  if (FindRound(params.round).ok()) return RoundIsThere(params.round);
  touched_staged_.push_back(params.round);
  if (found == staged_.end()) {
    Staged& begun = staged_[params.round];
    begun.round.record.create_time = params.create_time;
    begun.round.requirements.assign(params.requirements.begin(), params.requirements.end());
    begun.round.waiting.emplace(params.requirements.size(), params.create_time);
    ASSIGN_OR_RETURN(begun.round.key, NextKey());
    RETURN_IF_ERROR(Change(1, "-- stage_round\nINSERT INTO deleted_rounds (round_key) VALUES (?)", {begun.round.key}));
  }
  Staged& staged = staged_[params.round];
  RETURN_IF_ERROR(InsertTasks(staged.round, staged.num_tasks, params.tasks));
  staged.num_tasks += static_cast<int64_t>(params.tasks.size());
  return absl::OkStatus();
}

absl::Status SqlTaskStore::InsertTasks(Round& round, int64_t first, std::span<const NewTask> tasks) {
  std::vector<int64_t> numbers;
  std::vector<SqlEngine::NewRequirement> requirements;
  int64_t key = KeyOf(round, static_cast<int32_t>(first));
  for (const NewTask& task : tasks) {
    const size_t number = NumberOf(round, task.requirement);
    if (round.waiting->Count(number) == 0) {
      requirements.push_back({.number = static_cast<int64_t>(number), .text = task.requirement});
    }
    round.waiting->AddNew(number, static_cast<int32_t>(key++ & INT32_MAX));
    round.has_inputs |= !task.payload.empty() || !task.data_selector.empty();
    numbers.push_back(static_cast<int64_t>(number));
  }
  RETURN_IF_ERROR(batch_status_);
  return Broken(engine_->InsertTasks({.round_key = round.key,
                                      .create_time = round.record.create_time,
                                      .requirements = requirements,
                                      .first_key = KeyOf(round, static_cast<int32_t>(first)),
                                      .tasks = tasks,
                                      .requirement_numbers = numbers}));
}

absl::StatusOr<RoundRecord> SqlTaskStore::GetRound(const RoundId& id) {
  ASSIGN_OR_RETURN(Round * round, FindRound(id));
  return round->record;
}

absl::StatusOr<TaskCounts> SqlTaskStore::CountTasks(const RoundId& id) {
  ASSIGN_OR_RETURN(Round * round, FindRound(id));
  return round->record.tasks;
}

std::optional<absl::Time> SqlTaskStore::FirstAvailable(const RoundId& id) const {
  const auto found = rounds_.find(id);
  if (found == rounds_.end() || !found->second.waiting) return std::nullopt;
  return found->second.waiting->First();
}

absl::StatusOr<std::vector<RoundRecord>> SqlTaskStore::ListRounds(const ListRoundsParams& params) {
  RETURN_IF_ERROR(FlushRounds());
  int64_t before_time = ToSql(absl::InfiniteFuture());
  // Greater than every id, as no id has a byte 0xff.
  std::string before_id = "\xff";
  if (!params.after.empty()) {
    ASSIGN_OR_RETURN(Round * after, FindRound(params.after));
    before_time = ToSql(after->record.create_time);
    before_id = params.after.value();
  }
  // One bit per state, so that one text serves every choice.
  int64_t states = params.states.empty() ? ~int64_t{0} : 0;
  bool are_live = !params.states.empty();
  for (RoundState state : params.states) {
    states |= int64_t{1} << static_cast<int>(state);
    are_live = are_live && !IsFinal(state);
  }
  static const auto text = [](std::string_view name, std::string_view condition) {
    return fmt::format(R"({}
      SELECT {} FROM rounds r JOIN round_texts x ON x.round_key = r.round_key
       WHERE {}(r.create_time, r.id) < (?, ?) AND ((? >> r.state) & 1) = 1
         AND (? = '' OR r.population = ?) AND (? = '' OR r.job = ?)
       ORDER BY r.create_time DESC, r.id DESC LIMIT ?)",
                       name, kRoundColumns, condition);
  };
  static const std::string live = text("-- list_live_rounds", "r.$IS_LIVE AND "_sql);
  static const std::string all = text("-- list_rounds", "");
  std::vector<RoundRecord> rounds;
  RETURN_IF_ERROR(Run(are_live ? live : all,
                      {before_time, SqlText(before_id), states, SqlText(params.population), SqlText(params.population),
                       SqlText(params.job), SqlText(params.job), int64_t{std::max(params.limit, 0)}},
                      [&](const SqlRow& row) { rounds.push_back(ReadRound(row)); })
                      .status());
  return rounds;
}

absl::StatusOr<RoundRecord> SqlTaskStore::MoveRound(const MoveRoundParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(CheckArguments(params));
  ASSIGN_OR_RETURN(Round * round, FindRound(params.round));
  if (round->record.state != params.from) return RoundIsElsewhere(params.round, round->record.state, params.from);
  Touch(*round);
  RoundRecord& record = round->record;
  if (IsOpening(params)) {
    record.broadcast_digest = params.broadcast_digest;
    record.deadline_time = Kept(params.deadline_time);
    RETURN_IF_ERROR(
        Change(1, "-- open_round\nUPDATE rounds SET broadcast_digest = ?, deadline_time = ? WHERE round_key = ?",
               {SqlText(record.broadcast_digest), ToSql(record.deadline_time), round->key}));
  }
  if (params.to == RoundState::kCollecting) {
    // What was cancelled stays so.
    if (HasStopped(record.state)) RETURN_IF_ERROR(WriteCancelled(*round));
  } else if (!HasStopped(record.state)) {
    RETURN_IF_ERROR(CancelTasks(*round, params.now));
  }
  record.state = params.to;
  if (IsFinal(params.to)) record.end_time = params.now;
  if (params.to == RoundState::kFailed || params.to == RoundState::kCancelled) record.error = params.error;
  if (params.to == RoundState::kSucceeded) {
    record.aggregate = params.aggregate;
    RETURN_IF_ERROR(
        Change(1, "-- put_aggregate\nUPDATE round_texts SET aggregate = ?, aggregate_digest = ? WHERE round_key = ?",
               {SqlBlob(params.aggregate), SqlText(params.aggregate_digest), round->key}));
  }
  return record;
}

absl::Status SqlTaskStore::CancelTasks(Round& round, absl::Time now) {
  // Rows that say QUEUED or LEASED from here on count as CANCELLED: what this batch did before must be among them.
  RETURN_IF_ERROR(WriteNotes());
  TaskCounts& counts = round.record.tasks;
  leases_.EraseRound(round.record.id);
  // That the round has stopped says it of each task. But nothing becomes available any more.
  if (!round.waiting || round.waiting->NumDelayed(round.record.create_time) > 0) {
    RETURN_IF_ERROR(Run("-- cancel_delays\nUPDATE tasks SET delayed_until = NULL WHERE task_key BETWEEN ? AND ? AND "
                        "delayed_until IS NOT NULL",
                        {KeyOf(round, 0), KeyOf(round, INT32_MAX)})
                        .status());
  }
  round.waiting.reset();
  round.cancel_time = now;
  counts.cancelled += counts.queued + counts.leased;
  counts.queued = counts.leased = 0;
  return absl::OkStatus();
}

absl::Status SqlTaskStore::WriteCancelled(const Round& round) {
  RETURN_IF_ERROR(WriteNotes());
  RETURN_IF_ERROR(Run(R"(-- cancel_attempts
      INSERT INTO attempts (task_key, number, worker, lease_time, end_time, outcome, error, timings, bytes_up)
      SELECT t.task_key, coalesce(s.first_attempt, t.num_attempts), t.worker, t.lease_time, ?, $ATTEMPT_CANCELLED, ?, ?, 0
        FROM tasks t LEFT JOIN second_leases s ON s.task_key = t.task_key
       WHERE t.task_key BETWEEN ? AND ? AND t.state = $LEASED)"_sql,
                      {ToSql(round.cancel_time), SqlBlob(""), SqlBlob(""), KeyOf(round, 0), KeyOf(round, INT32_MAX)})
                      .status());
  RETURN_IF_ERROR(Run(R"(-- cancel_second_attempts
      INSERT INTO attempts (task_key, number, worker, lease_time, end_time, outcome, error, timings, bytes_up)
      SELECT task_key, attempt, worker, lease_time, ?, $ATTEMPT_CANCELLED, ?, ?, 0 FROM second_leases
       WHERE task_key BETWEEN ? AND ? AND attempt > 0)"_sql,
                      {ToSql(round.cancel_time), SqlBlob(""), SqlBlob(""), KeyOf(round, 0), KeyOf(round, INT32_MAX)})
                      .status());
  RETURN_IF_ERROR(Run("-- end_second_leases\nDELETE FROM second_leases WHERE task_key BETWEEN ? AND ?",
                      {KeyOf(round, 0), KeyOf(round, INT32_MAX)})
                      .status());
  return Run(R"(-- cancel_tasks
      UPDATE tasks SET state = $TASK_CANCELLED, delayed_until = NULL, end_time = ?, worker = NULL, lease_token = '', poll_id = '',
             lease_time = 0, expire_time = NULL, attempt_deadline_time = 0, progress = 0
       WHERE task_key BETWEEN ? AND ? AND $IS_OPEN)"_sql,
             {ToSql(round.cancel_time), KeyOf(round, 0), KeyOf(round, INT32_MAX)})
      .status();
}

absl::StatusOr<TaskStore::BlobUse> SqlTaskStore::GetBlobUse(const std::string& digest) {
  if (digest.empty()) return BlobUse::kNone;
  RETURN_IF_ERROR(FlushRounds());
  BlobUse use = BlobUse::kNone;
  RETURN_IF_ERROR(Run(R"(-- find_broadcast
      SELECT $IS_LIVE FROM rounds WHERE broadcast_digest = ? AND broadcast_digest <> '' ORDER BY state LIMIT 1)"_sql,
                      {SqlText(digest)},
                      [&](const SqlRow& row) { use = row.Int(0) != 0 ? BlobUse::kCurrent : BlobUse::kFormer; })
                      .status());
  RETURN_IF_ERROR(Run("-- find_aggregate\nSELECT 1 FROM round_texts WHERE aggregate_digest = ? AND "
                      "aggregate_digest <> '' LIMIT 1",
                      {SqlText(digest)}, [&](const SqlRow&) { use = BlobUse::kCurrent; })
                      .status());
  return use;
}

absl::StatusOr<std::vector<std::string>> SqlTaskStore::ListFormerBroadcasts() {
  RETURN_IF_ERROR(FlushRounds());
  std::vector<std::string> digests;
  // With its OFFSET the condition is no join, for which a plan without statistics may compare all with all.
  RETURN_IF_ERROR(Run(R"(-- list_former_broadcasts
      SELECT r.broadcast_digest FROM rounds r
       WHERE r.broadcast_digest <> ''
         AND NOT EXISTS (SELECT 1 FROM round_texts x
                          WHERE x.aggregate_digest = r.broadcast_digest AND x.aggregate_digest <> ''
                          LIMIT 1 OFFSET 0)
       GROUP BY r.broadcast_digest HAVING sum(CASE WHEN r.$IS_LIVE THEN 1 ELSE 0 END) = 0
       ORDER BY r.broadcast_digest)"_sql,
                      {}, [&](const SqlRow& row) { digests.push_back(row.String(0)); })
                      .status());
  return digests;
}

absl::StatusOr<std::vector<std::string>> SqlTaskStore::ListRequirements(const RoundId& id) {
  ASSIGN_OR_RETURN(Round * round, FindRound(id));
  if (!IsFinal(round->record.state)) return round->requirements;
  return ReadRequirements(round->key);
}

absl::StatusOr<std::vector<int64_t>> SqlTaskStore::CountQueued(const RoundId& id) {
  ASSIGN_OR_RETURN(Round * round, FindRound(id));
  if (HandsOutTasks(round->record.state)) {
    ASSIGN_OR_RETURN(const WaitingTasks* waiting, LoadWaiting(*round));
    return waiting->CountAll();
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> requirements, ListRequirements(id));
  return std::vector<int64_t>(requirements.size(), 0);
}

}  // namespace sheaf
