// A server whose store is a real PostgreSQL database: either of them is killed, or stands still, in the middle of
// rounds.
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>

#include "proto/methods.h"
#include "proto/time.h"
#include "sdk/cpp/client/blob_client.h"
#include "sdk/cpp/client/round_client.h"
#include "storage/postgres/postgres_connection.h"
#include "tests/e2e/rounds.h"
#include "tests/postgres/postgres_cluster.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

// As the server is told; over TCP, as from another machine.
std::string StoreOf(PostgresDatabase& database) { return database.cluster().TcpConninfo(database.name()); }

FederationOptions On(PostgresDatabase& database) { return {.server_arguments = {"--store", StoreOf(database)}}; }

std::vector<std::string> SecondServer(PostgresDatabase& database, const std::string& directory) {
  return {BinaryPath("sheafd"), "--listen",          "127.0.0.1:0", "--data-dir",     directory + "/second",
          "--port-file",        directory + "/port", "--store",     StoreOf(database)};
}

ChildProcess StartSecond(PostgresDatabase& database, const std::string& directory,
                         const std::vector<std::string>& more) {
  std::vector<std::string> argv = SecondServer(database, directory);
  argv.insert(argv.end(), more.begin(), more.end());
  absl::StatusOr<ChildProcess> child = ChildProcess::Start({.argv = std::move(argv), .log_path = directory + "/log"});
  INFO(child.status().ToString());
  REQUIRE(child.ok());
  return *std::move(child);
}

// A server that is started while another has the database, and forwards calls to it.
class Waiting {
 public:
  explicit Waiting(PostgresDatabase& database, const std::vector<std::string>& more = {})
      : server_(StartSecond(database, scratch_.path(), more)) {
    WaitUntil("the second server forwards calls", absl::Seconds(10), [&] { return Says("forwarding calls"); });
    CHECK(Says("owns the store, and was heard of"));
    CHECK_FALSE(Owns());
  }
  ChildProcess& server() { return server_; }
  bool Owns() const { return Says(", data in "); }
  std::unique_ptr<Transport> Connect() const {
    std::ifstream port(scratch_.path() + "/port");
    std::string address;
    std::getline(port, address);
    return OpenTransport(address, {.own_connection = true});
  }

 private:
  static constexpr int kLogLines = 20;
  bool Says(std::string_view words) const { return server_.LogTail(kLogLines).find(words) != std::string::npos; }

  const TemporaryDirectory scratch_ = ScratchDirectory();
  ChildProcess server_;
};

// What a server says that does not start.
CommandRun TryToStart(PostgresDatabase& database, const std::string& directory) {
  return RunCommand(
      {BinaryPath("sheafd"), "--listen", "127.0.0.1:0", "--data-dir", directory, "--store", StoreOf(database)},
      {.timeout = absl::Seconds(20)});
}

