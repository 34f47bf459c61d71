// TaskStore: the durable state of rounds, tasks, leases and contributions, as atomic operations
// of the domain. Everything the server promises about exactly-once rests on these.
//
//   RETURN_IF_ERROR(store.BeginBatch());
//   ASSIGN_OR_RETURN(auto tasks, store.LeaseTasks({.round = id, .worker = worker, .poll_id = "p1", .tokens = tokens,
//       .now = now, .expire_time = now + lease, .attempt_deadline_time = now + attempt}));
//   RETURN_IF_ERROR(store.CommitBatch());   // Only now may anybody be told.
//
// Batches are group commit: the operations of many concurrent calls share one transaction and one
// flush. Within a batch each operation sees those before it. An operation that returns an error has
// changed nothing. After a failed CommitBatch, or RollbackBatch, nothing of the batch has happened.
// Operations that write must be called inside a batch; what only looks may be called outside one too.
//
// A store keeps the rounds that have not ended in memory: an operation looks there, changes what is there, and notes
// what CommitBatch is to write. It need not wait for a database, wherever that is, but for what a task's submitter
// wrote and for tasks that nobody holds (docs/adr/0016). What is only looked at, and may be long settled, is
// TaskQueries.
//
// A state change is conditional on the expected state (see transitions.h): where the state is
// another, the answer says so and nothing changes.
//
// Time and tokens come in as arguments: a store never reads a clock and never draws a random number.
// Where arguments contradict themselves the answer is INVALID_ARGUMENT (arguments.h). Codes, for every operation:
// RESOURCE_EXHAUSTED when the disk is full; DATA_LOSS when what is stored cannot be true; INTERNAL for a failed flush
// or I/O error. From a database elsewhere also UNAVAILABLE, when it does not serve; and ABORTED, when another server
// has taken over, or nobody can tell what became of a batch: then the store is over. An implementation is not
// thread-safe.
//
// Implementations: memory/memory_task_store.h is the executable specification; sql/sql_task_store.h runs on SQLite and
// on PostgreSQL (sqlite/, postgres/). tests/conformance/task_store_suite holds all of them to this page.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/records.h"
#include "storage/task_queries.h"

namespace sheaf {

class TaskStore : public TaskQueries {
 public:
  // --- Batches ---------------------------------------------------------------------------------

  virtual absl::Status BeginBatch() = 0;
  // Makes the batch durable. On error nothing of it has happened and no batch is open.
  virtual absl::Status CommitBatch() = 0;
  virtual void RollbackBatch() = 0;

  // --- Rounds ----------------------------------------------------------------------------------

  struct NewTask {
    std::string payload;
    std::string data_selector;
    std::string requirement;
  };
  struct StageTasksParams {
    // Of the round that they are for, and that is not there yet.
    RoundId round;
    absl::Time create_time;
    // Of all its tasks, sorted, each once. Looked at only if `num_staged` is 0.
    std::span<const std::string> requirements;
    // How many tasks were staged for it before.
    int64_t num_staged = 0;
    std::span<const NewTask> tasks;
  };
  // Stores the next tasks of a round that CreateRound shall create, so that one of many comes into being over several
  // batches. Nobody sees them before. All that is staged for the round is void if the batch fails, if the store is
  // opened anew, or if CreateRound does not create it; it goes with later calls of DeleteEndedRounds.
  // FAILED_PRECONDITION unless `num_staged` tasks are staged; ALREADY_EXISTS if the round is there.
  virtual absl::Status StageTasks(const StageTasksParams& params) = 0;

  struct CreateRoundParams {
    // Its counts are set by the store; its tasks are available at once.
    RoundRecord round;
    // Those that were staged for it come first, with this round's create_time: FAILED_PRECONDITION unless so many are.
    int64_t num_staged = 0;
    std::vector<NewTask> tasks;
    // False: only look for what `request_id` created before; NOT_FOUND if that is nothing.
    bool may_create = true;
  };
  struct CreateRoundResult {
    RoundRecord round;
    // False if `request_id` had created a round before: `round` is that one.
    bool created = false;
  };
  // The counts, version, checkpoint, aggregate, error and end time given in `round` are ignored: a new round starts
  // without any. ALREADY_EXISTS if the round id is taken by another request. INVALID_ARGUMENT if the id or request_id
  // is empty, or the state neither kAnnounced nor kCollecting.
  virtual absl::StatusOr<CreateRoundResult> CreateRound(const CreateRoundParams& params) = 0;

