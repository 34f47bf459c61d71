// TaskQueries: looking at what a task store keeps. Nothing here changes anything.
//
//   ASSIGN_OR_RETURN(const std::vector<RoundRecord> rounds, queries.ListRounds({.population = "default"}));
//
// A look sees all operations before it, those of the open batch included. What has ended lies in the database, so that
// each call may wait for it: nothing that every call of every worker does belongs here (TaskStore has what it needs).
// Lists come in pages, and a page costs as much as its own rows unless it says otherwise.
//
// Codes, for every call: DATA_LOSS when what is stored cannot be true; INTERNAL for an I/O error. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/records.h"

namespace sheaf {

class TaskQueries {
 public:
  virtual ~TaskQueries() = default;

  // --- Rounds ----------------------------------------------------------------------------------

  // NOT_FOUND if there is none.
  virtual absl::StatusOr<RoundRecord> GetRound(const RoundId& id) = 0;

  struct ListRoundsParams {
    // Empty means all populations.
    std::string population;
    // Empty means all states.
    std::vector<RoundState> states;
    // Empty means all jobs.
    std::string job;
    // Newest first (create time, then id, descending); only rounds after this one. Empty: from the start.
    RoundId after;
    int limit = 100;
  };
  // NOT_FOUND if there is no round `after`.
  virtual absl::StatusOr<std::vector<RoundRecord>> ListRounds(const ListRoundsParams& params) = 0;

  // The distinct requirement texts of a round's tasks (with "" if any task has none), sorted.
  virtual absl::StatusOr<std::vector<std::string>> ListRequirements(const RoundId& round) = 0;
  // How many tasks with each of these are QUEUED, in the same order. Of a round that is kAnnounced or kCollecting; of
  // others all are 0.
  virtual absl::StatusOr<std::vector<int64_t>> CountQueued(const RoundId& round) = 0;

  enum class BlobUse {
    // No round names it.
    kNone,
    // The broadcast of a round that has not ended, or the aggregate of one that succeeded.
    kCurrent,
    // Otherwise: the broadcast of rounds that have ended.
    kFormer,
  };
  virtual absl::StatusOr<BlobUse> GetBlobUse(const std::string& digest) = 0;
  // All digests that are kFormer, in their order. One look, however many there are.
  virtual absl::StatusOr<std::vector<std::string>> ListFormerBroadcasts() = 0;

  // In order of sequence, those with sequence > after.
  virtual absl::StatusOr<std::vector<ContributionRecord>> ListContributions(const RoundId& round, int64_t after,
                                                                            int limit) = 0;

  // --- Tasks -----------------------------------------------------------------------------------

  // With what its submitter wrote. NOT_FOUND if there is none.
  virtual absl::StatusOr<TaskRecord> GetTask(const TaskId& id) = 0;
  // Those that are kept, oldest first.
  virtual absl::StatusOr<std::vector<AttemptRecord>> ListAttempts(const TaskId& id) = 0;

  struct ListTasksParams {
    // Empty means all.
    std::string population;
    std::optional<RoundId> round;
    std::vector<TaskState> states;
    WorkerName worker;  // That has or had either lease.
    // In order of round id, then index; only tasks after this one.
    std::optional<TaskId> after;
    // The last to look at.
    std::optional<TaskId> until;
    int limit = 100;
  };
  // Takes time for all tasks between `after` and `until` that it passes by: whoever wants few of many gives an end.
  virtual absl::StatusOr<std::vector<TaskRecord>> ListTasks(const ListTasksParams& params) = 0;
  // Such an end: the task that is `limit` tasks of the population and round behind `after`, whatever their state,
  // worker and `until`. Nothing if there are fewer.
  virtual absl::StatusOr<std::optional<TaskId>> SkipTasks(const ListTasksParams& params) = 0;

  struct QueueRecord {
    // Of rounds in kCollecting.
    TaskCounts tasks;
    int64_t num_live_rounds = 0;
    // Queued, but available_time lies ahead.
    int64_t num_delayed = 0;
    // Earliest available_time of the tasks that could be leased now; infinite future if none.
    absl::Time oldest_available_time = absl::InfiniteFuture();
  };
  // Empty means all populations.
  virtual absl::StatusOr<QueueRecord> DescribeQueue(const std::string& population, absl::Time now) = 0;

  // --- Workers and tokens ----------------------------------------------------------------------

  struct ListWorkersParams {
    // Empty means all.
    std::string population;
    // By name; only workers after this one.
    WorkerName after;
    int limit = 100;
  };
  virtual absl::StatusOr<std::vector<WorkerRecord>> ListWorkers(const ListWorkersParams& params) = 0;

  struct WorkerAge {
    WorkerName name;
    std::string population;
    absl::Time last_seen_time;
    bool operator==(const WorkerAge& other) const = default;
  };
  struct ListWorkerAgesParams {
    // Of all populations, by name, then population; only workers after this one.
    WorkerName after;
    std::string after_population;
    int limit = 1000;
  };
  virtual absl::StatusOr<std::vector<WorkerAge>> ListWorkerAges(const ListWorkerAgesParams& params) = 0;

  struct ListTokensParams {
    // By id; only tokens after this one.
    TokenId after;
    int limit = 100;
  };
  virtual absl::StatusOr<std::vector<TokenRecord>> ListTokens(const ListTokensParams& params) = 0;

  // --- The store itself ------------------------------------------------------------------------

  struct Info {
    // "memory", "sqlite" or "postgresql".
    std::string engine;
    int schema_version = 0;
    // Other servers may be waiting for their turn at it.
    bool is_shared = false;
  };
  virtual Info GetInfo() const = 0;

  struct ListServersParams {
    // By name; only servers after this one.
    std::string after;
    int limit = 100;
  };
  // Those that share this store. None where a store is one server's.
  virtual absl::StatusOr<std::vector<ServerRecord>> ListServers(const ListServersParams& params) = 0;
};

}  // namespace sheaf