TEST_CASE("On PostgreSQL, whoever is killed in the middle of rounds: what was acknowledged is counted, each once") {
  PostgresCluster cluster;
  PostgresDatabase database(cluster);
  Federation federation(On(database));
  for (int i = 0; i < 3; ++i) federation.StartWorker(fmt::format("w{}", i), {"--concurrency", "4"});
  constexpr int kTasks = 60;
  const auto run = [&](const OneHotOptions& options, const std::function<void()>& fault) {
    const std::string round = StartRound(federation, OneHotRound(options));
    const auto num_done = [&] { return RoundOf(federation.transport(), round).tasks().succeeded(); };
    WaitUntil("a quarter is done", absl::Seconds(30), [&] { return num_done() >= kTasks / 4; });
    fault();
    const v1::Round ended = Await(federation, round, absl::Seconds(60));
    CHECK(ended.aggregate().num_contributions() == kTasks);
    CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(kTasks, 1));
  };
  const OneHotOptions small = {.num_tasks = kTasks, .work = absl::Milliseconds(100), .lease = absl::Seconds(10)};
  // Too large for a Sync: they are uploaded.
  OneHotOptions large = small;
  large.size = 40'000;
  OneHotOptions ephemeral = small;
  ephemeral.durability = v1::EPHEMERAL;
  for (const OneHotOptions& options : {small, large, ephemeral}) {
    run(options, [&] {
      federation.KillServer();
      federation.StartServer();
    });
  }
  for (const OneHotOptions& options : {small, large}) {
    run(options, [&] {
      cluster.Stop("immediate");
      CHECK_FALSE(federation.server().WaitForEnd(absl::Seconds(1)));
      cluster.Start();
      const absl::Time started = federation.clock().Now();
      Await(federation, StartRound(federation, OneHotRound({.num_tasks = 1})));
      const absl::Duration without = federation.clock().Now() - started;
      CHECK(without < absl::Seconds(2));
      Measured("it served again {} after the database", absl::FormatDuration(without));
    });
    run(options,
        [&] { database.Run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"); });
  }
  CHECK(federation.StopServer() < absl::Seconds(10));
  federation.StartServer();
  const CommandRun info = federation.Sheaf({"server", "info"});
  CHECK_THAT(info.out, Contains("postgresql"));
}

TEST_CASE("On a database that fails over to its standby, whatever was acknowledged is counted, each once") {
  // 20 and more are for a long look.
  const char* const num_failovers = std::getenv("SHEAF_FAILOVERS");
  PostgresCluster cluster;
  PostgresDatabase database(cluster);
  cluster.AddStandby();
  Federation federation({.server_arguments = {"--store", cluster.EitherConninfo(database.name())}});
  for (int i = 0; i < 3; ++i) federation.StartWorker(fmt::format("w{}", i), {"--concurrency", "4"});
  constexpr int kTasks = 60;
  std::vector<absl::Duration> without;
  for (int i = 0; i < (num_failovers == nullptr ? 2 : std::atoi(num_failovers)); ++i) {
    const std::string round =
        StartRound(federation, OneHotRound({.num_tasks = kTasks, .work = absl::Milliseconds(100)}));
    const auto num_done = [&] { return RoundOf(federation.transport(), round).tasks().succeeded(); };
    WaitUntil("a quarter is done", absl::Seconds(30), [&] { return num_done() >= kTasks / 4; });
    cluster.FailOver();
    const absl::Time promoted = federation.clock().Now();
    const std::string next = StartRound(federation, OneHotRound({.num_tasks = 1}));
    without.push_back(federation.clock().Now() - promoted);
    CHECK(without.back() < absl::Seconds(2));
    CHECK(Await(federation, round, absl::Seconds(60)).aggregate().num_contributions() == kTasks);
    CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(kTasks, 1));
    Await(federation, next);
    cluster.AddStandby();
  }
  Measured("{} times; served again {} after the promotion at most", without.size(),
           absl::FormatDuration(*std::max_element(without.begin(), without.end())));
}

TEST_CASE("Another server takes a database over when its owner was killed, and not before") {
  PostgresDatabase database;
  const TemporaryDirectory scratch = ScratchDirectory();
  std::string round;
  {
    Federation first(On(database));
    round = StartRound(first, OneHotRound({.num_tasks = 10, .lease = absl::Seconds(2)}));
    const v1::SyncResponse granted = SyncOnce(first.transport(), APoll("hand", "poll-1", 4));
    v1::SyncRequest results = APoll("hand", "poll-2", 0);
    for (const v1::Lease& lease : granted.leases()) AddResult(lease, results);
    CHECK(VerdictsOf(SyncOnce(first.transport(), results)) == std::vector<std::string>(4, "ACCEPTED"));
    // It has a name of its own, and does not wait.
    std::vector<std::string> token = SecondServer(database, scratch.path());
    token.emplace_back("--create-operator-token");
    const CommandRun second = RunCommand(token, {.timeout = absl::Seconds(20)});
    CHECK(second.exit_code == 1);
    CHECK_THAT(second.err, Contains("owns the store") && Contains("127.0.0.1"));
    first.KillServer();
  }
  // It is heard of for as long as it may be silent.
  const SystemClock clock;
  const absl::Time killed = clock.Now();
  WaitUntil("the owner is given up", absl::Seconds(10), [&] { return clock.Now() - killed > absl::Seconds(5); });
  Federation second(On(database));
  second.StartWorker("w1", {"--concurrency", "4"});
  const v1::Round ended = Await(second, round);
  CHECK(ended.aggregate().num_contributions() == 10);
  CHECK(CountsOf(second.transport(), round) == std::vector<int64_t>(10, 1));
}

