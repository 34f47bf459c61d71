#include "base/check.h"
#include "storage/memory/memory_task_store.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sqlite/sqlite_connection.h"
#include "storage/sqlite/sqlite_engine.h"
#include "tests/conformance/task_store_suite.h"
#include "tests/storage/temporary_directory.h"

namespace sheaf {
namespace {

class MemoryUnderTest final : public StoreUnderTest {
 public:
  TaskStore& store() override { return store_; }

 private:
  MemoryTaskStore store_;
};

class SqliteUnderTest final : public StoreUnderTest {
 public:
  explicit SqliteUnderTest(bool is_on_disk) : is_on_disk_(is_on_disk) { Open(); }
  TaskStore& store() override { return *store_; }
  void Reopen() override {
    if (is_on_disk_) Open();
  }

 private:
  void Open() {
    store_.reset();
    auto connection = SqliteConnection::Open(is_on_disk_ ? directory_.path() + "/tasks.db" : ":memory:");
    SHEAF_CHECK(connection.ok(), "{}", connection.status().ToString());
    auto store = SqlTaskStore::Open(std::make_unique<SqliteEngine>(*std::move(connection)));
    SHEAF_CHECK(store.ok(), "{}", store.status().ToString());
    store_ = *std::move(store);
  }

  const bool is_on_disk_;
  TemporaryDirectory directory_;
  std::unique_ptr<SqlTaskStore> store_;
};

}  // namespace

std::vector<StoreKind> StoresUnderTest() {
  return {
      {.name = "memory", .make = [] { return std::make_unique<MemoryUnderTest>(); }},
      {.name = "SQLite in memory", .make = [] { return std::make_unique<SqliteUnderTest>(false); }},
      {.name = "SQLite on disk", .make = [] { return std::make_unique<SqliteUnderTest>(true); }, .is_durable = true}};
}

}  // namespace sheaf
