#include "tests/simulation/sim_storage.h"

#include <utility>

#include "base/check.h"
#include "storage/memory/memory_task_store.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sqlite/sqlite_connection.h"
#include "storage/sqlite/sqlite_engine.h"

namespace sheaf::simulation {
namespace {

class SharedConnection final : public SqlConnection {
 public:
  explicit SharedConnection(std::shared_ptr<SqlConnection> inner) : inner_(std::move(inner)) {}

  absl::Status Begin() override { return inner_->Begin(); }
  absl::Status Commit() override { return inner_->Commit(); }
  void Rollback() override { inner_->Rollback(); }
  using SqlConnection::Execute;
  absl::StatusOr<int64_t> Execute(std::string_view sql, std::initializer_list<SqlValue> values,
                                  RowCallback on_row) override {
    return inner_->Execute(sql, values, on_row);
  }
  absl::Status ExecuteScript(const std::string& sql) override { return inner_->ExecuteScript(sql); }
  std::string name() const override { return inner_->name(); }

 private:
  const std::shared_ptr<SqlConnection> inner_;
};

}  // namespace

SimStorage::SimStorage(StoreKind kind) {
  if (kind == StoreKind::kMemory) {
    tasks_ = std::make_unique<MemoryTaskStore>();
    shown_ = tasks_.get();
    return;
  }
  auto connection = SqliteConnection::Open(":memory:");
  SHEAF_CHECK(connection.ok(), "{}", connection.status().ToString());
  database_ = *std::move(connection);
  OpenSqlite();
}

void SimStorage::Crash() {
  payloads_.DropUnsynced();
  if (database_ != nullptr) Reopen();
}

void SimStorage::Reopen() {
  tasks_.reset();
  OpenSqlite();
}

std::unique_ptr<SqlConnection> SimStorage::Connect() const { return std::make_unique<SharedConnection>(database_); }

void SimStorage::OpenSqlite() {
  auto store = SqlTaskStore::Open(std::make_unique<SqliteEngine>(Connect()));
  SHEAF_CHECK(store.ok(), "{}", store.status().ToString());
  tasks_ = *std::move(store);
  shown_ = tasks_.get();
}

}  // namespace sheaf::simulation
