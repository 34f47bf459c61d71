#include "base/check.h"
#include "storage/postgres/postgres_task_store.h"
#include "tests/conformance/task_store_suite.h"
#include "tests/postgres/postgres_cluster.h"

namespace sheaf {
namespace {

class PostgresUnderTest final : public StoreUnderTest {
 public:
  PostgresUnderTest() {
    // Some ten thousand commits are compared by what they answer. What a power cut leaves of them is no part of it, and
    // on a busy disk each flush takes long.
    database_->Run("ALTER SYSTEM SET fsync = off");
    database_->Run("SELECT pg_reload_conf()");
    Reopen();
  }
  TaskStore& store() override { return store_->tasks(); }
  void Reopen() override {
    store_.reset();
    auto store = PostgresTaskStore::Open(
        {.connection = {.conninfo = database_->conninfo()}, .owner = {.server = "server-1", .address = "here"}});
    SHEAF_CHECK(store.ok(), "{}", store.status().ToString());
    store_ = *std::move(store);
  }

 private:
  UsedDatabase database_;
  std::unique_ptr<PostgresTaskStore> store_;
};

}  // namespace

std::vector<StoreKind> StoresUnderTest() {
  return {{.name = "PostgreSQL", .make = [] { return std::make_unique<PostgresUnderTest>(); }, .is_durable = true}};
}

}  // namespace sheaf
