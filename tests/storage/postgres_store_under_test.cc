#include "base/check.h"
#include "storage/postgres/postgres_task_store.h"
#include "tests/conformance/task_store_suite.h"
#include "tests/postgres/postgres_cluster.h"

namespace sheaf {
namespace {

class PostgresUnderTest final : public StoreUnderTest {
 public:
  PostgresUnderTest() { Reopen(); }
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