  struct MoveRoundParams {
    RoundId round;
    RoundState from;
    RoundState to;
    absl::Time now;
    // Kept where the move is to kFailed or kCancelled.
    std::string error;
    // Kept where the move is to kSucceeded: what was released, and the digest of its blob.
    std::string aggregate;
    std::string aggregate_digest;
    // Kept where the move is from kAnnounced to kCollecting: they replace the round's.
    std::string broadcast_digest;
    absl::Time deadline_time;
  };
  // Moves a round; a move to anything but kCollecting also ends its QUEUED and LEASED tasks as CANCELLED, their running
  // attempts with them. INVALID_ARGUMENT if the move is not in the table of transitions.h. FAILED_PRECONDITION if the
  // round is not in `from`. NOT_FOUND.
  virtual absl::StatusOr<RoundRecord> MoveRound(const MoveRoundParams& params) = 0;

  struct CarryOverParams {
    RoundId from;
    // Created after `from`.
    RoundId to;
    // Tasks that came through so many rounds stay behind.
    int32_t staleness_max = 0;
    // Of the others, those behind the first so many.
    int32_t tasks_max = std::numeric_limits<int32_t>::max();
    absl::Time now;
  };
  // The LEASED tasks of `from` become CANCELLED there, their attempts too, and each goes on as a LEASED task of `to`,
  // behind all tasks that are there, in the order of their indexes: under the same leases, which are attempt 1 and, if
  // it has two, attempt 2. What their submitter wrote, and their requirement, stay behind. Returns the tasks in `to`.
  //
  // A task that was carried over is nobody else's: an attempt at it that ends without a contribution leaves it
  // CANCELLED; it gets no second lease, and is not requeued. It brings its contribution also while `to` is kAnnounced.
  // INVALID_ARGUMENT if the rounds are the same, or of two populations. FAILED_PRECONDITION if `from` is not
  // kCollecting, or `to` neither kAnnounced nor kCollecting. NOT_FOUND. O(leases of `from`), and a database reads its
  // tasks from the first to the last that is carried over.
  virtual absl::StatusOr<std::vector<TaskRecord>> CarryOver(const CarryOverParams& params) = 0;

  // RoundRecord::tasks alone: cheap, where a record has kilobytes. NOT_FOUND if there is none.
  virtual absl::StatusOr<TaskCounts> CountTasks(const RoundId& id) = 0;
  // When the first of the round's QUEUED tasks could be leased, or can be; infinite future if none is QUEUED. Nothing
  // where the store does not know without looking, or keeps no account of it: nothing but a figure rests on it.
  virtual std::optional<absl::Time> FirstAvailable(const RoundId& /*id*/) const { return std::nullopt; }

  // --- Leases ----------------------------------------------------------------------------------
  // Of the tasks that these return, only those of LeaseTasks, LeaseAgain and RequeueTask have what their submitter
  // wrote: of the others payload and data_selector are empty.
  //
  // A task that is LEASED may have a second lease (LeaseAgain), which is another worker's: a lease of its own, with an
  // attempt of its own. What is asked for or done under a token, or of a worker, returns the task as that lease has it
  // (second_lease.h). When one of the two ends without a contribution, the other is the task's only one, and the task
  // stays LEASED; when one brings the contribution, the other's attempt ends with it, as CANCELLED.

  struct LeaseTasksParams {
    RoundId round;
    WorkerName worker;
    std::string poll_id;
    // One per task wanted, all different; each becomes the token of one lease.
    std::vector<LeaseToken> tokens;
    // The requirement texts that this worker fulfils; "" is always fulfilled. Others of the round cost nothing.
    std::vector<std::string> fulfilled_requirements;
    // Most tasks of this round that this worker may hold or have completed; 0: no limit.
    int32_t per_worker_max = 0;
    absl::Time now;
    // The store caps it at the attempt's deadline.
    absl::Time expire_time;
    absl::Time attempt_deadline_time;
  };
  // Leases up to tokens.size() QUEUED tasks whose available_time has come, lowest index first, opening an attempt for
  // each, and deletes those of its attempts that are older than the newest kAttemptsKept. An empty answer is success.
  // FAILED_PRECONDITION if the round neither is kAnnounced nor kCollecting.
  virtual absl::StatusOr<std::vector<TaskRecord>> LeaseTasks(const LeaseTasksParams& params) = 0;

  struct LeaseAgainParams {
    // As in LeaseTasksParams.
    RoundId round;
    WorkerName worker;
    std::string poll_id;
    std::vector<LeaseToken> tokens;
    std::vector<std::string> fulfilled_requirements;
    int32_t per_worker_max = 0;
    // Tasks that have lost or failed so many attempts get no other; 0: no limit.
    int32_t lost_max = 0;
    int32_t failed_max = 0;
    // Of tasks whose lease began by then,
    absl::Time begun_by;
    // and so many of those with a fulfilled requirement, the longest held first, its own included: bounds the work.
    int32_t candidates_max = 64;
    absl::Time now;
    absl::Time expire_time;
    absl::Time attempt_deadline_time;
  };
  // Gives up to tokens.size() LEASED tasks that have one lease, of another worker, a second one; none to whose attempt
  // had one before. An empty answer is success. FAILED_PRECONDITION if the round is not kCollecting.
  virtual absl::StatusOr<std::vector<TaskRecord>> LeaseAgain(const LeaseAgainParams& params) = 0;
  // Of the round's tasks that may have a second lease: when the first began of those leases that began after `after`.
  // Infinite future if there is none, or the round is not kCollecting. O(log leases), but the first time it is asked of
  // a round that has leases already. NOT_FOUND.
  virtual absl::StatusOr<absl::Time> FirstLeaseTime(const RoundId& round, absl::Time after) = 0;

