#include "base/check.h"
#include "storage/postgres/postgres_migrations.h"
#include "storage/postgres/postgres_payload_store.h"
#include "tests/conformance/payload_store_suite.h"
#include "tests/postgres/postgres_cluster.h"
#include "tests/storage/temporary_directory.h"

namespace sheaf {
namespace {

class PostgresUnderTest final : public PayloadStoreUnderTest {
 public:
  PostgresUnderTest() {
    const auto connection = PostgresConnection::Open({.conninfo = database_->conninfo()});
    SHEAF_CHECK(connection.ok(), "{}", connection.status().ToString());
    const absl::Status migrated = MakePostgresSchema(**connection);
    SHEAF_CHECK(migrated.ok(), "{}", migrated.ToString());
    Reopen();
  }
  PayloadStore& store() override { return *store_; }
  void Reopen() override {
    store_.reset();
    auto opened =
        PostgresPayloadStore::Open({.conninfo = database_->conninfo()}, files_, {.directory = directory_.path()});
    SHEAF_CHECK(opened.ok(), "{}", opened.status().ToString());
    store_ = *std::move(opened);
  }

 private:
  UsedDatabase database_;
  TemporaryDirectory directory_;
  PosixFileSystem files_;
  std::unique_ptr<PostgresPayloadStore> store_;
};

}  // namespace

std::vector<PayloadStoreKind> PayloadStoresUnderTest() {
  return {{"PostgreSQL", [] { return std::make_unique<PostgresUnderTest>(); }}};
}

}  // namespace sheaf