TEST_CASE(
    "A server that waits for its turn has the database at once when its owner stops, and soon when it was killed") {
  PostgresDatabase database;
  const SystemClock clock;
  for (const bool is_killed : {false, true}) {
    Federation first(On(database));
    const std::string round = StartRound(first, OneHotRound({.num_tasks = 4, .lease = absl::Seconds(60)}));
    const v1::SyncResponse granted = SyncOnce(first.transport(), APoll("hand", "poll-1", 4));
    v1::SyncRequest results = APoll("hand", "", 0);
    for (const v1::Lease& lease : granted.leases()) AddResult(lease, results);
    v1::SyncRequest half = results;
    half.mutable_results()->DeleteSubrange(2, 2);
    CHECK(VerdictsOf(SyncOnce(first.transport(), half)) == std::vector<std::string>(2, "ACCEPTED"));

    Waiting second(database);
    const std::unique_ptr<Transport> transport = second.Connect();
    // Through the one that waits.
    CHECK(RoundOf(*transport, round).num_contributions() == 2);
    const v1::SyncRequest poll = APoll("idle", "poll-1", 1, absl::Seconds(30));
    v1::SyncResponse sent_away;
    std::promise<absl::Status> parked;
    transport->CallMethod(kSync.name, poll, &sent_away, {.timeout = absl::Seconds(40)},
                          [&parked](const absl::Status& status) { parked.set_value(status); });
    WaitUntil("it is parked", absl::Seconds(10), [&] {
      const auto listed = BlockingCall(*transport, kListWorkers, {});
      return listed.ok() && std::any_of(listed->workers().begin(), listed->workers().end(),
                                        [](const auto& worker) { return worker.is_parked(); });
    });
    const absl::Time end = clock.Now();
    if (is_killed) {
      first.KillServer();
    } else {
      CHECK(first.StopServer() < absl::Seconds(5));
    }
    const absl::Time ended = clock.Now();
    WaitUntil("the second server owns the store", absl::Seconds(20), [&] { return second.Owns(); });
    const absl::Duration without = clock.Now() - ended;
    const absl::Status answered = parked.get_future().get();
    // Whoever is idle need not wait for longer than the store does.
    if (!is_killed) CHECK((answered.ok() && FromProto(sent_away.next_max()) == absl::Milliseconds(500)));
    CHECK(without < (is_killed ? absl::Seconds(7) : absl::Seconds(1)));
    Measured("{}: ended within {}, and served again {} later", is_killed ? "SIGKILL" : "SIGTERM",
             absl::FormatDuration(ended - end), absl::FormatDuration(without));
    CHECK(RoundOf(*transport, round).num_contributions() == 2);
    CHECK_THAT(VerdictsOf(SyncOnce(*transport, results)), Catch::Contains(std::vector<std::string>(2, "ACCEPTED")));
    WaitUntil("the round ends", absl::Seconds(20), [&] { return RoundOf(*transport, round).state() == v1::SUCCEEDED; });
    CHECK(CountsOf(*transport, round) == std::vector<int64_t>(4, 1));
    kill(second.server().pid(), SIGTERM);
    CHECK(EndOf(second.server(), absl::Seconds(10)) == "exit code 0");
  }
}

TEST_CASE("A server that waits for its turn outlives the database, and ends when it is told to") {
  PostgresCluster cluster;
  PostgresDatabase database(cluster);
  Federation first(On(database));
  Waiting second(database);
  cluster.Stop("immediate");
  CHECK_FALSE(second.server().WaitForEnd(absl::Seconds(1)));
  kill(second.server().pid(), SIGTERM);
  CHECK(EndOf(second.server(), absl::Seconds(10)) == "exit code 0");
  CHECK_FALSE(second.Owns());
  cluster.Start();
}