  // The tasks leased to a worker of this population, by id. A worker of the same name in another population is another
  // worker.
  virtual absl::StatusOr<std::vector<TaskRecord>> ListLeases(const std::string& population,
                                                             const WorkerName& worker) = 0;

  // Of a task that has two leases both, the older in its own fields. NOT_FOUND if there is none.
  virtual absl::StatusOr<TaskRecord> GetTaskState(const TaskId& id) = 0;
  // Where a task is by now that was carried over and is LEASED, by the name that its worker was given: whoever has a
  // lease goes on under that. Nothing of any other. O(log leases), in memory. FindByName says it of all tasks.
  virtual std::optional<TaskId> PlaceOf(const TaskId& name) const = 0;

  struct RenewLeaseParams {
    TaskId task;
    LeaseToken token;
    // Kept if it is higher than before.
    int64_t progress = 0;
    // The new expire_time, if progress grew; the store caps it at the attempt's deadline.
    absl::Time expire_time;
    // The attempt's deadline comes no later than this.
    absl::Time attempt_deadline_time_max = absl::InfiniteFuture();
  };
  // The task after renewal. FAILED_PRECONDITION if the task is not leased under this token. NOT_FOUND.
  virtual absl::StatusOr<TaskRecord> RenewLease(const RenewLeaseParams& params) = 0;

  // Leased tasks whose lease or attempt ended at or before `now`, earliest first, then by id; once for each lease.
  virtual absl::StatusOr<std::vector<TaskRecord>> ListExpired(absl::Time now, int limit) = 0;
  // Earliest instant after `now` at which time alone changes something: a lease or attempt ends, a delayed task
  // becomes available, a round reaches its deadline. Infinite future if none.
  virtual absl::StatusOr<absl::Time> NextDueTime(absl::Time now) = 0;

  struct EndAttemptParams {
    TaskId task;
    // Must be one of the task's current ones.
    LeaseToken token;
    // kFailed, kLost, kReleased or kCancelled.
    AttemptOutcome outcome;
    // kQueued, kFailed or kBuried. If another attempt at the task runs, it stays kLeased instead; if none does and it
    // was carried over, it becomes kCancelled.
    TaskState to;
    // Earliest next lease, where `to` is kQueued.
    absl::Time available_time;
    std::string error;
    std::string timings;
    absl::Time now;
  };
  // Ends the running attempt without a contribution; counts it by its outcome.
  // FAILED_PRECONDITION if the task is not leased under this token. NOT_FOUND.
  virtual absl::StatusOr<TaskRecord> EndAttempt(const EndAttemptParams& params) = 0;

  struct RequeueTaskParams {
    TaskId task;
    absl::Time now;
  };
  // By an operator: a BURIED or FAILED task, or a LEASED one (its attempts end as CANCELLED), becomes QUEUED
  // with its limits counted afresh. Requeuing a QUEUED task makes it available at once.
  // FAILED_PRECONDITION if the task succeeded, was cancelled or was carried over, or its round is neither kAnnounced
  // nor kCollecting. NOT_FOUND.
  virtual absl::StatusOr<TaskRecord> RequeueTask(const RequeueTaskParams& params) = 0;

  struct LimitTimesParams {
    RoundId round;
    absl::Time now;
    // Of the round.
    absl::Time deadline_time_max;
    // Of its leases.
    absl::Time expire_time_max;
    absl::Time attempt_deadline_time_max;
    // Of its QUEUED tasks: one that would wait for longer is available at `now`.
    absl::Time available_time_max;
  };
  // After a restart, for a clock that was set back meanwhile: no instant of the round lies further ahead than it can;
  // but those of tasks that were carried over, which another round has given.
  // Those that do become the maximum. Returns whether any did. FAILED_PRECONDITION if the round is neither kAnnounced
  // nor kCollecting. NOT_FOUND.
  virtual absl::StatusOr<bool> LimitTimes(const LimitTimesParams& params) = 0;

  // --- Contributions ---------------------------------------------------------------------------

