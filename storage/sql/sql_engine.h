// SqlEngine: what a SqlTaskStore leaves to its database: how the rows are written of which a batch has many, and the
// few texts that not all databases take alike. All else is SQL that all of them understand, with `?` for values.
//
//   ASSIGN_OR_RETURN(auto connection, SqliteConnection::Open(path));
//   ASSIGN_OR_RETURN(auto store, SqlTaskStore::Open(std::make_unique<SqliteEngine>(std::move(connection))));
//
// What is written must change just the rows that it names, each in the state that it names: DATA_LOSS otherwise, from
// here or from the commit. Codes: those of its connection. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/records.h"
#include "storage/sql/batch_notes.h"
#include "storage/sql/row_place.h"
#include "storage/sql/sql_connection.h"
#include "storage/task_store.h"

namespace sheaf {

class SqlEngine {
 public:
  virtual ~SqlEngine() = default;

  virtual SqlConnection& connection() = 0;
  // Its name, and the newest schema version that it knows.
  virtual TaskStore::Info GetInfo() const = 0;
  // As TaskQueries.
  virtual absl::StatusOr<std::vector<ServerRecord>> ListServers(const TaskStore::ListServersParams& params) = 0;
  // As TaskStore.
  virtual absl::StatusOr<ServerRecord> SetServerDraining(const TaskStore::SetServerDrainingParams& params) = 0;
  // Brings the database to that version.
  virtual absl::Status Migrate() = 0;
  // Each question is a round trip: what somebody will ask for is read ahead, many rows at a time.
  virtual bool is_far() const = 0;

  // --- Rows ------------------------------------------------------------------------------------

  // The rows of tasks, attempts and contributions.
  virtual absl::Status WriteNotes(const BatchNotes& notes) = 0;

  struct RoundRow {
    int64_t key = 0;
    const RoundRecord* record = nullptr;
    absl::Time cancel_time;
    // What the database has.
    int64_t stored_version = 0;
    // For the engine's use; stays where it is until this was answered.
    RowPlace* place = nullptr;
  };
  virtual absl::Status PutRounds(std::span<const RoundRow> rounds) = 0;

  struct WorkerRow {
    const WorkerRecord* record = nullptr;
    // The database has a row of it.
    bool is_stored = false;
    // As a round's.
    RowPlace* place = nullptr;
  };
  // Each once.
  virtual absl::Status PutWorkers(std::span<const WorkerRow> workers) = 0;
  // Of these those that were not seen since; returns which, in the same order.
  virtual absl::StatusOr<std::vector<TaskStore::WorkerAge>> DeleteWorkers(
      std::span<const TaskStore::WorkerAge> workers) = 0;

  struct NewRequirement {
    int64_t number = 0;
    std::string_view text;
  };
  struct NewTasks {
    int64_t round_key = 0;
    absl::Time create_time;
    // Those that the round has no row of yet.
    std::span<const NewRequirement> requirements;
    // Of the first task; those of the others follow.
    int64_t first_key = 0;
    std::span<const TaskStore::NewTask> tasks;
    // Of each task, the number of its requirement.
    std::span<const int64_t> requirement_numbers;
  };
  virtual absl::Status InsertTasks(const NewTasks& tasks) = 0;

  // Calls on_row(task_key, payload, data_selector) for each of these tasks; NULL for what has no row. Those behind the
  // first `num_wanted` only as long as they have no more than `bytes_max` together with all before.
  virtual absl::Status ReadInputs(std::span<const int64_t> task_keys, size_t num_wanted, int64_t bytes_max,
                                  SqlConnection::RowCallback on_row) = 0;

  // --- Texts -----------------------------------------------------------------------------------

  struct Texts {
    // () -> kTaskColumns and population: what is leased of rounds that collect.
    std::string_view load_leases;
    // (round_key, first task_key, last task_key) -> task_key, requirement, available_time, num_attempts, num_failed,
    // num_lost, last_error: what is QUEUED, in the order of requirements, then of keys.
    std::string_view load_waiting;
    // (after_round, after_index, until_round, until_index, first_round, last_round, population, population, bits of
    // states, worker, worker, limit) -> kTaskColumns, in the order of rounds and keys.
    std::string_view list_tasks;
    // (after_round, after_index, until_round, until_index, first_round, last_round, population, population, offset) ->
    // round, task_key: the one behind so many.
    std::string_view skip_tasks;
  };
  virtual const Texts& texts() const = 0;
};

}  // namespace sheaf