TEST_CASE("A server that is drained while its database falls goes on when that is back, and so do its rounds") {
  PostgresCluster cluster;
  PostgresDatabase database(cluster);
  // The database is away for less.
  const std::string patient = "--takeover-after=10s";
  FederationOptions options = On(database);
  options.server_arguments.push_back(patient);
  Federation first(options);
  Waiting second(database, {patient});
  const auto at_second = second.Connect();
  const std::string round = StartRound(first, OneHotRound({.num_tasks = 4}));
  const auto owner_of = [](Transport& transport) {
    const auto listed = BlockingCall(transport, kListServers, {}, {.timeout = absl::Seconds(5)});
    if (!listed.ok() || listed->servers_size() != 2) return std::string();
    for (const v1::Server& server : listed->servers()) {
      if (server.is_owner()) return server.name();
    }
    return std::string();
  };
  const auto drain = [&](const std::string& server, bool undo) {
    v1::DrainServerRequest request;
    request.set_request_id(SystemRandom().Token(16));
    request.set_server(server);
    request.set_undo(undo);
    const auto drained = BlockingCall(*at_second, kDrainServer, request, {.timeout = absl::Seconds(5)});
    INFO(drained.status().ToString());
    return drained.ok();
  };
  // Before, in the middle of, and after what it does about it.
  for (const int millis : {0, 60, 120, 200}) {
    INFO(millis << " ms");
    std::string owner;
    WaitUntil("both are there", absl::Seconds(30), [&] { return !(owner = owner_of(*at_second)).empty(); });
    REQUIRE(drain(owner, false));
    ::poll(nullptr, 0, millis);
    cluster.Stop("immediate");
    ::poll(nullptr, 0, 500);
    cluster.Start();
    WaitUntil("the other one has it", absl::Seconds(30), [&] {
      const std::string now = owner_of(*at_second);
      return !now.empty() && now != owner;
    });
    CHECK(first.server().IsRunning());
    CHECK(second.server().IsRunning());
    for (Transport* const transport : {&first.transport(), at_second.get()}) {
      v1::GetRoundRequest get;
      get.set_round(round);
      WaitUntil("the round is there", absl::Seconds(10), [&] { return BlockingCall(*transport, kGetRound, get).ok(); });
    }
    REQUIRE(drain(owner, true));
  }
  first.StartWorker("w1", {"--concurrency", "4"});
  Await(first, round);
  CHECK(CountsOf(first.transport(), round) == std::vector<int64_t>(4, 1));
}

TEST_CASE("A server that stood still while another took its database over ends, and has changed nothing") {
  PostgresDatabase database;
  Federation first(On(database));
  const std::string round = StartRound(first, OneHotRound({.num_tasks = 4, .lease = absl::Seconds(60)}));
  const v1::SyncResponse granted = SyncOnce(first.transport(), APoll("hand", "poll-1", 4));
  v1::SyncRequest results = APoll("hand", "poll-2", 0);
  for (const v1::Lease& lease : granted.leases()) AddResult(lease, results);
  REQUIRE(results.results_size() == 4);
  kill(first.server().pid(), SIGSTOP);
  const SystemClock clock;
  const absl::Time stopped = clock.Now();
  WaitUntil("the owner is given up", absl::Seconds(10), [&] { return clock.Now() - stopped > absl::Seconds(6); });
  Federation second(On(database));
  kill(first.server().pid(), SIGCONT);
  // What it is told now it may not acknowledge.
  CHECK_FALSE(BlockingCall(first.impatient_transport(), kSync, results, {.timeout = absl::Seconds(20)}).ok());
  CHECK(EndOf(first.server(), absl::Seconds(20)) == "exit code 1");
  CHECK(RoundOf(second.transport(), round).num_contributions() == 0);
  CHECK(VerdictsOf(SyncOnce(second.transport(), results)) == std::vector<std::string>(4, "ACCEPTED"));
  CHECK(CountsOf(second.transport(), Await(second, round).id()) == std::vector<int64_t>(4, 1));
}