  struct RecordContributionParams {
    TaskId task;
    LeaseToken token;
    std::string digest;
    int64_t size_bytes = 0;
    int64_t num_clients = 1;
    SpoolRef payload;
    std::string timings;
    // Replaces the round's progress.
    std::string progress;
    absl::Time now;
  };
  // The exactly-once step: the task becomes SUCCEEDED and its contribution gets the round's next sequence
  // number. Another attempt at it that runs ends as CANCELLED. FAILED_PRECONDITION, with nothing changed, if the round
  // is not kCollecting (nor kAnnounced, where the task was carried over), or the task is not leased under this token.
  // NOT_FOUND.
  virtual absl::StatusOr<ContributionRecord> RecordContribution(const RecordContributionParams& params) = 0;

  struct SaveCheckpointParams {
    RoundId round;
    std::string checkpoint;
    // The checkpoint contains every contribution up to this one. Never lower than before.
    int64_t sequence = 0;
    // The round's progress as of that contribution; it replaces the round's if no other was accepted since.
    std::string progress;
  };
  // FAILED_PRECONDITION if a checkpoint with a higher sequence is there, or sequence > num_contributions.
  virtual absl::Status SaveCheckpoint(const SaveCheckpointParams& params) = 0;

  // After a crash, for rounds that spool nothing: forgets the contributions after the checkpoint and queues their tasks
  // again, their attempts CANCELLED; those that were carried over become CANCELLED. `progress` is the checkpoint's
  // again, and a round that was kSealing collects again. Returns how many; nothing changes if there are none.
  // FAILED_PRECONDITION if the round has ended.
  virtual absl::StatusOr<int64_t> ForgetContributionsAfterCheckpoint(const RoundId& round, absl::Time now) = 0;

  // --- Workers ---------------------------------------------------------------------------------

  struct SawWorkerParams {
    WorkerName name;
    std::string population;
    std::string description;
    absl::Time now;
  };
  // Creates or refreshes.
  virtual absl::StatusOr<WorkerRecord> SawWorker(const SawWorkerParams& params) = 0;

  struct SetWorkerDrainingParams {
    WorkerName name;
    std::string population;
    bool is_draining = false;
  };
  // NOT_FOUND if there is none in this population.
  virtual absl::StatusOr<WorkerRecord> SetWorkerDraining(const SetWorkerDrainingParams& params) = 0;

  // --- Retention -------------------------------------------------------------------------------

  struct DeleteEndedRoundsParams {
    // Rounds that ended by then go, in the order of end_time, create_time and id;
    absl::Time ended_by = absl::InfinitePast();
    // and of the others, if more than this many have ended, so many as are too many: the first of those that a
    // population has beyond what each may keep (KeptMax), so that one that ends rounds fast does not push out
    // another's.
    int64_t keep_max = 0;
    // Bounds the work of one call: about this many tasks, their attempts and contributions. What was deleted is not
    // seen again, but the rows of its tasks may go in later calls.
    int64_t tasks_limit = 1000;
  };
  struct DeletedRounds {
    std::vector<RoundId> rounds;
    // Aggregates that they released; another round may use the same blob.
    std::vector<std::string> aggregate_digests;
    // False if there is more to delete.
    bool is_done = true;
  };
  // With their tasks, attempts and contributions; their ids and request ids may be used again.
  virtual absl::StatusOr<DeletedRounds> DeleteEndedRounds(const DeleteEndedRoundsParams& params) = 0;

  // Of these workers those go that were not seen since, and that hold no task. Returns which, in the same order.
  virtual absl::StatusOr<std::vector<WorkerAge>> DeleteWorkers(std::span<const WorkerAge> workers) = 0;

  // --- Tokens ----------------------------------------------------------------------------------

  struct CreateTokenResult {
    TokenRecord token;
    // False if `request_id` had created a token before: `token` is that one.
    bool created = false;
  };
  // A new token is not revoked, whatever `token` says. ALREADY_EXISTS if its id or hash is another's. INVALID_ARGUMENT
  // if its id, request_id, name or roles are empty, or its hash is not a SHA-256 in hex.
  virtual absl::StatusOr<CreateTokenResult> CreateToken(const TokenRecord& token) = 0;
  struct RevokeTokenParams {
    TokenId token;
    absl::Time now;
  };
  // Revoking a revoked token changes nothing. NOT_FOUND.
  virtual absl::StatusOr<TokenRecord> RevokeToken(const RevokeTokenParams& params) = 0;
  // NOT_FOUND.
  virtual absl::Status DeleteToken(const TokenId& id) = 0;

  // --- Servers ---------------------------------------------------------------------------------

  struct SetServerDrainingParams {
    // One of ListServers.
    std::string server;
    bool is_draining = false;
  };
  // Holds for the name, also of a server that is restarted. NOT_FOUND.
  virtual absl::StatusOr<ServerRecord> SetServerDraining(const SetServerDrainingParams& params) = 0;
};

}  // namespace sheaf
