// Batches, and the memory of live rounds.
#include "storage/sql/sql_task_store.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/sql/round_columns.h"
#include "storage/sql/task_columns.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

// Past these, what is not in use is read again when somebody asks for it.
constexpr size_t kCachedRoundsMax = 10'000;

}  // namespace

absl::StatusOr<std::unique_ptr<SqlTaskStore>> SqlTaskStore::Open(std::unique_ptr<SqlEngine> engine) {
  RETURN_IF_ERROR(engine->Migrate());
  std::unique_ptr<SqlTaskStore> store(new SqlTaskStore(std::move(engine)));
  RETURN_IF_ERROR(store->LoadLeases());
  if (store->engine_->is_far()) RETURN_IF_ERROR(store->LoadWorkers());
  return store;
}

TaskStore::Info SqlTaskStore::GetInfo() const { return engine_->GetInfo(); }

absl::StatusOr<std::vector<ServerRecord>> SqlTaskStore::ListServers(const ListServersParams& params) {
  return engine_->ListServers(params);
}

absl::StatusOr<ServerRecord> SqlTaskStore::SetServerDraining(const SetServerDrainingParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  return engine_->SetServerDraining(params);
}

// --- Batches -------------------------------------------------------------------------------------

absl::Status SqlTaskStore::BeginBatch() {
  SHEAF_CHECK(!is_in_batch_, "a batch is open already");
  RETURN_IF_ERROR(connection_->Begin());
  is_in_batch_ = true;
  batch_status_ = absl::OkStatus();
  return absl::OkStatus();
}

absl::Status SqlTaskStore::CommitBatch() {
  SHEAF_CHECK(is_in_batch_, "no batch is open");
  // Until here only memory has most of the batch. All of it goes into the one transaction that the batch began: a crash
  // before its flush leaves the state after the batch before, one behind it this batch whole. Memory and database are
  // equal again once the commit has succeeded, and never after it failed: then what the batch touched is forgotten, and
  // read again when somebody asks.
  // What fails here breaks the batch.
  WriteNotes().IgnoreError();
  FlushRounds().IgnoreError();
  FlushWorkers().IgnoreError();
  if (!batch_status_.ok()) {
    absl::Status status = batch_status_;
    RollbackBatch();
    return status;
  }
  absl::Status status = connection_->Commit();
  if (!status.ok()) {
    ForgetBatch();
    return status;
  }
  is_in_batch_ = false;
  SHEAF_CHECK(notes_.empty(), "a batch was committed without some of what it changed");
  for (const RoundId& id : touched_rounds_) {
    auto round = rounds_.find(id);
    if (round != rounds_.end() && IsFinal(round->second.record.state)) rounds_.erase(round);
  }
  touched_rounds_.clear();
  touched_workers_.clear();
  touched_staged_.clear();
  leases_.Commit();
  if (rounds_.size() > kCachedRoundsMax) rounds_.clear();
  if (workers_.size() > kCachedWorkersMax) {
    workers_.clear();
    known_workers_ = Known::kSome;
  }
  return absl::OkStatus();
}

void SqlTaskStore::RollbackBatch() {
  SHEAF_CHECK(is_in_batch_, "no batch is open");
  connection_->Rollback();
  ForgetBatch();
}

void SqlTaskStore::ForgetBatch() {
  is_in_batch_ = false;
  notes_.Clear();
  for (const RoundId& id : touched_rounds_) rounds_.erase(id);
  for (const RoundId& id : touched_staged_) staged_.erase(id);
  touched_staged_.clear();
  for (const WorkerKey& key : touched_workers_) workers_.erase(key);
  if (!touched_workers_.empty() && known_workers_ == Known::kAll) known_workers_ = Known::kAllButForgotten;
  touched_rounds_.clear();
  touched_workers_.clear();
  leases_.Rollback();
}

absl::Status SqlTaskStore::Broken(absl::Status status) {
  if (is_in_batch_ && batch_status_.ok()) batch_status_ = status;
  return status;
}

absl::StatusOr<int64_t> SqlTaskStore::Run(std::string_view sql, std::initializer_list<SqlValue> values,
                                          SqlConnection::RowCallback on_row) {
  if (is_in_batch_) RETURN_IF_ERROR(batch_status_);
  auto result = connection_->Execute(sql, values, on_row);
  if (!result.ok()) return Broken(result.status());
  return result;
}

absl::StatusOr<int64_t> SqlTaskStore::Run(std::string_view sql, std::initializer_list<SqlValue> values) {
  return Run(sql, values, [](const SqlRow&) {});
}