TEST_CASE("A server that reads what lives for longer than an owner may be silent keeps the store") {
  PostgresDatabase database;
  const std::vector<std::string> soon = {"--takeover-after", "1s"};
  FederationOptions options = On(database);
  options.server_arguments.insert(options.server_arguments.end(), soon.begin(), soon.end());
  Federation first(options);
  const std::string round = StartRound(first, OneHotRound({.num_tasks = 8, .lease = absl::Seconds(60)}));
  const v1::SyncResponse granted = SyncOnce(first.transport(), APoll("hand", "poll-1", 8));
  v1::SyncRequest results = APoll("hand", "poll-2", 0);
  for (const v1::Lease& lease : granted.leases()) AddResult(lease, results);
  const Waiting second(database, soon);
  const Waiting third(database, soon);
  const auto owner = [&] {
    return database.Run("SELECT encode(server, 'escape') || ' ' || server_epoch || ' ' || epoch FROM owners");
  };
  const std::string was = owner();

  // What a crash has left of a checkpoint, which whoever starts deletes: not as long as somebody has locked it.
  database.Run(fmt::format("INSERT INTO checkpoints VALUES ('{}', 'left', 0, '', 0)", round));
  const auto other = PostgresConnection::Open({.conninfo = database.conninfo()});
  REQUIRE(other.ok());
  REQUIRE((*other)->Run({.sql = "-- begin\nBEGIN"}).ok());
  REQUIRE((*other)->Run({.sql = "-- lock\nSELECT FROM checkpoints FOR UPDATE"}).ok());
  first.KillServer();
  WaitUntil("another server takes the store", absl::Seconds(10), [&] { return owner() != was; });
  const std::string now = owner();
  ::poll(nullptr, 0, 3'500);
  CHECK_FALSE((second.Owns() || third.Owns()));
  CHECK(owner() == now);

  REQUIRE((*other)->Run({.sql = "-- commit\nCOMMIT"}).ok());
  WaitUntil("it serves", absl::Seconds(10), [&] { return second.Owns() || third.Owns(); });
  CHECK(owner() == now);
  const std::unique_ptr<Transport> there = (second.Owns() ? second : third).Connect();
  CHECK(VerdictsOf(SyncOnce(*there, results)) == std::vector<std::string>(8, "ACCEPTED"));
}

TEST_CASE("A store that is moved into a database in the middle of a round goes on there, and counts each once") {
  PostgresDatabase database;
  Federation files;
  const std::string round = StartRound(files, OneHotRound({.num_tasks = 10, .lease = absl::Seconds(60)}));
  const v1::SyncResponse granted = SyncOnce(files.transport(), APoll("hand", "poll-1", 6));
  v1::SyncRequest results = APoll("hand", "poll-2", 0);
  for (const v1::Lease& lease : granted.leases()) AddResult(lease, results);
  REQUIRE(results.results_size() == 6);
  v1::SyncRequest most = results;
  most.mutable_results()->DeleteSubrange(4, 2);
  CHECK(VerdictsOf(SyncOnce(files.transport(), most)) == std::vector<std::string>(4, "ACCEPTED"));
  const std::vector<std::string> copy = {BinaryPath("sheaf"), "store", "copy", files.data_directory(),
                                         StoreOf(database)};
  const CommandRun too_early = RunCommand(copy, {.timeout = absl::Seconds(20)});
  CHECK(too_early.exit_code == 7);
  CHECK_THAT(too_early.err, Contains("works on the store in " + files.data_directory()));
  files.StopServer();
  const CommandRun copied = RunCommand(copy, {.timeout = absl::Seconds(60)});
  INFO(copied.err);
  CHECK(copied.exit_code == 0);
  CHECK_THAT(copied.out, Contains("1 live rounds among it; each row and payload was compared"));
  const CommandRun again = RunCommand(copy, {.timeout = absl::Seconds(20)});
  CHECK(again.exit_code == 7);
  CHECK_THAT(again.err, Contains("has a store already, with rows in ") && Contains("name an empty database"));

  Federation server(On(database));
  CHECK(RoundOf(server.transport(), round).num_contributions() == 4);
  // Of the leases that it was given there, two are still its own.
  CHECK_THAT(VerdictsOf(SyncOnce(server.transport(), results)),
             Catch::UnorderedEquals(
                 std::vector<std::string>{"DUPLICATE", "DUPLICATE", "DUPLICATE", "DUPLICATE", "ACCEPTED", "ACCEPTED"}));
  server.StartWorker("w1", {"--concurrency", "4"});
  const v1::Round ended = Await(server, round);
  CHECK(ended.aggregate().num_contributions() == 10);
  CHECK(CountsOf(server.transport(), round) == std::vector<int64_t>(10, 1));
  // By the bits of a server that never moved.
  files.StartServer();
  SyncOnce(files.transport(), results);
  files.StartWorker("w1", {"--concurrency", "4"});
  CHECK(Await(files, round).aggregate().digest() == ended.aggregate().digest());
}

TEST_CASE("While a database refuses connections or has none left, its server says so; then it goes on by itself") {
  PostgresCluster cluster;
  PostgresDatabase database(cluster);
  PostgresDatabase other(cluster);
  Federation federation(On(database));
  for (int i = 0; i < 3; ++i) federation.StartWorker(fmt::format("w{}", i), {"--concurrency", "4"});
  constexpr int kTasks = 60;
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = kTasks, .work = absl::Milliseconds(100)}));
  const auto num_done = [&] { return RoundOf(federation.transport(), round).tasks().succeeded(); };
  WaitUntil("a quarter is done", absl::Seconds(30), [&] { return num_done() >= kTasks / 4; });
  const auto says = [&](std::string_view words) {
    constexpr int kLogLines = 200;
    return federation.server().LogTail(kLogLines).find(words) != std::string::npos;
  };

  other.Run("ALTER DATABASE " + database.name() + " ALLOW_CONNECTIONS false");
  other.Run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + database.name() + "'");
  WaitUntil("it says that it is refused", absl::Seconds(10), [&] {
    return says("the store waits for its database: ") && says("is not currently accepting connections");
  });

  std::vector<std::unique_ptr<PostgresConnection>> all;
  absl::Status full;
  constexpr size_t kConnectionsMax = 60;
  while (full.ok() && all.size() <= kConnectionsMax) {
    absl::StatusOr<std::unique_ptr<PostgresConnection>> next = PostgresConnection::Open({.conninfo = StoreOf(other)});
    full = next.status();
    if (next.ok()) all.push_back(*std::move(next));
  }
  CHECK_THAT(full.ToString(), Contains("too many clients"));
  REQUIRE_FALSE(all.empty());
  const absl::Status admitted =
      all.front()->Run({.sql = "-- admit\nALTER DATABASE " + database.name() + " ALLOW_CONNECTIONS true"});
  INFO(admitted.ToString());
  REQUIRE(admitted.ok());
  WaitUntil("it says that there are no connections", absl::Seconds(10), [&] { return says("too many clients"); });
  CHECK_FALSE(says("serves again"));
  // A part of them is enough for one server.
  all.resize(all.size() / 2);

  CHECK(Await(federation, round, absl::Seconds(60)).aggregate().num_contributions() == kTasks);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(kTasks, 1));
  CHECK(says("serves again"));
}

