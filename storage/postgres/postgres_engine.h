// PostgresEngine: PostgreSQL beneath a SqlTaskStore. What a batch writes are arrays, one statement for each kind of
// row, and all of it flies with the batch's COMMIT: one round trip and one flush, whatever is in it (docs/adr/0016,
// 0032).
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/postgres/owned_session.h"
#include "storage/postgres/postgres_connection.h"
#include "storage/postgres/postgres_owner.h"
#include "storage/sql/sql_engine.h"

namespace sheaf {

class PostgresEngine final : public SqlEngine {
 public:
  // The database has its schema.
  PostgresEngine(std::unique_ptr<PostgresConnection> connection, std::unique_ptr<PostgresOwner> owner)
      : connection_(std::move(connection)), owner_(std::move(owner)), session_(*connection_, *owner_) {}

  SqlConnection& connection() override { return session_; }
  OwnedSession& session() { return session_; }
  TaskStore::Info GetInfo() const override;
  absl::StatusOr<std::vector<ServerRecord>> ListServers(const TaskStore::ListServersParams& params) override;
  absl::StatusOr<ServerRecord> SetServerDraining(const TaskStore::SetServerDrainingParams& params) override;
  // PostgresTaskStore has done so.
  absl::Status Migrate() override { return absl::OkStatus(); }
  bool is_far() const override { return true; }
  absl::Status WriteNotes(const BatchNotes& notes) override;
  absl::Status PutRounds(std::span<const RoundRow> rounds) override;
  absl::Status PutWorkers(std::span<const WorkerRow> workers) override;
  absl::StatusOr<std::vector<TaskStore::WorkerAge>> DeleteWorkers(
      std::span<const TaskStore::WorkerAge> workers) override;
  absl::Status InsertTasks(const NewTasks& tasks) override;
  absl::Status ReadInputs(std::span<const int64_t> task_keys, size_t num_wanted, int64_t bytes_max,
                          SqlConnection::RowCallback on_row) override;
  const Texts& texts() const override;

  PostgresConnection& postgres() { return *connection_; }
  PostgresOwner& owner() { return *owner_; }

 private:
  // `which` of the rows `s`, in SQL.
  absl::StatusOr<std::vector<ServerRecord>> ReadServers(std::string_view which, PostgresValues values);
  // What they own.
  absl::Status AddShards(std::vector<ServerRecord>& servers);
  void WriteTasks(const BatchNotes& notes);
  void WriteRenewals(const BatchNotes& notes);
  void WriteAttempts(const BatchNotes& notes);
  void WriteContributions(const BatchNotes& notes);

  const std::unique_ptr<PostgresConnection> connection_;
  const std::unique_ptr<PostgresOwner> owner_;
  OwnedSession session_;
};

}  // namespace sheaf
