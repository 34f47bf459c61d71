// SqlTaskStore: the TaskStore on a database, which its SqlEngine knows.
//
//   ASSIGN_OR_RETURN(auto connection, SqliteConnection::Open(path));
//   ASSIGN_OR_RETURN(auto store, SqlTaskStore::Open(std::make_unique<SqliteEngine>(std::move(connection))));
//
// In memory are the records of live rounds and of the workers seen lately, the leases, and the queues of the rounds
// that somebody asked for work. Operations look there and note what they change (batch_notes.h); each row is written
// once per batch, at its commit or before a look at the database. What happens once to a round or a token is written by
// its operation. This rests on one process holding the database, which the connection ensures. A statement that fails
// breaks its batch: nothing of it can be committed any more. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/key_hash.h"
#include "storage/sql/batch_notes.h"
#include "storage/sql/inputs_ahead.h"
#include "storage/sql/lease_table.h"
#include "storage/sql/sql_connection.h"
#include "storage/sql/sql_engine.h"
#include "storage/sql/waiting_tasks.h"
#include "storage/task_store.h"

namespace sheaf {

class SqlTaskStore final : public TaskStore {
 public:
  // Migrates first; returns its codes.
  static absl::StatusOr<std::unique_ptr<SqlTaskStore>> Open(std::unique_ptr<SqlEngine> engine);

  absl::Status BeginBatch() override;
  absl::Status CommitBatch() override;
  void RollbackBatch() override;

  absl::Status StageTasks(const StageTasksParams& params) override;
  absl::StatusOr<CreateRoundResult> CreateRound(const CreateRoundParams& params) override;
  absl::StatusOr<RoundRecord> GetRound(const RoundId& id) override;
  absl::StatusOr<TaskCounts> CountTasks(const RoundId& id) override;
  // Known once somebody has asked for work of the round.
  std::optional<absl::Time> FirstAvailable(const RoundId& id) const override;
  absl::StatusOr<std::vector<RoundRecord>> ListRounds(const ListRoundsParams& params) override;
  absl::StatusOr<RoundRecord> MoveRound(const MoveRoundParams& params) override;
  absl::StatusOr<std::vector<TaskRecord>> CarryOver(const CarryOverParams& params) override;
  absl::StatusOr<BlobUse> GetBlobUse(const std::string& digest) override;
  absl::StatusOr<std::vector<std::string>> ListFormerBroadcasts() override;

  absl::StatusOr<std::vector<TaskRecord>> LeaseTasks(const LeaseTasksParams& params) override;
  absl::StatusOr<std::vector<TaskRecord>> LeaseAgain(const LeaseAgainParams& params) override;
  absl::StatusOr<absl::Time> FirstLeaseTime(const RoundId& round, absl::Time after) override;
  absl::StatusOr<std::vector<TaskRecord>> ListLeases(const std::string& population, const WorkerName& worker) override;
  absl::StatusOr<TaskRecord> RenewLease(const RenewLeaseParams& params) override;
  absl::StatusOr<std::vector<TaskRecord>> ListExpired(absl::Time now, int limit) override;
  absl::StatusOr<TaskRecord> EndAttempt(const EndAttemptParams& params) override;
  absl::StatusOr<TaskRecord> RequeueTask(const RequeueTaskParams& params) override;
  absl::StatusOr<bool> LimitTimes(const LimitTimesParams& params) override;

  absl::StatusOr<ContributionRecord> RecordContribution(const RecordContributionParams& params) override;
  absl::StatusOr<std::vector<ContributionRecord>> ListContributions(const RoundId& round, int64_t after,
                                                                    int limit) override;
  absl::Status SaveCheckpoint(const SaveCheckpointParams& params) override;
  absl::StatusOr<int64_t> ForgetContributionsAfterCheckpoint(const RoundId& round, absl::Time now) override;

  absl::StatusOr<TaskRecord> GetTask(const TaskId& id) override;
  absl::StatusOr<TaskRecord> GetTaskState(const TaskId& id) override;
  std::optional<TaskId> PlaceOf(const TaskId& name) const override;
  absl::StatusOr<std::vector<AttemptRecord>> ListAttempts(const TaskId& id) override;
  absl::StatusOr<std::vector<TaskRecord>> ListTasks(const ListTasksParams& params) override;
  absl::StatusOr<std::optional<TaskId>> SkipTasks(const ListTasksParams& params) override;
  absl::StatusOr<QueueRecord> DescribeQueue(const std::string& population, absl::Time now) override;
  absl::StatusOr<std::vector<std::string>> ListRequirements(const RoundId& round) override;
  absl::StatusOr<std::vector<int64_t>> CountQueued(const RoundId& round) override;
  absl::StatusOr<absl::Time> NextDueTime(absl::Time now) override;