// Who may neither mount nor make a namespace cannot fill a disk of its own, and must not fill everybody's.
bool IsWithoutSmallDisk(PostgresCluster& cluster, const std::string& place) {
  const std::string why_not = cluster.MakeSmallDisk(place, 64);
  if (!why_not.empty()) WARN("skipped: " << why_not);
  return !why_not.empty();
}

// Contributions are too large for a Sync: what fills the disk is in the middle of an upload, a spool or a commit.
TEST_CASE("A database whose disk is full refuses what needs room in a sentence, loses nothing, and goes on by itself") {
  PostgresCluster cluster;
  if (IsWithoutSmallDisk(cluster, "data")) return;
  PostgresDatabase database(cluster);
  PostgresDatabase other(cluster);
  other.Run("ALTER DATABASE " + database.name() + " SET TABLESPACE small");
  Federation federation(On(database));
  for (int i = 0; i < 3; ++i) federation.StartWorker(fmt::format("w{}", i), {"--concurrency", "4"});
  constexpr int kTasks = 60;
  OneHotOptions options = {.num_tasks = kTasks, .work = absl::Milliseconds(100), .lease = absl::Seconds(10)};
  options.size = 40'000;
  const std::string round = StartRound(federation, OneHotRound(options));
  const auto num_done = [&] { return RoundOf(federation.transport(), round).tasks().succeeded(); };
  WaitUntil("a quarter is done", absl::Seconds(30), [&] { return num_done() >= kTasks / 4; });
  cluster.FillDisk();

  // The pages that the tables have already take a little more.
  absl::Status create;
  absl::Status upload;
  int num_tries = 0;
  WaitUntil("callers are refused", absl::Seconds(30), [&] {
    ++num_tries;
    OneHotOptions filling = {.num_tasks = 2000};
    create = CreateRound(federation.impatient_transport(), fmt::format("filling-{}", num_tries), OneHotRound(filling))
                 .status();
    upload = UploadBlob(federation.impatient_transport(), federation.random(), std::string(1 << 20, 'x')).status();
    return !create.ok() && !upload.ok();
  });
  for (const absl::Status& status : {create, upload}) {
    INFO(status.ToString());
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK_THAT(std::string(status.message()), Contains("could not extend file") && Contains("53100") &&
                                                  Contains("free some space where the database lies"));
  }
  constexpr int kLogLines = 400;
  CHECK_THAT(federation.server().LogTail(kLogLines), Contains("53100"));
  const int64_t done_when_full = num_done();
  REQUIRE(federation.server().IsRunning());
  // Who only looks is answered.
  CHECK(BlockingCall(federation.impatient_transport(), kListRounds, {})->rounds_size() >= 1);
  CHECK(done_when_full < kTasks);

  cluster.FreeDisk();
  const absl::Time freed = federation.clock().Now();
  CHECK(Await(federation, round, absl::Seconds(60)).aggregate().num_contributions() == kTasks);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(kTasks, 1));
  CHECK(federation.server().IsRunning());
  Measured(
      "full with {} of {} done, refused after {} tries; new round: {}; upload: {}; the round ended {} after there was "
      "room",
      done_when_full, kTasks, num_tries, create.ToString(), upload.ToString(),
      absl::FormatDuration(federation.clock().Now() - freed));
}

