// SqliteEngine: SQLite beneath a SqlTaskStore. One prepared statement per row: it costs a microsecond, and no round
// trip.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/arguments.h"
#include "storage/sql/sql_engine.h"

namespace sheaf {

class SqliteEngine final : public SqlEngine {
 public:
  explicit SqliteEngine(std::unique_ptr<SqlConnection> connection) : connection_(std::move(connection)) {}

  SqlConnection& connection() override { return *connection_; }
  TaskStore::Info GetInfo() const override;
  absl::StatusOr<std::vector<ServerRecord>> ListServers(const TaskStore::ListServersParams& /*params*/) override {
    return std::vector<ServerRecord>();
  }
  absl::StatusOr<ServerRecord> SetServerDraining(const TaskStore::SetServerDrainingParams& params) override {
    return NoSuchServer(params.server);
  }
  absl::Status Migrate() override;
  bool is_far() const override { return false; }
  absl::Status WriteNotes(const BatchNotes& notes) override;
  absl::Status PutRounds(std::span<const RoundRow> rounds) override;
  absl::Status PutWorkers(std::span<const WorkerRow> workers) override;
  absl::StatusOr<std::vector<TaskStore::WorkerAge>> DeleteWorkers(
      std::span<const TaskStore::WorkerAge> workers) override;
  absl::Status InsertTasks(const NewTasks& tasks) override;
  absl::Status ReadInputs(std::span<const int64_t> task_keys, size_t num_wanted, int64_t bytes_max,
                          SqlConnection::RowCallback on_row) override;
  const Texts& texts() const override;

 private:
  absl::Status WriteTask(int64_t key, const BatchNotes::Task& noted);

  const std::unique_ptr<SqlConnection> connection_;
};

}  // namespace sheaf
