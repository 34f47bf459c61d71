// Goal: a flight is one round trip and happens as a whole or not at all, what goes wrong in a real database comes as
// the code that a store promises, and none of it takes forever.
#include "storage/postgres/postgres_connection.h"

#include <fmt/format.h>
#include <signal.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "storage/postgres/postgres_error.h"
#include "storage/postgres/postgres_migrations.h"
#include "storage/postgres/postgres_session.h"
#include "tests/postgres/postgres_cluster.h"

namespace sheaf {
namespace {

std::unique_ptr<PostgresConnection> Connected(const std::string& conninfo, absl::Duration timeout = absl::Seconds(30)) {
  auto connection =
      PostgresConnection::Open({.conninfo = conninfo, .timeout = timeout, .lock_timeout = absl::Milliseconds(200)});
  INFO(connection.status().ToString());
  REQUIRE(connection.ok());
  return *std::move(connection);
}

int64_t Count(PostgresConnection& connection, const std::string& table) {
  int64_t count = -1;
  REQUIRE(connection
              .Run({.sql = "-- count\nSELECT count(*) FROM " + table,
                    .on_row = [&](const SqlRow& row) { count = row.Int(0); }})
              .ok());
  return count;
}

PostgresConnection::Statement Insert(int64_t key) {
  return {.sql = "-- insert\nINSERT INTO t VALUES ($1)",
          .values = PostgresValues().Add(key),
          .change = {{.num_rows = 1, .otherwise = absl::DataLossError("not inserted")}}};
}

PostgresConnection::Statement Failing(const std::string& sqlstate) {
  return {.sql =
              fmt::format("-- fail\nDO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '{}'; END $$", sqlstate)};
}

TEST_CASE("Values of a statement arrive as they are, and lists of them as rows") {
  PostgresDatabase database;
  const auto connection = Connected(database.conninfo());
  const std::string all_bytes("\0\x01'\\\xff\x80", 6);
  const std::vector<int64_t> numbers = {INT64_MIN, -1, 0, INT64_MAX};
  const std::vector<std::optional<int64_t>> gaps = {5, std::nullopt, 7, std::nullopt};
  const std::vector<std::string_view> texts = {"", "a", all_bytes, "d"};
  const std::vector<std::optional<std::string_view>> some = {std::nullopt, "x", std::nullopt, ""};
  std::vector<std::string> rows;
  connection->Queue({.sql = "-- lists\nSELECT * FROM unnest($1, $2, $3, $4)",
                     .values = PostgresValues().AddInts(numbers).AddInts(gaps).AddBytes(texts).AddBytes(some),
                     .on_row = [&](const SqlRow& row) {
                       rows.push_back(fmt::format("{} {} {} {}", row.Int(0),
                                                  row.IsNull(1)           ? "-"
                                                  : row.String(1).empty() ? ""
                                                                          : fmt::format("{}", row.Int(1)),
                                                  row.String(2) == all_bytes ? "all" : row.String(2),
                                                  row.IsNull(3) ? "-" : "'" + row.String(3) + "'"));
                     }});
  bool are_equal = false;
  connection->Queue({.sql = "-- one\nSELECT $1, $2, $3, $4::smallint, $5::bigint",
                     .values = PostgresValues().Add(-3).Add(SqlBlob(all_bytes)).Add(SqlText("")).Add(-2).Add(SqlNull()),
                     .on_row = [&](const SqlRow& row) {
                       are_equal = row.Int(0) == -3 && row.Bytes(1) == all_bytes && row.Bytes(2).empty() &&
                                   !row.IsNull(2) && row.Int(3) == -2 && row.IsNull(4);
                     }});
  connection->Queue({.sql = "-- no_list\nSELECT * FROM unnest($1)",
                     .values = PostgresValues().AddInts(std::span<const int64_t>()),
                     .on_row = [&](const SqlRow&) { rows.emplace_back("too many"); }});
  REQUIRE(connection->Fly().ok());
  CHECK(rows == std::vector<std::string>{fmt::format("{} 5  -", INT64_MIN), "-1 - a 'x'", "0 7 all -",
                                         fmt::format("{} - d ''", INT64_MAX)});
  CHECK(are_equal);
}

TEST_CASE("A flight is one round trip, however many statements it has, and one transaction") {
  PostgresDatabase database;
  database.Run("CREATE TABLE t (n bigint UNIQUE)");
  const auto connection = Connected(database.conninfo());
  const int64_t before = connection->num_flights();
  for (int64_t i = 0; i < 500; ++i) connection->Queue(Insert(i));
  REQUIRE(connection->Fly().ok());
  CHECK(connection->num_flights() == before + 1);
  CHECK(Count(*connection, "t") == 500);

  // The last one fails, and takes the others with it.
  for (int64_t i = 500; i < 600; ++i) connection->Queue(Insert(i));
  connection->Queue(Insert(0));
  connection->Queue(Insert(1000));
  const absl::Status status = connection->Fly();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(status.message().find("-- insert") != std::string::npos);
  CHECK(connection->is_connected());
  CHECK(Count(*connection, "t") == 500);
}

TEST_CASE("A statement whose PREPARE was skipped by a failed flight is prepared by the next") {
  PostgresDatabase database;
  database.Run("CREATE TABLE t (n bigint UNIQUE)");
  const auto connection = Connected(database.conninfo());
  connection->Queue(Failing("40001"));
  connection->Queue(Insert(1));
  CHECK(connection->Fly().code() == absl::StatusCode::kUnavailable);
  connection->Queue({.sql = "-- nonsense\nSELEC"});
  connection->Queue(Insert(1));
  CHECK(connection->Fly().code() == absl::StatusCode::kInternal);
  CHECK(connection->Run(Insert(1)).ok());
  CHECK(Count(*connection, "t") == 1);
}

TEST_CASE("A statement that changes another number of rows ends its flight before the COMMIT") {
  PostgresDatabase database;
  database.Run("CREATE TABLE t (n bigint); INSERT INTO t VALUES (1), (2)");
  const auto connection = Connected(database.conninfo());
  const auto update = [&](int64_t num_rows) {
    connection->Queue({.sql = "-- begin\nBEGIN"});
    connection->Queue({.sql = "-- update\nUPDATE t SET n = n + $1",
                       .values = PostgresValues().Add(10),
                       .change = {{.num_rows = num_rows, .otherwise = absl::AbortedError("somebody else was here")}}});
    connection->Queue({.sql = "-- commit\nCOMMIT"});
    return connection->Fly();
  };
  CHECK(update(3) == absl::AbortedError("somebody else was here"));
  REQUIRE(connection->Run({.sql = "-- rollback\nROLLBACK"}).ok());
  CHECK(database.Run("SELECT sum(n) FROM t") == "3");
  CHECK(update(2).ok());
  CHECK(database.Run("SELECT sum(n) FROM t") == "23");
}

TEST_CASE("Statements and answers that fill all buffers pass each other") {
  PostgresDatabase database;
  const auto connection = Connected(database.conninfo());
  const std::string large(1 << 20, 'x');
  int64_t num_bytes = 0;
  for (int i = 0; i < 32; ++i) {
    connection->Queue({.sql = "-- echo\nSELECT $1",
                       .values = PostgresValues().Add(SqlBlob(large)),
                       .on_row = [&](const SqlRow& row) { num_bytes += static_cast<int64_t>(row.Bytes(0).size()); }});
  }
  REQUIRE(connection->Fly().ok());
  CHECK(num_bytes == 32 << 20);
}

TEST_CASE("What PostgreSQL says becomes the codes of a store") {
  PostgresDatabase database;
  const auto connection = Connected(database.conninfo());
  const std::vector<std::pair<std::string, absl::StatusCode>> rows = {
      {"53100", absl::StatusCode::kResourceExhausted}, {"53200", absl::StatusCode::kResourceExhausted},
      {"53300", absl::StatusCode::kUnavailable},       {"08006", absl::StatusCode::kUnavailable},
      {"57014", absl::StatusCode::kUnavailable},       {"57P01", absl::StatusCode::kUnavailable},
      {"40001", absl::StatusCode::kUnavailable},       {"40P01", absl::StatusCode::kUnavailable},
      {"55P03", absl::StatusCode::kUnavailable},       {"25006", absl::StatusCode::kUnavailable},
      {"23505", absl::StatusCode::kDataLoss},          {"XX001", absl::StatusCode::kDataLoss},
      {"XX002", absl::StatusCode::kDataLoss},          {"58P01", absl::StatusCode::kDataLoss},
      {"42501", absl::StatusCode::kPermissionDenied},  {"28P01", absl::StatusCode::kPermissionDenied},
      {"58030", absl::StatusCode::kInternal},          {"42P01", absl::StatusCode::kInternal}};
  for (const auto& [sqlstate, code] : rows) {
    const absl::Status status = connection->Run(Failing(sqlstate));
    INFO(sqlstate << ": " << status.ToString());
    CHECK(status.code() == code);
    CHECK(status.message().find(sqlstate) != std::string::npos);
    CHECK(connection->is_connected());
  }
  CHECK(PostgresError("", "gone").code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("A connection that cannot be made says why, and never what the password is") {
  PostgresCluster& cluster = PostgresCluster::OfThisProcess();
  const auto refused = [](const std::string& conninfo) {
    const absl::Status status = PostgresConnection::Open({.conninfo = conninfo}).status();
    INFO(status.ToString());
    CHECK(status.message().find("hunter2") == std::string_view::npos);
    return status.code();
  };
  CHECK(refused("host=127.0.0.1 port=1 password=hunter2") == absl::StatusCode::kUnavailable);
  CHECK(refused("postgresql://sheaf:hunter2@127.0.0.1:1/sheaf") == absl::StatusCode::kUnavailable);
  CHECK(refused("host=/ password = 'hunter2") == absl::StatusCode::kInvalidArgument);
  CHECK(refused("password hunter2") == absl::StatusCode::kInvalidArgument);
  CHECK(refused(cluster.Conninfo("no_such_database") + " password=hunter2") == absl::StatusCode::kFailedPrecondition);
  CHECK(refused("host=127.0.0.1 sslmode=require password=hunter2 user=sheaf dbname=postgres port=" +
                std::to_string(cluster.port())) == absl::StatusCode::kUnavailable);
  const auto connection = Connected(cluster.TcpConninfo("postgres") + "?password=hunter2");
  CHECK(connection->name() == cluster.TcpConninfo("postgres"));
}

TEST_CASE("Of several hosts the first that serves is taken") {
  PostgresDatabase database;
  const std::string folder = database.conninfo().substr(5, database.conninfo().find(' ') - 5);
  const int port = database.cluster().port();
  const auto connection =
      Connected(fmt::format("host=127.0.0.1,{} port=1,{} user=sheaf dbname={} "
                            "target_session_attrs=read-write",
                            folder, port, database.name()));
  CHECK(connection->Run({.sql = "-- look\nSELECT 1"}).ok());
}

TEST_CASE("A session is set up for a store, whatever the database's defaults") {
  PostgresDatabase database;
  database.Run(fmt::format("ALTER DATABASE {} SET synchronous_commit = off", database.name()));
  const auto connection = Connected(database.conninfo(), absl::Seconds(9));
  std::vector<std::string> settings;
  REQUIRE(
      connection
          ->Run({.sql = "-- show\nSELECT current_setting('synchronous_commit'), current_setting('statement_timeout'), "
                        "current_setting('lock_timeout'), current_setting('jit'), current_setting('application_name')",
                 .on_row =
                     [&](const SqlRow& row) {
                       for (int i = 0; i < 5; ++i) settings.push_back(row.String(i));
                     }})
          .ok());
  CHECK(settings == std::vector<std::string>{"on", "9s", "200ms", "off", "sheaf"});
}

TEST_CASE("A database that is silent costs bounded time") {
  PostgresDatabase database;
  const auto connection = Connected(database.conninfo(), absl::Milliseconds(300));
  const int backend = connection->backend_pid();
  SECTION("because one statement takes too long") {
    const absl::Status status = connection->Run({.sql = "-- sleep\nSELECT pg_sleep(60)"});
    CHECK(status.code() == absl::StatusCode::kUnavailable);
  }
  SECTION("because its process stands still") {
    REQUIRE(::kill(backend, SIGSTOP) == 0);
    const absl::Status status = connection->Run({.sql = "-- look\nSELECT 1"});
    CHECK(::kill(backend, SIGCONT) == 0);
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK_FALSE(connection->is_connected());
    CHECK(connection->Run({.sql = "-- look\nSELECT 1"}).code() == absl::StatusCode::kUnavailable);
    REQUIRE(connection->Connect().ok());
    CHECK(connection->Run({.sql = "-- look\nSELECT 1"}).ok());
    CHECK(connection->backend_pid() != backend);
  }
  SECTION("because somebody else holds a lock") {
    database.Run("CREATE TABLE t (n bigint); INSERT INTO t VALUES (1)");
    const auto other = Connected(database.conninfo());
    other->Queue({.sql = "-- begin\nBEGIN"});
    other->Queue({.sql = "-- lock\nUPDATE t SET n = 2"});
    REQUIRE(other->Fly().ok());
    CHECK(connection->Run({.sql = "-- update\nUPDATE t SET n = 3"}).code() == absl::StatusCode::kUnavailable);
    CHECK(connection->is_connected());
  }
}

TEST_CASE("A connection that the database ended is made anew") {
  PostgresCluster cluster;
  PostgresDatabase database(cluster);
  database.Run("CREATE TABLE t (n bigint)");
  const auto connection = Connected(database.conninfo());
  REQUIRE(connection->Run(Insert(1)).ok());
  SECTION("by its operator") {
    database.Run(fmt::format("SELECT pg_terminate_backend({}, 5000)", connection->backend_pid()));
    CHECK(connection->Run(Insert(2)).code() == absl::StatusCode::kUnavailable);
  }
  SECTION("with itself") {
    cluster.Stop("immediate");
    CHECK(connection->Run(Insert(2)).code() == absl::StatusCode::kUnavailable);
    CHECK(connection->Connect().code() == absl::StatusCode::kUnavailable);
    CHECK_FALSE(connection->is_connected());
    cluster.Start();
  }
  REQUIRE(connection->Connect().ok());
  REQUIRE(connection->Run(Insert(3)).ok());
  CHECK(database.Run("SELECT string_agg(n::text, ' ' ORDER BY n) FROM t") == "1 3");
}

TEST_CASE("A transaction flies with its COMMIT, or with the first question") {
  PostgresDatabase database;
  database.Run("CREATE TABLE t (n bigint UNIQUE); CREATE TABLE fence (n bigint); INSERT INTO fence VALUES (0)");
  const auto connection = Connected(database.conninfo());
  PostgresSession session(*connection,
                          [] { return PostgresConnection::Statement{.sql = "-- fence\nUPDATE fence SET n = n + 1"}; });
  const auto insert = [&](int64_t key) { return session.Change(1, "-- insert\nINSERT INTO t VALUES (?)", {key}); };
  int64_t flights = connection->num_flights();
  const auto flown = [&] { return connection->num_flights() - std::exchange(flights, connection->num_flights()); };

  REQUIRE(session.Begin().ok());
  for (int64_t i = 0; i < 100; ++i) CHECK(insert(i).ok());
  CHECK(flown() == 0);
  REQUIRE(session.Commit().ok());
  CHECK(flown() == 1);

  REQUIRE(session.Begin().ok());
  CHECK(insert(100).ok());
  int64_t count = 0;
  REQUIRE(session.Execute("-- count\nSELECT count(*) FROM t", {}, [&](const SqlRow& row) { count = row.Int(0); }).ok());
  CHECK(count == 101);
  CHECK(flown() == 1);
  session.Rollback();
  CHECK(flown() == 1);

  // One that sent nothing has nothing to take back.
  REQUIRE(session.Begin().ok());
  CHECK(insert(100).ok());
  session.Rollback();
  CHECK(flown() == 0);

  REQUIRE(session.Begin().ok());
  CHECK(insert(7).ok());
  CHECK(insert(200).ok());
  CHECK(session.Commit().code() == absl::StatusCode::kDataLoss);
  CHECK(database.Run("SELECT count(*) FROM t") == "100");
  CHECK(database.Run("SELECT n FROM fence") == "1");
}

TEST_CASE("Servers that start together migrate an empty database once") {
  PostgresDatabase database;
  const auto first = Connected(database.conninfo());
  const auto second = Connected(database.conninfo());
  // One that is in the middle of it.
  first->Queue({.sql = "-- begin\nBEGIN"});
  first->Queue(
      {.sql = "-- lock_schema\nSELECT pg_advisory_xact_lock($1)", .values = PostgresValues().Add(0x7368656166)});
  REQUIRE(first->Fly().ok());
  CHECK(MakePostgresSchema(*second).code() == absl::StatusCode::kUnavailable);
  REQUIRE(first->Run({.sql = "-- rollback\nROLLBACK"}).ok());

  for (int i = 0; i < 2; ++i) {
    INFO(i);
    const absl::Status status = MakePostgresSchema(*second);
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  const int newest = PostgresMigrations().back().version;
  CHECK(database.Run("SELECT version FROM schema") == std::to_string(newest));
  CHECK(newest == PostgresMigrations().back().version);

  database.Run("UPDATE schema SET version = 1000, minimum_compatible_version = 1000");
  const absl::Status status = MakePostgresSchema(*first);
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(status.message().find("version 1000") != std::string_view::npos);
}

}  // namespace
}  // namespace sheaf