  absl::StatusOr<WorkerRecord> SawWorker(const SawWorkerParams& params) override;
  absl::StatusOr<std::vector<WorkerRecord>> ListWorkers(const ListWorkersParams& params) override;
  absl::StatusOr<WorkerRecord> SetWorkerDraining(const SetWorkerDrainingParams& params) override;

  absl::StatusOr<DeletedRounds> DeleteEndedRounds(const DeleteEndedRoundsParams& params) override;
  absl::StatusOr<std::vector<WorkerAge>> ListWorkerAges(const ListWorkerAgesParams& params) override;
  absl::StatusOr<std::vector<WorkerAge>> DeleteWorkers(std::span<const WorkerAge> workers) override;
  absl::StatusOr<CreateTokenResult> CreateToken(const TokenRecord& token) override;
  absl::StatusOr<TokenRecord> RevokeToken(const RevokeTokenParams& params) override;
  absl::Status DeleteToken(const TokenId& id) override;
  absl::StatusOr<std::vector<TokenRecord>> ListTokens(const ListTokensParams& params) override;

  Info GetInfo() const override;
  absl::StatusOr<std::vector<ServerRecord>> ListServers(const ListServersParams& params) override;
  absl::StatusOr<ServerRecord> SetServerDraining(const SetServerDrainingParams& params) override;

 private:
  explicit SqlTaskStore(std::unique_ptr<SqlEngine> engine)
      : engine_(std::move(engine)), connection_(&engine_->connection()) {}

  struct Round {
    int64_t key = 0;
    RoundRecord record;
    // Sorted, of a round that has not ended; of others they are read when somebody asks.
    std::vector<std::string> requirements;
    // Its QUEUED tasks, once somebody asked for one; and then whether submitters wrote something for any task.
    std::optional<WaitingTasks> waiting;
    bool has_inputs = false;
    // What the database has; 0 if it has no row yet.
    int64_t stored_version = 0;
    RowPlace place;
    // When it stopped collecting: the rows of tasks that were QUEUED or LEASED then still say so.
    absl::Time cancel_time;
    // Per worker the tasks it holds or has done, once somebody had to count them.
    std::optional<std::unordered_map<WorkerName, int64_t>> num_taken;
  };
  // A round to come. Its key is in deleted_rounds: whatever becomes of it, its rows are.
  struct Staged {
    Round round;
    int64_t num_tasks = 0;
  };
  struct Worker {
    WorkerRecord record;
    bool is_dirty = false;
    bool is_stored = false;
    RowPlace place;
  };
  // Past these, who is not in use is read again when somebody asks for it.
  static constexpr size_t kCachedWorkersMax = 100'000;
  using WorkerKey = std::pair<std::string, WorkerName>;
  struct WorkerKeyHash {
    size_t operator()(const WorkerKey& key) const {
      return KeyHash()(key.first) * 31 + std::hash<WorkerName>()(key.second);
    }
  };

  // connection_->Execute, but a failure breaks the batch.
  absl::StatusOr<int64_t> Run(std::string_view sql, std::initializer_list<SqlValue> values,
                              SqlConnection::RowCallback on_row);
  absl::StatusOr<int64_t> Run(std::string_view sql, std::initializer_list<SqlValue> values);
  // Run, for a statement that must change `num_rows` rows: DATA_LOSS otherwise.
  absl::Status Change(int64_t num_rows, std::string_view sql, std::initializer_list<SqlValue> values);
  absl::Status Broken(absl::Status status);

