// Batches, and the memory of live rounds.
#include "storage/sql/sql_task_store.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/sql/migrator.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

// Past these, what is not in use is read again when it is asked for.
constexpr size_t kCachedRoundsMax = 10'000;
constexpr size_t kCachedWorkersMax = 100'000;

}  // namespace

absl::StatusOr<std::unique_ptr<SqlTaskStore>> SqlTaskStore::Open(std::unique_ptr<SqlConnection> connection) {
  RETURN_IF_ERROR(Migrate(*connection, SqliteMigrations()));
  std::unique_ptr<SqlTaskStore> store(new SqlTaskStore(std::move(connection)));
  RETURN_IF_ERROR(store->LoadLeases());
  return store;
}

TaskStore::Info SqlTaskStore::GetInfo() const {
  return {.engine = "sqlite", .schema_version = SqliteMigrations().back().version};
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
  if (workers_.size() > kCachedWorkersMax) workers_.clear();
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
  ASSIGN_OR_RETURN(int64_t num_changed, Run(sql, values));
  if (num_changed == num_rows) return absl::OkStatus();
  return Broken(
      absl::DataLossError(fmt::format("{} changed {} rows of {} instead of {}: the store contradicts itself",
                                      sql.substr(0, sql.find('\n')), num_changed, connection_->name(), num_rows)));
}

// --- Live rounds ---------------------------------------------------------------------------------

absl::StatusOr<SqlTaskStore::Round*> SqlTaskStore::FindRound(const RoundId& id) {
  if (auto cached = rounds_.find(id); cached != rounds_.end()) return &cached->second;
  Round round;
  bool is_found = false;
  RETURN_IF_ERROR(Run(R"(-- get_round
      SELECT r.round_key, r.id, r.population, r.job, r.request_id, r.create_time, r.deadline_time, r.broadcast_digest,
             r.state, r.version, r.end_time, r.num_queued, r.num_leased, r.num_succeeded, r.num_failed,
             r.num_cancelled, r.num_buried, r.num_failed_attempts, r.num_lost_attempts, r.num_contributions,
             r.num_clients, r.bytes_up, r.checkpoint, r.checkpoint_sequence, r.progress, r.error, x.spec, x.aggregate,
             r.cancel_time, x.task_digests
        FROM rounds r JOIN round_texts x ON x.round_key = r.round_key WHERE r.id = ?)",
                      {SqlText(id.value())},
                      [&](const SqlRow& row) {
                        is_found = true;
                        round.key = row.Int(0);
                        round.stored_version = row.Int(9);
                        round.cancel_time = row.Time(28);
                        round.record = {.id = RoundId(row.Bytes(1)),
                                        .population = row.String(2),
                                        .job = row.String(3),
                                        .request_id = row.String(4),
                                        .spec = row.String(26),
                                        .state = static_cast<RoundState>(row.Int(8)),
                                        .version = row.Int(9),
                                        .create_time = row.Time(5),
                                        .deadline_time = row.Time(6),
                                        .end_time = row.Time(10),
                                        .broadcast_digest = row.String(7),
                                        .tasks = {.queued = row.Int(11),
                                                  .leased = row.Int(12),
                                                  .succeeded = row.Int(13),
                                                  .failed = row.Int(14),
                                                  .cancelled = row.Int(15),
                                                  .buried = row.Int(16)},
                                        .num_failed_attempts = row.Int(17),
                                        .num_lost_attempts = row.Int(18),
                                        .num_contributions = row.Int(19),
                                        .num_clients = row.Int(20),
                                        .bytes_up = row.Int(21),
                                        .checkpoint = row.String(22),
                                        .checkpoint_sequence = row.Int(23),
                                        .progress = row.String(24),
                                        .aggregate = row.String(27),
                                        .error = row.String(25),
                                        .task_digests = row.String(29)};
                      })
                      .status());
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
                      "ORDER BY number",
                      {round_key}, [&](const SqlRow& row) { requirements.push_back(row.String(0)); })
                      .status());
  return requirements;
}

absl::StatusOr<SqlTaskStore::Round*> SqlTaskStore::FindCollectingRound(const RoundId& id) {
  ASSIGN_OR_RETURN(Round * round, FindRound(id));
  if (round->record.state == RoundState::kCollecting) return round;
  return RoundIsElsewhere(id, round->record.state, RoundState::kCollecting);
}

void SqlTaskStore::Touch(Round& round) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  if (round.record.version == round.stored_version) touched_rounds_.push_back(round.record.id);
  ++round.record.version;
}

absl::Status SqlTaskStore::FlushRounds() {
  for (const RoundId& id : touched_rounds_) {
    Round& round = rounds_.at(id);
    if (round.record.version != round.stored_version) RETURN_IF_ERROR(PutRound(round));
  }
  return absl::OkStatus();
}

absl::Status SqlTaskStore::PutRound(Round& round) {
  const RoundRecord& r = round.record;
  RETURN_IF_ERROR(Change(1, R"(-- put_round
      UPDATE rounds SET state = ?, version = ?, end_time = ?, num_queued = ?, num_leased = ?, num_succeeded = ?,
             num_failed = ?, num_cancelled = ?, num_buried = ?, num_failed_attempts = ?, num_lost_attempts = ?,
             num_contributions = ?, num_clients = ?, bytes_up = ?, checkpoint = ?, checkpoint_sequence = ?,
             progress = ?, error = ?, cancel_time = ?
       WHERE round_key = ? AND version = ?)",
                         {static_cast<int64_t>(r.state),
                          r.version,
                          ToSql(r.end_time),
                          r.tasks.queued,
                          r.tasks.leased,
                          r.tasks.succeeded,
                          r.tasks.failed,
                          r.tasks.cancelled,
                          r.tasks.buried,
                          r.num_failed_attempts,
                          r.num_lost_attempts,
                          r.num_contributions,
                          r.num_clients,
                          r.bytes_up,
                          SqlText(r.checkpoint),
                          r.checkpoint_sequence,
                          SqlBlob(r.progress),
                          SqlBlob(r.error),
                          ToSql(round.cancel_time),
                          round.key,
                          round.stored_version}));
  round.stored_version = r.version;
  return absl::OkStatus();
}

}  // namespace sheaf