TEST_CASE("A database that falls because its log has no room is waited for, and nothing is lost or counts twice") {
  PostgresCluster cluster;
  if (IsWithoutSmallDisk(cluster, "wal")) return;
  PostgresDatabase database(cluster);
  Federation federation(On(database));
  for (int i = 0; i < 3; ++i) federation.StartWorker(fmt::format("w{}", i), {"--concurrency", "4"});
  constexpr int kTasks = 60;
  const std::string round = StartRound(
      federation, OneHotRound({.num_tasks = kTasks, .work = absl::Milliseconds(100), .lease = absl::Seconds(10)}));
  const auto num_done = [&] { return RoundOf(federation.transport(), round).tasks().succeeded(); };
  WaitUntil("a quarter is done", absl::Seconds(30), [&] { return num_done() >= kTasks / 4; });
  cluster.FillDisk();
  constexpr int kLogLines = 200;
  const auto says = [&](std::string_view words) {
    return federation.server().LogTail(kLogLines).find(words) != std::string::npos;
  };
  WaitUntil("the log says that it waits", absl::Seconds(10),
            [&] { return says("the store waits for its database: ") && says("Connection refused"); });
  CHECK_FALSE(says("serves again"));
  cluster.FreeDisk();
  const absl::Time freed = federation.clock().Now();
  CHECK(Await(federation, round, absl::Seconds(60)).aggregate().num_contributions() == kTasks);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(kTasks, 1));
  CHECK(says("serves again"));
  Measured("the round ended {} after the database was started", absl::FormatDuration(federation.clock().Now() - freed));
}

TEST_CASE("A database that cannot be had, or is not one, ends the server with a sentence that names it") {
  const TemporaryDirectory scratch = ScratchDirectory();
  const auto start = [&](const std::string& store) {
    const CommandRun run = RunCommand(
        {BinaryPath("sheafd"), "--listen", "127.0.0.1:0", "--data-dir", scratch.path() + "/data", "--store", store},
        {.timeout = absl::Seconds(20)});
    CHECK(run.exit_code == 1);
    return run.err;
  };
  PostgresCluster& cluster = PostgresCluster::OfThisProcess();
  CHECK_THAT(start(cluster.TcpConninfo("nothing")), Contains("\"nothing\" does not exist"));
  CHECK_THAT(start("postgresql://nobody@127.0.0.1:1/sheaf"), Contains("127.0.0.1") && Contains("Connection refused"));
  CHECK_THAT(start("host=x nonsense=1"), Contains("not one that libpq understands"));
  // A directory that is a store by itself is no other's.
  { const Federation own({.data_directory = scratch.path() + "/own"}); }
  PostgresDatabase database;
  CHECK_THAT(TryToStart(database, scratch.path() + "/own").err, Contains("is a server's store of its own"));
}

}  // namespace
}  // namespace sheaf
