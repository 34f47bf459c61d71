// Goal: what only a database that is far away, shared and able to die can do to a store. A batch is one round trip; of
// two servers on one database one writes, and the other learns it; a COMMIT whose answer was lost is told as what it
// was.
#include "storage/postgres/postgres_task_store.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/random.h"
#include "storage/postgres/open.h"
#include "storage/postgres/postgres_token_watch.h"
#include "tests/conformance/task_store_suite.h"
#include "tests/postgres/postgres_cluster.h"
#include "tests/storage/temporary_directory.h"
#include "tests/wait_until.h"

namespace sheaf {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

template <typename T>
T Ok(absl::StatusOr<T> value) {
  INFO(value.status().ToString());
  REQUIRE(value.ok());
  return *std::move(value);
}

struct Server {
  std::string name = "server-1";
  absl::Duration takeover_after = absl::Hours(1);
  absl::Duration timeout = absl::Seconds(30);
  absl::Duration lock_timeout = absl::Seconds(10);
  int attempts_max = 60;
};

absl::StatusOr<std::unique_ptr<PostgresTaskStore>> TryOpen(PostgresDatabase& database, const Server& server = {}) {
  return PostgresTaskStore::Open(
      {.connection = {.conninfo = database.conninfo(), .timeout = server.timeout, .lock_timeout = server.lock_timeout},
       .owner = {.server = server.name,
                 .address = server.name + ":7433",
                 .takeover_after = server.takeover_after,
                 .attempts_max = server.attempts_max}});
}

std::unique_ptr<PostgresTaskStore> Open(PostgresDatabase& database, const Server& server = {}) {
  auto store = TryOpen(database, server);
  INFO(store.status().ToString());
  REQUIRE(store.ok());
  return *std::move(store);
}

absl::Status See(TaskStore& store, const std::string& worker) {
  if (absl::Status status = store.BeginBatch(); !status.ok()) return status;
  const auto seen =
      store.SawWorker({.name = WorkerName(worker), .population = "default", .description = "a worker", .now = kNow});
  if (!seen.ok()) {
    store.RollbackBatch();
    return seen.status();
  }
  return store.CommitBatch();
}

std::string Workers(PostgresDatabase& database) {
  return database.Run("SELECT coalesce(string_agg(convert_from(name, 'UTF8'), ' ' ORDER BY name), '') FROM workers");
}

TaskStore::CreateRoundParams ARound(const std::string& id, int num_tasks) {
  TaskStore::CreateRoundParams params;
  params.round = {.id = RoundId(id),
                  .population = "default",
                  .request_id = "request-" + id,
                  .spec = "spec",
                  .state = RoundState::kCollecting,
                  .create_time = kNow,
                  .deadline_time = kNow + absl::Hours(1)};
  for (int i = 0; i < num_tasks; ++i) params.tasks.push_back({.payload = fmt::format("payload {}", i)});
  return params;
}

// What n workers do in one batch: each hands in a task, renews the lease of another, gives a third back, and takes
// three. Returns the round trips.
int64_t FlightsOfBatch(PostgresTaskStore& opened, int n, int turn) {
  TaskStore& store = opened.tasks();
  const int64_t before = opened.connection().num_flights();
  REQUIRE(store.BeginBatch().ok());
  for (int i = 0; i < n; ++i) {
    const WorkerName worker(fmt::format("w{}", i));
    REQUIRE(store.SawWorker({.name = worker, .population = "default", .description = "a worker", .now = kNow}).ok());
    const auto held = store.ListLeases("default", worker);
    REQUIRE(held.ok());
    if (turn > 0) {
      REQUIRE(held->size() == 3);
      REQUIRE(store
                  .RecordContribution({.task = (*held)[0].id,
                                       .token = (*held)[0].lease_token,
                                       .digest = "digest",
                                       .size_bytes = 100,
                                       .payload = {.segment = 1, .offset = 8, .length = 100, .crc = 7},
                                       .timings = "timings",
                                       .progress = "progress",
                                       .now = kNow})
                  .ok());
      REQUIRE(store
                  .RenewLease({.task = (*held)[1].id,
                               .token = (*held)[1].lease_token,
                               .progress = turn,
                               .expire_time = kNow + absl::Minutes(1)})
                  .ok());
      REQUIRE(store
                  .EndAttempt({.task = (*held)[2].id,
                               .token = (*held)[2].lease_token,
                               .outcome = AttemptOutcome::kFailed,
                               .to = TaskState::kQueued,
                               .available_time = kNow,
                               .error = "it broke",
                               .now = kNow})
                  .ok());
    }
    TaskStore::LeaseTasksParams lease{.round = RoundId("r"),
                                      .worker = worker,
                                      .poll_id = "poll",
                                      .now = kNow,
                                      .expire_time = kNow + absl::Seconds(30),
                                      .attempt_deadline_time = kNow + absl::Minutes(10)};
    while (lease.tokens.size() < (turn > 0 ? 2 : 3)) {
      lease.tokens.emplace_back(fmt::format("token-{}-{}-{}", turn, i, lease.tokens.size()));
    }
    const auto leased = store.LeaseTasks(lease);
    REQUIRE(leased.ok());
    for (const TaskRecord& task : *leased) REQUIRE(task.payload == fmt::format("payload {}", task.id.index));
  }
  REQUIRE(store.CommitBatch().ok());
  return opened.connection().num_flights() - before;
}

TEST_CASE("A batch is one round trip, however many workers are in it, and one more for some hundred new inputs") {
  PostgresDatabase database;
  auto store = Open(database);
  constexpr int kNumTasks = 2000;
  REQUIRE(store->tasks().BeginBatch().ok());
  REQUIRE(store->tasks().CreateRound(ARound("r", kNumTasks)).ok());
  REQUIRE(store->tasks().CommitBatch().ok());
  for (const int n : {1, 8, 64}) {
    int64_t flights = 0;
    constexpr int kTurns = 6;
    for (int turn = 0; turn < kTurns; ++turn) {
      const int64_t of_batch = FlightsOfBatch(*store, n, turn);
      INFO(n << " workers, turn " << turn);
      // Its commit, and 256 inputs at a time; tasks that come back have theirs.
      CHECK(of_batch <= 2);
      flights += of_batch;
    }
    CHECK(flights <= kTurns + 1 + (3 * n * kTurns) / 256);
    // What they hold goes back, for the next.
    REQUIRE(store->tasks().BeginBatch().ok());
    for (int i = 0; i < n; ++i) {
      const auto held = store->tasks().ListLeases("default", WorkerName(fmt::format("w{}", i)));
      for (const TaskRecord& task : *held) REQUIRE(store->tasks().RequeueTask({.task = task.id, .now = kNow}).ok());
    }
    REQUIRE(store->tasks().CommitBatch().ok());
  }
}

TEST_CASE("A batch that is empty, or rolled back before anybody asked, sends no more than its fence") {
  PostgresDatabase database;
  auto store = Open(database);
  const int64_t before = store->connection().num_flights();
  REQUIRE(store->tasks().BeginBatch().ok());
  REQUIRE(store->tasks().SawWorker({.name = WorkerName("w"), .population = "default", .now = kNow}).ok());
  store->tasks().RollbackBatch();
  CHECK(store->connection().num_flights() == before);
  REQUIRE(store->tasks().BeginBatch().ok());
  REQUIRE(store->tasks().CommitBatch().ok());
  CHECK(store->connection().num_flights() == before + 1);
}

TEST_CASE("A new worker costs no question, not even after a batch that failed") {
  PostgresDatabase database;
  auto store = Open(database);
  REQUIRE(See(store->tasks(), "w0").ok());
  store = Open(database);
  const int64_t before = store->connection().num_flights();
  REQUIRE(See(store->tasks(), "w0").ok());
  REQUIRE(See(store->tasks(), "w1").ok());
  CHECK(store->connection().num_flights() == before + 2);
  REQUIRE(store->tasks().BeginBatch().ok());
  REQUIRE(store->tasks().SawWorker({.name = WorkerName("w1"), .population = "default", .now = kNow}).ok());
  store->tasks().RollbackBatch();
  // All at once, however many come back.
  const int64_t after_failure = store->connection().num_flights();
  REQUIRE(store->tasks().BeginBatch().ok());
  for (int i = 0; i < 50; ++i) {
    const auto seen =
        store->tasks().SawWorker({.name = WorkerName(fmt::format("w{}", i)), .population = "default", .now = kNow});
    REQUIRE(seen.ok());
  }
  REQUIRE(store->tasks().CommitBatch().ok());
  CHECK(store->connection().num_flights() == after_failure + 2);
  CHECK(database.Run("SELECT count(*) FROM workers") == "50");
}

TEST_CASE("Rows that change with every batch are updated in place, and no index with them") {
  PostgresDatabase database;
  auto store = Open(database);
  REQUIRE(store->tasks().BeginBatch().ok());
  REQUIRE(store->tasks().CreateRound(ARound("r", 1000)).ok());
  REQUIRE(store->tasks().CommitBatch().ok());
  for (int turn = 0; turn < 30; ++turn) FlightsOfBatch(*store, 8, turn);
  store.reset();
  const auto percent = [&](const std::string& table) {
    return std::stoll(
        database.Run(fmt::format("SELECT coalesce(100 * n_tup_hot_upd / nullif(n_tup_upd, 0), 0) FROM "
                                 "pg_stat_user_tables WHERE relname = '{}'",
                                 table)));
  };
  // A process of the database tells its figures when it ends.
  WaitUntil("the figures are there", absl::Seconds(20), [&] { return percent("tasks") > 0; });
  CHECK(percent("owners") >= 90);
  CHECK(percent("rounds") >= 90);
  CHECK(percent("workers") >= 90);
  CHECK(percent("tasks") >= 80);
}

TEST_CASE("Rows that change with every batch are found where they lie, not by passing all their old versions") {
  PostgresDatabase database;
  auto store = Open(database);
  REQUIRE(store->tasks().BeginBatch().ok());
  REQUIRE(store->tasks().CreateRound(ARound("r", 1000)).ok());
  REQUIRE(store->tasks().CommitBatch().ok());
  std::optional<PostgresSnapshot> report(std::in_place, database);
  constexpr int kTurns = 40;
  for (int turn = 0; turn < kTurns; ++turn) FlightsOfBatch(*store, 8, turn);
  SECTION("of which there are many, as long as somebody looks at an old state of the database") {
    store.reset();
    const auto num_scans = [&](const std::string& index) {
      return std::stoll(database.Run("SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = '" + index + "'"));
    };
    // A process of the database tells its figures when it ends.
    WaitUntil("the figures are there", absl::Seconds(20), [&] { return num_scans("tasks_pkey") >= kTurns; });
    CHECK(num_scans("owners_pkey") < kTurns / 4);
    CHECK(num_scans("rounds_pkey") < kTurns / 4);
    // Each when it is new, and once again.
    CHECK(num_scans("workers_by_name") < 2 * 8 + kTurns / 4);
    CHECK(database.Run("SELECT count(*) FROM workers WHERE num_succeeded = " + std::to_string(kTurns - 1)) == "8");
  }
  SECTION("and by their keys, where somebody has moved them") {
    report.reset();
    int turn = kTurns;
    for (const std::string table : {"owners", "rounds", "workers"}) {
      database.Run("VACUUM FULL " + table);
      FlightsOfBatch(*store, 8, turn++);
    }
    // Backwards, so that others lie where they lay.
    database.Run("CREATE INDEX backwards ON workers (name DESC)");
    database.Run("CLUSTER workers USING backwards");
    FlightsOfBatch(*store, 8, turn);
    CHECK(database.Run("SELECT count(*) FROM workers WHERE num_succeeded = " + std::to_string(turn)) == "8");
  }
}

// --- Owners --------------------------------------------------------------------------------------

TEST_CASE("Of two servers one owns the store, until it is silent for too long") {
  PostgresDatabase database;
  auto first = Open(database, {.name = "server-1"});
  REQUIRE(See(first->tasks(), "w1").ok());
  const auto refused = TryOpen(database, {.name = "server-2"});
  CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(refused.status().message().find("server server-1 at server-1:7433 owns the store") != std::string_view::npos);
  REQUIRE(See(first->tasks(), "w2").ok());

  // It says that it lives without a commit, too.
  database.Run("UPDATE owners SET heartbeat_time = heartbeat_time - interval '1 hour'");
  REQUIRE(first->connection().Run(first->session().tenure().Beat()).ok());
  CHECK_FALSE(TryOpen(database, {.name = "server-2", .takeover_after = absl::Minutes(10)}).ok());
  auto second = Open(database, {.name = "server-2", .takeover_after = absl::ZeroDuration()});
  CHECK(second->tasks().ListWorkers({})->size() == 2);
  REQUIRE(See(second->tasks(), "w3").ok());
}

TEST_CASE("Who waits for its turn hears which server owns the store, and how to reach it") {
  PostgresDatabase database;
  auto first = Ok(PostgresTaskStore::Open(
      {.connection = {.conninfo = database.conninfo()},
       .owner = {.server = "server-1",
                 .address = "0.0.0.0:7433",
                 .peer = {.address = "[::]:7435", .certificate = "a certificate", .secret = "a secret"}}}));
  std::vector<PostgresOwner::Waiting> looks;
  const std::string forget = "UPDATE servers SET heartbeat_time = '2020-01-01' WHERE id = 'server-2'";
  const std::string seen = "SELECT heartbeat_time > '2020-01-02' FROM servers WHERE id = 'server-2'";
  std::string is_seen;
  const auto second = PostgresTaskStore::Open({.connection = {.conninfo = database.conninfo()},
                                               .owner = {.server = "server-2",
                                                         .wait =
                                                             [&](const auto& waiting) {
                                                               looks.push_back(waiting);
                                                               if (looks.size() == 1) database.Run(forget);
                                                               is_seen = database.Run(seen);
                                                               return looks.size() < 25;
                                                             },
                                                         .look_interval = absl::ZeroDuration()}});
  CHECK(second.status().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(looks.size() == 25);
  for (const PostgresOwner::Waiting& look : looks) {
    CHECK(look.why.code() == absl::StatusCode::kNotFound);
    // By the Unix socket: it is this machine.
    CHECK(look.why.message().find("server server-1 at 127.0.0.1:7433 owns the store") != std::string_view::npos);
    REQUIRE(look.owner);
    CHECK(look.owner->server == "server-1");
    CHECK(look.owner->peer ==
          PeerAddress{.address = "127.0.0.1:7435", .certificate = "a certificate", .secret = "a secret"});
  }
  // It was seen to live, and has left.
  CHECK(is_seen == "t");
  CHECK(database.Run("SELECT count(*) FROM servers WHERE id = 'server-2'") == "0");
}

TEST_CASE("Who waits for its turn has connected and read ahead by then, also where a connection broke meanwhile") {
  PostgresDatabase database;
  auto first =
      Ok(PostgresTaskStore::Open({.connection = {.conninfo = database.conninfo()}, .owner = {.server = "s-1"}}));
  const TemporaryDirectory directory;
  SystemRandom random;
  // Of how many connections that was the last question; a look for its turn comes after it.
  const std::string warm =
      "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT FROM %rounds "
      "LIMIT 0;%'";
  std::string num_warm;
  int num_looks = 0;
  bool was_taken = false;
  const auto second = OpenPostgresStore(
      {.conninfo = database.conninfo(),
       .directory = directory.path(),
       .wait =
           [&](const PostgresOwner::Waiting&) {
             CHECK_FALSE(was_taken);
             num_warm += database.Run(warm);
             ++num_looks;
             if (num_looks == 2) {
               database.Run(
                   "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query LIKE '%-- owner%' "
                   "AND pid <> pg_backend_pid()");
             }
             if (num_looks == 4) REQUIRE(first->Release().ok());
             return num_looks < 20;
           },
       .taken = [&](const PostgresOwner::Tenure&) { was_taken = true; }},
      random);
  INFO(second.status().ToString());
  REQUIRE(second.ok());
  CHECK(was_taken);
  CHECK(num_warm == "2121");
}

TEST_CASE("Who waits for its turn has it as soon as the owner gives the store back, and again after the database") {
  PostgresDatabase database;
  const bool is_cut_off = GENERATE(false, true);
  INFO("the connection of the one that waits is cut: " << is_cut_off);
  auto first = Open(database, {.name = "server-1"});
  std::atomic<int> num_looks = 0;
  absl::StatusOr<std::unique_ptr<PostgresTaskStore>> second = absl::UnknownError("never opened");
  std::thread waiting([&] {
    second = PostgresTaskStore::Open({.connection = {.conninfo = database.conninfo()},
                                      .owner = {.server = "server-2",
                                                .takeover_after = absl::Hours(1),
                                                .wait = [&](const auto&) { return ++num_looks < 5; },
                                                .look_interval = absl::Hours(1)}});
  });
  WaitUntil("the second server waits", absl::Seconds(10), [&] { return num_looks == 1; });
  if (is_cut_off) {
    database.Run(
        fmt::format("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                    "AND pid NOT IN (pg_backend_pid(), {})",
                    first->connection().backend_pid()));
    // It looks at once, and listens again.
    WaitUntil("it has looked again", absl::Seconds(10), [&] { return num_looks == 2; });
  }
  REQUIRE(first->Release().ok());
  waiting.join();
  INFO(second.status().ToString());
  REQUIRE(second.ok());
  CHECK(See((*second)->tasks(), "w1").ok());
}

TEST_CASE("Who may not take a store leaves it to others, free or not, until it may") {
  PostgresDatabase database;
  auto first = Open(database, {.name = "server-1"});
  int num_looks = 0;
  std::vector<std::string> owners;
  const auto wait = [&](const PostgresOwner::Waiting& waiting) {
    owners.push_back(waiting.owner ? waiting.owner->server : "nobody");
    CHECK(absl::IsNotFound(waiting.why));
    if (++num_looks == 2) CHECK(first->Release().ok());
    if (num_looks == 4) {
      // Another one takes it meanwhile.
      const auto third = Open(database, {.name = "server-3"});
      CHECK(See(third->tasks(), "w3").ok());
      CHECK(third->Release().ok());
    }
    return num_looks < 10;
  };
  const auto second = PostgresTaskStore::Open({.connection = {.conninfo = database.conninfo()},
                                               .owner = {.server = "server-2",
                                                         .takeover_after = absl::Hours(1),
                                                         .wait = wait,
                                                         .may_take = [&] { return num_looks >= 6; },
                                                         .look_interval = absl::ZeroDuration()}});
  INFO(second.status().ToString());
  REQUIRE(second.ok());
  CHECK(num_looks == 6);
  CHECK(owners == std::vector<std::string>{"server-1", "server-1", "nobody", "nobody", "nobody", "nobody"});
  CHECK(See((*second)->tasks(), "w2").ok());
}

TEST_CASE("A server of a newer build migrates when its turn has come, and an older one then takes the store no more") {
  PostgresDatabase database;
  const std::span<const Migration> known = PostgresMigrations();
  std::vector<Migration> migrations(known.begin(), known.end());
  const int newer = migrations.back().version + 1;
  migrations.push_back({.version = newer,
                        .minimum_compatible_version = newer,
                        .name = "newer",
                        .sql = "ALTER TABLE workers ADD COLUMN words BYTEA NOT NULL DEFAULT ''"});
  const std::string schema = "SELECT version FROM schema";
  const auto waiting = [&](const std::string& name, auto wait) {
    return PostgresTaskStore::Options{
        .connection = {.conninfo = database.conninfo()},
        .owner = {
            .server = name, .takeover_after = absl::Hours(1), .wait = wait, .look_interval = absl::ZeroDuration()}};
  };
  auto older = Open(database, {.name = "older"});
  // Two wait for it, of which one is as old. The older one has its turn last.
  absl::StatusOr<std::unique_ptr<PostgresTaskStore>> second = absl::UnknownError("never opened");
  int num_looks = 0;
  const auto first_wait = [&](const PostgresOwner::Waiting&) {
    CHECK(database.Run(schema) == std::to_string(newer - 1));
    CHECK(See(older->tasks(), fmt::format("w{}", num_looks)).ok());
    if (++num_looks == 3) REQUIRE(older->Release().ok());
    return num_looks < 10;
  };
  const auto second_wait = [&](const PostgresOwner::Waiting&) {
    if (second.ok()) return false;
    PostgresTaskStore::Options options = waiting("newer", first_wait);
    options.migrations = migrations;
    second = PostgresTaskStore::Open(options);
    INFO(second.status().ToString());
    REQUIRE(second.ok());
    CHECK(database.Run(schema) == std::to_string(newer));
    // What the older one wrote is there.
    CHECK(database.Run("SELECT count(*) FROM workers WHERE words = ''") == "3");
    REQUIRE((*second)->Release().ok());
    return true;
  };
  const absl::Status third = PostgresTaskStore::Open(waiting("as-old", second_wait)).status();
  CHECK(third.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(third.message().find(fmt::format("has schema version {0}, which needs at least version {0}", newer)) !=
        std::string_view::npos);
  // It owns nothing: the next newer one need not wait.
  CHECK(database.Run("SELECT server_epoch FROM owners") == "0");
  CHECK(TryOpen(database, {.name = "as-old"}).status() == third);
}

TEST_CASE(
    "A migration that takes longer than a silent owner is waited for is not cut off, and its server owns the store") {
  PostgresDatabase database;
  REQUIRE(Open(database, {.name = "older"})->Release().ok());
  const std::span<const Migration> known = PostgresMigrations();
  std::vector<Migration> migrations(known.begin(), known.end());
  const int newer = migrations.back().version + 1;
  migrations.push_back(
      {.version = newer, .minimum_compatible_version = newer, .name = "slow", .sql = "SELECT pg_sleep(3)"});
  const auto options = [&](const std::string& name, std::function<bool(const PostgresOwner::Waiting&)> wait) {
    return PostgresTaskStore::Options{
        .connection = {.conninfo = database.conninfo(), .lock_timeout = absl::Milliseconds(500)},
        .owner = {.server = name,
                  .takeover_after = absl::Seconds(1),
                  .wait = std::move(wait),
                  .look_interval = absl::ZeroDuration()},
        .migrations = migrations};
  };
  absl::StatusOr<std::unique_ptr<PostgresTaskStore>> first = absl::UnknownError("never opened");
  std::atomic<bool> is_open = false;
  std::thread migrating([&] {
    first = PostgresTaskStore::Open(options("first", nullptr));
    is_open = true;
  });
  WaitUntil("the first server owns the store", absl::Seconds(10),
            [&] { return database.Run("SELECT server FROM owners WHERE server_epoch > 0") != ""; });
  // It looks as often as it can.
  int num_looks = 0;
  const auto second = PostgresTaskStore::Open(options("second", [&](const PostgresOwner::Waiting&) {
    ++num_looks;
    return !is_open;
  }));
  migrating.join();
  INFO(first.status().ToString() << "; the second: " << second.status().ToString());
  REQUIRE(first.ok());
  CHECK_FALSE(second.ok());
  CHECK(num_looks > 2);
  CHECK(See((*first)->tasks(), "w1").ok());
  CHECK(database.Run("SELECT version FROM schema") == std::to_string(newer));
}

TEST_CASE("The servers of a database are listed, with the one that owns it, until they leave or are long forgotten") {
  PostgresDatabase database;
  auto first = Open(database, {.name = "server-1"});
  database.Run(
      "INSERT INTO servers (id, epoch, heartbeat_time, start_time, version, address, peer_address, peer_certificate, "
      "peer_secret) VALUES ('server-0', 1, clock_timestamp() - interval '2 days', clock_timestamp() - interval '9 "
      "days', "
      "'0.1', 'long gone', '', '', ''), ('server-3', 1, clock_timestamp() - interval '1 hour', clock_timestamp() - "
      "interval '2 hours', '0.2', 'here:7433', '', '', '')");
  const std::vector<ServerRecord> listed = Ok(first->tasks().ListServers({}));
  REQUIRE(listed.size() == 3);
  CHECK(listed[0].name == "server-0");
  CHECK(listed[0].silent_for > absl::Hours(47));
  CHECK(listed[1].name == "server-1");
  CHECK(listed[1].address == "server-1:7433");
  CHECK(listed[1].is_owner);
  CHECK(listed[1].owner_for <= listed[1].up_for);
  CHECK(listed[1].up_for < absl::Minutes(1));
  CHECK(listed[1].silent_for < absl::Minutes(1));
  CHECK(listed[2].version == "0.2");
  CHECK_FALSE(listed[2].is_owner);
  CHECK(listed[2].up_for - listed[2].silent_for > absl::Minutes(59));

  CHECK(Ok(first->tasks().ListServers({.after = "server-0", .limit = 1})).at(0).name == "server-1");
  CHECK(Ok(first->tasks().ListServers({.after = "server-0", .limit = 1})).size() == 1);

  // The next that joins forgets who was silent for more than a day; and who gives the store back, leaves.
  REQUIRE(first->Release().ok());
  auto second = Open(database, {.name = "server-2"});
  std::vector<std::string> names;
  for (const ServerRecord& server : Ok(second->tasks().ListServers({}))) names.push_back(server.name);
  CHECK(names == std::vector<std::string>{"server-2", "server-3"});
}

TEST_CASE("A look at the tokens of another server's store tells what has changed") {
  PostgresDatabase database;
  auto store = Open(database);
  const auto watch = Ok(PostgresTokenWatch::Open({.conninfo = database.conninfo()}));
  const auto look = [&] { return Ok(watch->Look()); };
  REQUIRE(look());
  CHECK_FALSE(look());
  CHECK(watch->has_own_schema());
  const auto create = [&](const std::string& name, std::vector<std::string> populations) {
    REQUIRE(store->tasks().BeginBatch().ok());
    REQUIRE(store->tasks()
                .CreateToken({.id = TokenId(name),
                              .request_id = "make " + name,
                              .name = name,
                              .hash = Sha256Hex(name),
                              .roles = 2,
                              .populations = std::move(populations),
                              .create_time = kNow})
                .ok());
    REQUIRE(store->tasks().CommitBatch().ok());
  };
  create("anna", {"north", "south"});
  create("berta", {});
  auto tokens = look();
  REQUIRE(tokens);
  REQUIRE(tokens->size() == 2);
  CHECK(tokens->at(0).name == "anna");
  CHECK(tokens->at(0).populations == std::vector<std::string>{"north", "south"});
  CHECK(tokens->at(0).hash == Sha256Hex("anna"));
  CHECK(tokens->at(1).populations.empty());
  CHECK_FALSE(look());
  REQUIRE(store->tasks().BeginBatch().ok());
  REQUIRE(store->tasks().RevokeToken({.token = TokenId("anna"), .now = kNow}).ok());
  REQUIRE(store->tasks().CommitBatch().ok());
  tokens = look();
  REQUIRE(tokens);
  CHECK(tokens->at(0).revoke_time == kNow);
  CHECK_FALSE(look());
  REQUIRE(store->tasks().BeginBatch().ok());
  REQUIRE(store->tasks().DeleteToken(TokenId("berta")).ok());
  REQUIRE(store->tasks().CommitBatch().ok());
  tokens = look();
  REQUIRE(tokens);
  CHECK(tokens->size() == 1);
  // It connects again.
  database.Run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
  CHECK(watch->Look().status().code() == absl::StatusCode::kUnavailable);
  CHECK_FALSE(look());
  database.Run("UPDATE schema SET version = version + 1");
  CHECK_FALSE(look());
  CHECK_FALSE(watch->has_own_schema());
}

TEST_CASE("A server that was taken over changes nothing any more, and hears of it with its next batch") {
  PostgresDatabase database;
  auto first = Open(database, {.name = "server-1"});
  SECTION("by another server") {}
  SECTION("in the middle of a batch that has asked the database") {
    REQUIRE(first->tasks().BeginBatch().ok());
    REQUIRE(first->tasks().SawWorker({.name = WorkerName("w1"), .population = "default", .now = kNow}).ok());
  }
  const bool is_in_batch = first->connection().num_queued() > 0;
  auto second = Open(database, {.name = "server-2", .takeover_after = absl::ZeroDuration()});
  REQUIRE(See(second->tasks(), "w2").ok());
  const absl::Status status = is_in_batch ? first->tasks().CommitBatch() : See(first->tasks(), "w1");
  INFO(status.ToString());
  CHECK(absl::IsAborted(status));
  CHECK(status.message().find("another server has taken over") != std::string_view::npos);
  CHECK(absl::IsAborted(first->tasks().BeginBatch()));
  CHECK(absl::IsAborted(first->tasks().ListWorkers({}).status()));
  CHECK(Workers(database) == "w2");
  REQUIRE(See(second->tasks(), "w3").ok());
  // It may come back as a new one.
  first.reset();
  first = Open(database, {.name = "server-1", .takeover_after = absl::ZeroDuration()});
  REQUIRE(See(first->tasks(), "w4").ok());
  CHECK(absl::IsAborted(See(second->tasks(), "w5")));
  CHECK(Workers(database) == "w2 w3 w4");
}

TEST_CASE("A server that starts again shuts out what is left of its former process") {
  PostgresDatabase database;
  auto former = Open(database);
  REQUIRE(See(former->tasks(), "w1").ok());
  auto now = Open(database);
  CHECK(absl::IsAborted(See(former->tasks(), "w2")));
  REQUIRE(See(now->tasks(), "w3").ok());
  CHECK(Workers(database) == "w1 w3");
}

// `what` in a process of its own; its result is the exit code.
class InProcess {
 public:
  explicit InProcess(const std::function<int()>& what) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(CodeOf(what));
  }
  int Wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  bool HasEnded() const {
    siginfo_t info = {};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
  }

 private:
  // A failed REQUIRE must not take the child into the tests that follow.
  static int CodeOf(const std::function<int()>& what) {
    try {
      return what();
    } catch (...) {
      return 99;
    }
  }

  const pid_t pid_;
};

// A commit that saw worker `name` waits for so long behind its fence, before its COMMIT or in it.
void SlowDown(PostgresDatabase& database, const std::string& name, double seconds, bool in_commit) {
  database.Run(fmt::format(R"(
      CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF new.name = '{}' THEN PERFORM pg_sleep({}); END IF;
        RETURN new; END $$;
      CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON workers {} FOR EACH ROW EXECUTE FUNCTION slow())",
                           name, seconds, in_commit ? "DEFERRABLE INITIALLY DEFERRED" : ""));
}

void WaitForSleep(PostgresDatabase& database) {
  WaitUntil("the commit is on its way", absl::Seconds(20),
            [&] { return database.Run("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") != "0"; });
}

TEST_CASE("A takeover in the middle of a commit waits for it, and has what it committed") {
  PostgresDatabase database;
  Open(database).reset();
  SlowDown(database, "w1", 1, true);
  InProcess first([&] {
    auto store = TryOpen(database);
    return store.ok() && See((*store)->tasks(), "w1").ok() ? 0 : 1;
  });
  WaitForSleep(database);
  auto second = Open(database, {.name = "server-2", .takeover_after = absl::ZeroDuration()});
  CHECK(second->tasks().ListWorkers({})->size() == 1);
  CHECK(first.Wait() == 0);
  REQUIRE(See(second->tasks(), "w2").ok());
  CHECK(Workers(database) == "w1 w2");
}

TEST_CASE("A takeover from a commit that stands still ends it, and nothing of it is there") {
  PostgresDatabase database;
  Open(database).reset();
  SlowDown(database, "w1", 60, false);
  InProcess first([&] {
    auto store = TryOpen(database);
    if (!store.ok()) return 1;
    // It may be back before the other has taken the store: then it only hears that its batch never was.
    const absl::Status status = See((*store)->tasks(), "w1");
    return absl::IsAborted(status) || absl::IsUnavailable(status) ? 0 : 1;
  });
  WaitForSleep(database);
  auto second = Open(
      database, {.name = "server-2", .takeover_after = absl::ZeroDuration(), .lock_timeout = absl::Milliseconds(200)});
  CHECK(second->tasks().ListWorkers({})->empty());
  REQUIRE(See(second->tasks(), "w2").ok());
  CHECK(first.Wait() == 0);
  CHECK(Workers(database) == "w2");
}

TEST_CASE("An owner that stands still in the middle of a flight is replaced soon after it was to be heard of") {
  PostgresDatabase database;
  auto first = Open(database);
  REQUIRE(See(first->tasks(), "w1").ok());
  // What a process that is stopped leaves behind, from the database's side: a lock, and a client that says no more.
  PostgresConnection& connection = first->connection();
  connection.Queue({.sql = "-- begin\nBEGIN"});
  connection.Queue({.sql = "-- hold\nUPDATE owners SET batch = batch"});
  REQUIRE(connection.Fly().ok());
  const SystemClock clock;
  const absl::Time start = clock.Now();
  auto second = Open(database, {.name = "server-2", .takeover_after = absl::ZeroDuration()});
  CHECK(clock.Now() - start < absl::Seconds(3));
  CHECK(second->tasks().ListWorkers({})->size() == 1);
  CHECK(absl::IsAborted(See(first->tasks(), "w2")));
  REQUIRE(See(second->tasks(), "w3").ok());
  CHECK(Workers(database) == "w1 w3");
}

// --- Commits whose answer was lost ---------------------------------------------------------------

TEST_CASE("A COMMIT that the server gave up on is settled") {
  PostgresDatabase database;
  SECTION("as what it was, if the database finished it or found its client gone") {
    auto store = Open(database, {.timeout = absl::Milliseconds(600), .lock_timeout = absl::Milliseconds(300)});
    SlowDown(database, "w1", 0.8, true);
    const absl::Status status = See(store->tasks(), "w1");
    INFO(status.ToString());
    CHECK((status.ok() || absl::IsUnavailable(status)));
    REQUIRE(See(store->tasks(), "w2").ok());
    CHECK(Workers(database) == (status.ok() ? "w1 w2" : "w2"));
  }
  SECTION("as never happened, if the database had to be told to end it") {
    auto store = Open(database, {.timeout = absl::Milliseconds(400), .lock_timeout = absl::Milliseconds(200)});
    SlowDown(database, "w1", 60, true);
    CHECK(absl::IsUnavailable(See(store->tasks(), "w1")));
    REQUIRE(See(store->tasks(), "w2").ok());
    CHECK(Workers(database) == "w2");
    CHECK(store->tasks().ListWorkers({})->size() == 1);
  }
}

// From here on commits wait for a standby that there is not. PostgreSQL's checkpointer tells them so, in its own time.
void HoldCommits(PostgresDatabase& database) {
  const std::string held = " FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
  database.Run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
  database.Run("SELECT pg_reload_conf()");
  WaitUntil("commits are held", absl::Seconds(20), [&] {
    InProcess probe([&] {
      database.Run("SELECT pg_logical_emit_message(true, 'probe', '')");
      return 0;
    });
    bool is_held = false;
    WaitUntil("a commit ends or is held", absl::Seconds(20), [&] {
      is_held = database.Run("SELECT count(*)" + held) != "0";
      return is_held || probe.HasEnded();
    });
    if (is_held) database.Run("SELECT pg_cancel_backend(pid)" + held);
    return probe.Wait() == 0 && is_held;
  });
}

TEST_CASE("A COMMIT whose connection is killed before its answer is settled as what it was") {
  PostgresCluster cluster;
  PostgresDatabase database(cluster);
  auto store = Open(database);
  const auto kill = [&](const std::string& where) {
    WaitUntil("the commit is on its way", absl::Seconds(20),
              [&] { return database.Run("SELECT count(*) FROM pg_stat_activity WHERE " + where) != "0"; });
    database.Run("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE " + where);
  };
  SECTION("which had happened: it is durable, and waits for its synchronous standby") {
    HoldCommits(database);
    InProcess killer([&] {
      kill("wait_event = 'SyncRep'");
      database.Run("ALTER SYSTEM RESET synchronous_standby_names");
      database.Run("SELECT pg_reload_conf()");
      return 0;
    });
    const absl::Status status = See(store->tasks(), "w1");
    REQUIRE(killer.Wait() == 0);
    INFO(status.ToString());
    CHECK(status.ok());
    REQUIRE(See(store->tasks(), "w2").ok());
    CHECK(Workers(database) == "w1 w2");
  }
  SECTION("which had not") {
    SlowDown(database, "w1", 60, true);
    InProcess killer([&] {
      kill("wait_event = 'PgSleep'");
      return 0;
    });
    CHECK(absl::IsUnavailable(See(store->tasks(), "w1")));
    CHECK(killer.Wait() == 0);
    REQUIRE(See(store->tasks(), "w2").ok());
    CHECK(Workers(database) == "w2");
  }
}

TEST_CASE("A database that is gone for a while costs batches, and not the store") {
  PostgresCluster cluster;
  PostgresDatabase database(cluster);
  auto store = Open(database, {.attempts_max = 3});
  REQUIRE(See(store->tasks(), "w1").ok());
  SECTION("between two batches") {
    cluster.Stop("immediate");
    cluster.Start();
    // It learns of it by asking.
    CHECK(store->tasks().ListTokens({}).status().code() == absl::StatusCode::kUnavailable);
    REQUIRE(See(store->tasks(), "w2").ok());
    CHECK(Workers(database) == "w1 w2");
  }
  SECTION("and comes back while a batch waits for what became of it") {
    cluster.Stop("immediate");
    cluster.Start();
    CHECK(absl::IsUnavailable(See(store->tasks(), "w2")));
    REQUIRE(See(store->tasks(), "w2").ok());
    CHECK(Workers(database) == "w1 w2");
  }
  SECTION("or for longer than one waits for it") {
    cluster.Stop("fast");
    CHECK(absl::IsAborted(See(store->tasks(), "w2")));
    CHECK(absl::IsAborted(store->tasks().BeginBatch()));
    CHECK(TryOpen(database).status().code() == absl::StatusCode::kUnavailable);
    cluster.Start();
    store = Open(database);
    REQUIRE(See(store->tasks(), "w3").ok());
    CHECK(Workers(database) == "w1 w3");
  }
}

TEST_CASE("A database that has lost commits, or that somebody wrote to, is told as damage") {
  PostgresDatabase database;
  auto store = Open(database);
  REQUIRE(See(store->tasks(), "w1").ok());
  SECTION("a standby without the newest commits") {
    database.Run("UPDATE owners SET batch = batch - 1");
    database.Run(fmt::format("SELECT pg_terminate_backend({}, 5000)", store->connection().backend_pid()));
    CHECK_FALSE(store->tasks().ListTokens({}).ok());
    CHECK(absl::IsDataLoss(See(store->tasks(), "w2")));
    CHECK(absl::IsAborted(See(store->tasks(), "w2")));
  }
  SECTION("a task in a state that nobody put it into") {
    REQUIRE(store->tasks().BeginBatch().ok());
    REQUIRE(store->tasks().CreateRound(ARound("r", 3)).ok());
    REQUIRE(store->tasks().CommitBatch().ok());
    database.Run("UPDATE tasks SET num_attempts = 7 WHERE task_key & 1 = 1");
    REQUIRE(store->tasks().BeginBatch().ok());
    REQUIRE(store->tasks()
                .LeaseTasks({.round = RoundId("r"),
                             .worker = WorkerName("w1"),
                             .poll_id = "poll",
                             .tokens = {LeaseToken("t1"), LeaseToken("t2"), LeaseToken("t3")},
                             .now = kNow,
                             .expire_time = kNow + absl::Seconds(30),
                             .attempt_deadline_time = kNow + absl::Minutes(10)})
                .ok());
    const absl::Status status = store->tasks().CommitBatch();
    CHECK(absl::IsDataLoss(status));
    CHECK(status.message().find("put_tasks") != std::string_view::npos);
    CHECK(database.Run("SELECT count(*) FROM tasks WHERE state <> 1") == "0");
    CHECK(store->tasks().CountTasks(RoundId("r"))->queued == 3);
  }
}

}  // namespace
}  // namespace sheaf