absl::Status SqlTaskStore::Change(int64_t num_rows, std::string_view sql, std::initializer_list<SqlValue> values) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(batch_status_);
  return Broken(connection_->Change(num_rows, sql, values));
}

// --- Live rounds ---------------------------------------------------------------------------------

RoundRecord ReadRound(const SqlRow& row) {
  return {.id = RoundId(row.Bytes(0)),
          .population = row.String(1),
          .job = row.String(2),
          .request_id = row.String(3),
          .spec = row.String(25),
          .state = static_cast<RoundState>(row.Int(7)),
          .version = row.Int(8),
          .create_time = row.Time(4),
          .deadline_time = row.Time(5),
          .end_time = row.Time(9),
          .broadcast_digest = row.String(6),
          .tasks = {.queued = row.Int(10),
                    .leased = row.Int(11),
                    .succeeded = row.Int(12),
                    .failed = row.Int(13),
                    .cancelled = row.Int(14),
                    .buried = row.Int(15)},
          .num_failed_attempts = row.Int(16),
          .num_lost_attempts = row.Int(17),
          .num_contributions = row.Int(18),
          .num_clients = row.Int(19),
          .bytes_up = row.Int(20),
          .checkpoint = row.String(21),
          .checkpoint_sequence = row.Int(22),
          .progress = row.String(23),
          .aggregate = row.String(26),
          .error = row.String(24),
          .task_digests = row.String(27)};
}

absl::StatusOr<SqlTaskStore::Round*> SqlTaskStore::FindRound(const RoundId& id) {
  static const std::string sql = fmt::format(
      "-- get_round\nSELECT {}, r.round_key, r.cancel_time FROM rounds r JOIN round_texts x ON x.round_key = "
      "r.round_key "
      "WHERE r.id = ?",
      kRoundColumns);
  if (auto cached = rounds_.find(id); cached != rounds_.end()) return &cached->second;
  Round round;
  bool is_found = false;
  RETURN_IF_ERROR(Run(sql, {SqlText(id.value())}, [&](const SqlRow& row) {
                    is_found = true;
                    round.record = ReadRound(row);
                    round.key = row.Int(kNumRoundColumns);
                    round.cancel_time = row.Time(kNumRoundColumns + 1);
                    round.stored_version = round.record.version;
                  }).status());
  if (!is_found) return NoSuchRound(id);
  // There may be as many as tasks, and of a round that has ended nobody needs them to hand out work.
  if (!IsFinal(round.record.state)) {
    ASSIGN_OR_RETURN(round.requirements, ReadRequirements(round.key));
  }
  if (IsFinal(round.record.state)) {
    if (!is_in_batch_) return &(ended_round_ = std::move(round));
    touched_rounds_.push_back(id);
  }
  return &(rounds_[id] = std::move(round));
}

absl::StatusOr<std::vector<std::string>> SqlTaskStore::ReadRequirements(int64_t round_key) {
  std::vector<std::string> requirements;
  RETURN_IF_ERROR(Run("-- list_requirements\nSELECT requirement FROM round_requirements WHERE round_key = ? "
                      "AND number >= 0 ORDER BY number",
                      {round_key}, [&](const SqlRow& row) { requirements.push_back(row.String(0)); })
                      .status());
  return requirements;
}

absl::StatusOr<SqlTaskStore::Round*> SqlTaskStore::FindOpenRound(const RoundId& id) {
  ASSIGN_OR_RETURN(Round * round, FindRound(id));
  if (HandsOutTasks(round->record.state)) return round;
  return RoundHasStopped(id, round->record.state);
}

void SqlTaskStore::Touch(Round& round) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  if (round.record.version == round.stored_version) touched_rounds_.push_back(round.record.id);
  ++round.record.version;
}

absl::Status SqlTaskStore::FlushRounds() {
  std::vector<SqlEngine::RoundRow> rows;
  for (const RoundId& id : touched_rounds_) {
    Round& round = rounds_.at(id);
    // It may have been touched twice.
    if (round.record.version == round.stored_version) continue;
    rows.push_back({.key = round.key,
                    .record = &round.record,
                    .cancel_time = round.cancel_time,
                    .stored_version = std::exchange(round.stored_version, round.record.version),
                    .place = &round.place});
  }
  if (rows.empty()) return absl::OkStatus();
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(batch_status_);
  return Broken(engine_->PutRounds(rows));
}

}  // namespace sheaf