  // The round, cached while it is live. Stays valid until the end of the batch or the next FindRound of another
  // round outside one. NOT_FOUND.
  absl::StatusOr<Round*> FindRound(const RoundId& id);
  // FAILED_PRECONDITION unless it hands out tasks.
  absl::StatusOr<Round*> FindOpenRound(const RoundId& id);
  // Deletes some of what belongs to a deleted round; returns for how many tasks.
  absl::StatusOr<int64_t> DeleteTasks(int64_t round_key, int64_t tasks_limit);
  absl::StatusOr<int64_t> CountTaken(Round& round, const WorkerName& worker);
  absl::StatusOr<WaitingTasks*> LoadWaiting(Round& round);
  // The number of a requirement that the round has.
  static size_t NumberOf(const Round& round, const std::string& requirement);
  // A task of the round is QUEUED again.
  static void NoteBack(Round& round, const TaskRecord& task);
  // What their submitter wrote, into tasks of the round that wait with one of these requirements.
  absl::Status ReadInputs(const Round& round, std::span<const size_t> requirements, absl::Time now,
                          std::span<TaskRecord> tasks);
  absl::StatusOr<std::vector<std::string>> ReadRequirements(int64_t round_key);
  // A task that `worker` held stops being leased without success.
  void GiveBack(Round& round, const WorkerName& worker);
  // Of a round to come.
  absl::StatusOr<int64_t> NextKey();
  // Those from `first` on of a round that has its key, create_time, requirements and `waiting`.
  absl::Status InsertTasks(Round& round, int64_t first, std::span<const NewTask> tasks);
  // The round stops collecting; see Round::cancel_time.
  absl::Status CancelTasks(Round& round, absl::Time now);
  // Writes into the rows of tasks and attempts what CancelTasks left unsaid.
  absl::Status WriteCancelled(const Round& round);
  // Of CarryOver, what the database keeps.
  absl::Status WriteCarried(const Round& from, const Round& to, const std::vector<TaskRecord>& before,
                            const CarryOverParams& params);
  // Counts a change of `round`; the batch writes it before anything reads it by SQL.
  void Touch(Round& round);
  absl::Status FlushRounds();

  // Null if there is none.
  absl::StatusOr<Worker*> FindWorker(const WorkerKey& key);
  absl::Status CountForWorker(const Round& round, const WorkerName& worker, int64_t WorkerRecord::*counter, int64_t by);
  void Touch(const WorkerKey& key, Worker& worker);
  absl::Status FlushWorkers();
  // Of a far engine: all of them, so that one who is not in memory is new.
  absl::Status LoadWorkers();

  absl::StatusOr<std::vector<std::string>> PopulationsOf(const TokenId& id);
  absl::StatusOr<TokenRecord> FindToken(const TokenId& id);

  absl::Status LoadLeases();
  absl::Status LoadSecondLeases();
  // Of what is noted of tasks, the rows of second_leases.
  absl::Status WriteSecondLeases();
  // Most tasks of the round that this worker may still take.
  absl::StatusOr<int64_t> NumLeft(Round& round, const WorkerName& worker, int32_t per_worker_max, size_t wanted);
  // With what the submitter wrote.
  absl::StatusOr<TaskRecord> FindTask(Round& round, const TaskId& id);
  // What a row of tasks has no place for, of a task that is leased.
  void AddLeases(TaskRecord& task) const;
  // As the lease of this token has it: FAILED_PRECONDITION or NOT_FOUND unless there is one.
  absl::StatusOr<TaskRecord> FindLease(const TaskId& id, const LeaseToken& token);
  // Notes that a task has changed that stays leased.
  void NoteLeased(const Round& round, const TaskRecord& before, const TaskRecord& task);
  // Notes how the attempt of the lease in the fields of `task` ended; its number, worker and begin are the task's.
  void NoteAttempt(const Round& round, const TaskRecord& task, AttemptRecord ended);
  // Notes a task that stops being leased, or moves between QUEUED, FAILED and BURIED.
  void NoteUnleased(const Round& round, const TaskRecord& before, const TaskRecord& task, absl::Time now);
  // Writes what is noted of tasks, attempts and contributions. Before any statement that reads or changes those tables.
  absl::Status WriteNotes();

  static int64_t KeyOf(const Round& round, int32_t index) { return round.key << 32 | index; }
  void ForgetBatch();

  const std::unique_ptr<SqlEngine> engine_;
  SqlConnection* const connection_;
  bool is_in_batch_ = false;
  absl::Status batch_status_;

  std::unordered_map<RoundId, Round> rounds_;
  // Of a round that ended: read, shown, not kept.
  Round ended_round_;
  std::vector<RoundId> touched_rounds_;
  std::map<RoundId, Staged> staged_;
  // In this batch.
  std::vector<RoundId> touched_staged_;
  LeaseTable leases_;
  // Empty outside of a batch.
  BatchNotes notes_;
  std::unordered_map<WorkerKey, Worker, WorkerKeyHash> workers_;
  std::vector<WorkerKey> touched_workers_;
  // Which of them are in `workers_`: those that somebody asked for; all; or all but those of a batch that failed.
  enum class Known { kSome, kAll, kAllButForgotten };
  Known known_workers_ = Known::kSome;
  // Of a far engine.
  InputsAhead inputs_;
  // Of the next round; 0: the database knows. Nobody else gives keys.
  int64_t next_key_ = 0;
};

}  // namespace sheaf
