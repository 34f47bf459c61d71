// Three servers on one database, of which one owns the store and two forward to it, while each in its turn is killed,
// stands still, or is stopped, and its connections to the database are cut.
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "proto/methods.h"
#include "proto/time.h"
#include "sdk/cpp/client/blob_client.h"
#include "sdk/cpp/client/retrying_transport.h"
#include "sdk/cpp/client/round_client.h"
#include "tests/e2e/rounds.h"
#include "tests/e2e/rpc_relay.h"
#include "tests/postgres/postgres_cluster.h"

namespace sheaf {
namespace {

constexpr int kServers = 3;
constexpr int kWorkers = 16;
constexpr absl::Duration kTakeoverAfter = absl::Seconds(1);

template <typename T>
T Ok(absl::StatusOr<T> value) {
  INFO(value.status().ToString());
  REQUIRE(value.ok());
  return *std::move(value);
}

// As the worst of load balancers: each call goes to the next server, whoever owns the store, and past those that cannot
// be reached when its caller tries again. Thread-safe.
class AnyServer final : public Transport {
 public:
  explicit AnyServer(const std::vector<std::string>& addresses) {
    for (const std::string& address : addresses) servers_.push_back(OpenTransport(address, {.own_connection = true}));
  }

  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override {
    servers_[next_++ % servers_.size()]->CallMethod(method, request, response, options, std::move(done));
  }

 private:
  std::vector<std::unique_ptr<Transport>> servers_;
  std::atomic<size_t> next_ = 0;
};

// The processes, each of which is started again when it has ended, as by a service manager.
class Servers {
 public:
  explicit Servers(const std::string& store) {
    for (int i = 0; i < kServers; ++i) addresses_.push_back(fmt::format("127.0.0.1:{}", FreePort()));
    for (int i = 0; i < kServers; ++i) {
      arguments_.push_back({BinaryPath("sheafd"), "--listen", addresses_[i], "--data-dir",
                            fmt::format("{}/{}", scratch_.path(), i), "--store", store, "--takeover-after",
                            absl::FormatDuration(kTakeoverAfter)});
    }
    processes_.resize(kServers);
    StartEnded();
  }

  const std::vector<std::string>& addresses() const { return addresses_; }
  ChildProcess& process(size_t i) { return *processes_[i]; }
  const std::string& scratch() const { return scratch_.path(); }

  // When it is started next.
  void SetProgram(size_t i, const std::string& program) { arguments_[i].front() = program; }

  // A relay waits for the polls of workers that have gone; who stops answers them.
  void Stop() {
    for (std::optional<ChildProcess>& process : processes_) process->Terminate();
  }

  void StartEnded() {
    for (size_t i = 0; i < kServers; ++i) {
      if (processes_[i] && processes_[i]->IsRunning()) continue;
      processes_[i].reset();
      processes_[i].emplace(Ok(ChildProcess::Start(
          {.argv = arguments_[i], .log_path = fmt::format("{}/{}-{}.log", scratch_.path(), i, ++num_starts_)})));
    }
  }

 private:
  const TemporaryDirectory scratch_ = ScratchDirectory();
  std::vector<std::string> addresses_;
  std::vector<std::vector<std::string>> arguments_;
  std::vector<std::optional<ChildProcess>> processes_;
  int num_starts_ = 0;
};

std::string InMilliseconds(absl::Duration time) { return fmt::format("{} ms", absl::ToInt64Milliseconds(time)); }

// Calls every server over and over; each passes the call on to the owner. So a time in which none answers is one in
// which nobody is served.
class Answers {
 public:
  Answers(const std::vector<std::string>& addresses, const Clock& clock) : clock_(clock), last_(clock.Now()) {
    for (const std::string& address : addresses) {
      callers_.emplace_back([this, address](const std::stop_token& stop) { CallOverAndOver(address, stop); });
    }
  }

  // Between two answers since the last look.
  absl::Duration LongestPause() {
    const MutexLock lock(mutex_);
    return std::exchange(longest_, absl::ZeroDuration());
  }

 private:
  void CallOverAndOver(const std::string& address, const std::stop_token& stop) {
    const auto server = OpenTransport(address, {.own_connection = true});
    while (!stop.stop_requested()) {
      if (BlockingCall(*server, kGetServerInfo, {}, {.timeout = absl::Seconds(5)}).ok()) NoteAnswer();
      ::poll(nullptr, 0, 5);
    }
  }
  void NoteAnswer() {
    const MutexLock lock(mutex_);
    const absl::Time now = clock_.Now();
    longest_ = std::max(longest_, now - std::exchange(last_, now));
  }

  const Clock& clock_;
  Mutex mutex_;
  absl::Time last_ GUARDED_BY(mutex_);
  absl::Duration longest_ GUARDED_BY(mutex_);
  std::vector<std::jthread> callers_;
};

TEST_CASE(
    "Three servers of a database are killed, stand still and are stopped in turn: nothing is lost or counts twice") {
  // 100 and more are for a long look.
  const char* const loops = std::getenv("SHEAF_SERVER_LOOPS");
  const int num_loops = loops == nullptr ? 8 : std::atoi(loops);
  PostgresCluster cluster;
  PostgresDatabase database(cluster);
  Servers servers(cluster.TcpConninfo(database.name()));
  AnyServer wire(servers.addresses());
  RpcRelay relay(wire);
  const SystemClock clock;
  GrpcTimer timer;
  SystemRandom random;
  SystemRandom retry_random;
  RetryingTransport transport(wire, timer, clock, retry_random, RetryOptions());
  // By any of them, all are listed.
  WaitUntil("three servers are listed", absl::Seconds(20), [&] {
    const absl::StatusOr<v1::ListServersResponse> listed = BlockingCall(transport, kListServers, {});
    return listed.ok() && listed->servers_size() == kServers;
  });
  const v1::ListServersResponse listed = Ok(BlockingCall(transport, kListServers, {}));
  CHECK(std::count_if(listed.servers().begin(), listed.servers().end(), [](const auto& s) { return s.is_owner(); }) ==
        1);
  for (const v1::Server& server : listed.servers()) {
    CHECK(std::find(servers.addresses().begin(), servers.addresses().end(), server.address()) !=
          servers.addresses().end());
    CHECK(FromProto(server.silent_for()) < absl::Seconds(5));
  }
  std::vector<ChildProcess> workers;
  for (int i = 0; i < kWorkers; ++i) {
    const std::string name = fmt::format("w{}", i);
    workers.push_back(Ok(ChildProcess::Start(
        {.argv = {BinaryPath("sheaf-worker"), "--server", relay.target(), "--name", name, "--concurrency", "2"},
         .log_path = fmt::format("{}/{}.log", servers.scratch(), name)})));
  }
  constexpr int kTasks = 80;
  // More than a Sync takes: each contribution is an upload of two chunks, whose calls come to one server after the
  // other.
  constexpr int64_t kLarge = 280'000;
  const char* const names[] = {"SIGTERM", "SIGKILL", "connections", "SIGSTOP"};
  Answers answers(servers.addresses(), clock);
  std::vector<absl::Duration> longest(2 * std::size(names));
  for (int loop = 0; loop < num_loops; ++loop) {
    const size_t kind = static_cast<size_t>(loop) % (2 * std::size(names));
    const size_t fault = kind % std::size(names);
    const bool is_large = kind != fault;
    INFO("loop " << loop << ", " << names[fault] << (is_large ? ", large" : ""));
    const std::string round = Ok(CreateRound(transport, random.Token(16),
                                             OneHotRound({.num_tasks = kTasks,
                                                          .work = absl::Milliseconds(100),
                                                          .lease = absl::Seconds(5),
                                                          .size = is_large ? kLarge : 0})))
                                  .id();
    WaitUntil("a quarter is done", absl::Seconds(30),
              [&] { return RoundOf(transport, round).tasks().succeeded() >= kTasks / 4; });
    const std::string address =
        database.Run("SELECT convert_from(s.address, 'UTF8') FROM owners o JOIN servers s ON s.id = o.server");
    const size_t owner =
        std::find(servers.addresses().begin(), servers.addresses().end(), address) - servers.addresses().begin();
    INFO("the owner is at " << address);
    REQUIRE(owner < kServers);
    const pid_t pid = servers.process(owner).pid();
    answers.LongestPause();
    if (fault == 0) kill(pid, SIGTERM);
    if (fault == 1) kill(pid, SIGKILL);
    if (fault == 2) {
      database.Run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
    }
    if (fault == 3) {
      kill(pid, SIGSTOP);
      WaitUntil("another has taken over", absl::Seconds(20), [&] {
        return database.Run("SELECT count(*) FROM owners o JOIN servers s ON s.id = o.server WHERE s.address = '" +
                            servers.addresses()[owner] + "'") == "0";
      });
      kill(pid, SIGCONT);
    }
    // Who stood still ends by itself once it notices.
    if (fault != 2) CHECK(servers.process(owner).WaitForEnd(absl::Seconds(20)));
    servers.StartEnded();
    const v1::Round ended = Ok(WaitForRound(transport, clock, round, {.timeout = absl::Seconds(60)}));
    INFO(ended.ShortDebugString());
    REQUIRE(ended.state() == v1::SUCCEEDED);
    CHECK(ended.aggregate().num_contributions() == kTasks);
    CHECK(CountsOf(transport, round) == std::vector<int64_t>(kTasks, 1));
    longest[kind] = std::max(longest[kind], answers.LongestPause());
  }
  std::string figures;
  for (size_t i = 0; i < std::size(names); ++i) {
    figures += fmt::format("; {}: no answer for {}, with uploads for {}", names[i], InMilliseconds(longest[i]),
                           InMilliseconds(longest[i + std::size(names)]));
  }
  Measured("{} loops, {} servers, {} workers{}", num_loops, kServers, kWorkers, figures);
  for (ChildProcess& worker : workers) worker.Terminate();
  servers.Stop();
}

// How many shards each server owns, by its address, the most first.
std::vector<int> NumOwned(PostgresDatabase& database, int num_shards) {
  std::string owners;
  for (int shard = 0; shard < num_shards; ++shard) {
    const std::string schema = shard == 0 ? "public" : fmt::format("public_shard_{}", shard);
    if (database.Run(fmt::format("SELECT to_regclass('{}.owners') IS NULL", schema)) == "t") continue;
    owners += fmt::format(
        "{}SELECT s.address FROM {}.owners o JOIN {}.servers s ON s.id = o.server "
        "AND s.epoch = o.server_epoch",
        owners.empty() ? "" : " UNION ALL ", schema, schema);
  }
  const std::string counts =
      database.Run(fmt::format("SELECT coalesce(string_agg(n::text, ' ' ORDER BY n DESC), '') FROM (SELECT count(*) AS "
                               "n FROM ({}) AS o GROUP BY "
                               "address) AS c",
                               owners));
  std::vector<int> numbers;
  std::istringstream words(counts);
  for (int number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

TEST_CASE(
    "The populations of a database are spread over its servers, and move on when one ends, and no task counts twice") {
  constexpr int kPopulations = 6;
  constexpr int kTasks = 20;
  PostgresCluster cluster;
  PostgresDatabase database(cluster);
  Servers servers(cluster.TcpConninfo(database.name()));
  AnyServer wire(servers.addresses());
  RpcRelay relay(wire);
  const SystemClock clock;
  GrpcTimer timer;
  SystemRandom retry_random;
  RetryingTransport transport(wire, timer, clock, retry_random, RetryOptions());
  const auto population = [](int i) { return fmt::format("islands-{}", i); };
  std::vector<ChildProcess> workers;
  // Each waits for a population that nobody has seen yet.
  for (int i = 0; i < 2 * kPopulations; ++i) {
    const std::string name = fmt::format("w{}", i);
    workers.push_back(
        Ok(ChildProcess::Start({.argv = {BinaryPath("sheaf-worker"), "--server", relay.target(), "--name", name,
                                         "--concurrency", "2", "--population", population(i % kPopulations)},
                                .log_path = fmt::format("{}/{}.log", servers.scratch(), name)})));
  }
  std::array<std::atomic<int>, kPopulations> num_ended = {};
  std::array<std::vector<absl::StatusOr<v1::Round>>, kPopulations> rounds;
  std::vector<std::jthread> programs;
  for (int i = 0; i < kPopulations; ++i) {
    programs.emplace_back([&, i](const std::stop_token& stop) {
      SystemRandom random;
      // Every other one has a broadcast.
      while (!stop.stop_requested()) {
        v1::RoundSpec spec =
            OneHotRound({.num_tasks = kTasks, .work = absl::Milliseconds(20), .lease = absl::Seconds(5)});
        spec.set_population(population(i));
        if (i % 2 == 0) {
          const absl::StatusOr<std::string> digest =
              UploadBlob(transport, random, fmt::format("round {} of all {}", rounds[i].size(), i / 4));
          if (!digest.ok()) return rounds[i].emplace_back(digest.status()), void();
          spec.set_broadcast_digest(*digest);
        }
        const auto created = CreateRound(transport, random.Token(16), spec);
        if (!created.ok()) return rounds[i].emplace_back(created.status()), void();
        rounds[i].push_back(WaitForRound(transport, clock, created->id(), {.timeout = absl::Seconds(60)}));
        if (!rounds[i].back().ok()) return;
        ++num_ended[i];
      }
    });
  }
  const auto await_rounds = [&] {
    std::array<int, kPopulations> enough = {};
    for (int i = 0; i < kPopulations; ++i) enough[i] = num_ended[i] + 2;
    WaitUntil("rounds of all populations end", absl::Seconds(90), [&] {
      for (int i = 0; i < kPopulations; ++i) {
        if (num_ended[i] < enough[i]) return false;
      }
      return true;
    });
  };
  const std::vector<int> even(kServers, kPopulations / kServers);
  const auto await_even = [&] {
    WaitUntil("each server owns as many as the others", absl::Seconds(60),
              [&] { return NumOwned(database, kPopulations) == even; });
  };
  await_rounds();
  await_even();
  std::vector<std::string> listed;
  const v1::ListServersResponse servers_listed = Ok(BlockingCall(transport, kListServers, {}));
  for (const v1::Server& server : servers_listed.servers()) {
    CHECK(server.is_owner());
    CHECK(server.num_shards() == kPopulations / kServers);
    listed.insert(listed.end(), server.populations().begin(), server.populations().end());
  }
  std::sort(listed.begin(), listed.end());
  CHECK(listed == std::vector<std::string>{population(0), population(1), population(2), population(3), population(4),
                                           population(5)});
  const char* const names[] = {"SIGTERM", "SIGKILL", "SIGSTOP"};
  for (size_t fault = 0; fault < std::size(names); ++fault) {
    INFO(names[fault]);
    const pid_t pid = servers.process(fault).pid();
    if (fault == 0) kill(pid, SIGTERM);
    if (fault == 1) kill(pid, SIGKILL);
    if (fault == 2) {
      kill(pid, SIGSTOP);
      ::poll(nullptr, 0, 3000);
      kill(pid, SIGCONT);
    }
    CHECK(servers.process(fault).WaitForEnd(absl::Seconds(20)));
    await_rounds();
    CHECK(NumOwned(database, kPopulations).size() < kServers);
    servers.StartEnded();
    await_even();
    await_rounds();
  }
  // Out of service: a server gives all that it has to the others, and goes on forwarding calls. One of the three owns
  // the first shard.
  const auto drain = [&](const std::string& server, bool undo) {
    v1::DrainServerRequest request;
    request.set_request_id(retry_random.Token(16));
    request.set_server(server);
    request.set_undo(undo);
    CHECK(Ok(BlockingCall(transport, kDrainServer, request)).server().is_draining() == !undo);
  };
  const auto list = [&] { return Ok(BlockingCall(transport, kListServers, {})); };
  std::vector<std::string> server_names;
  const v1::ListServersResponse in_service = list();
  for (const v1::Server& server : in_service.servers()) server_names.push_back(server.name());
  REQUIRE(server_names.size() == kServers);
  for (const std::string& server : server_names) {
    drain(server, false);
    WaitUntil("the others own all", absl::Seconds(60),
              [&] { return NumOwned(database, kPopulations) == std::vector<int>(2, kPopulations / 2); });
    await_rounds();
    const v1::ListServersResponse without_it = list();
    for (const v1::Server& each : without_it.servers()) {
      CHECK(each.is_draining() == (each.name() == server));
      CHECK(each.is_owner() == (each.name() != server));
    }
    drain(server, true);
    await_even();
  }
  // Nobody is left to whom they could give anything.
  for (const std::string& server : server_names) drain(server, false);
  await_rounds();
  for (const std::string& server : server_names) drain(server, true);
  await_even();
  await_rounds();
  for (size_t i = 0; i < kServers; ++i) CHECK_FALSE(servers.process(i).WaitForEnd(absl::ZeroDuration()));
  for (std::jthread& program : programs) program.request_stop();
  programs.clear();
  int num_rounds = 0;
  for (int i = 0; i < kPopulations; ++i) {
    for (const absl::StatusOr<v1::Round>& round : rounds[i]) {
      INFO(population(i) << ": " << round.status().ToString());
      REQUIRE(round.ok());
      INFO(round->ShortDebugString());
      CHECK(round->state() == v1::SUCCEEDED);
      CHECK(round->aggregate().num_contributions() == kTasks);
      CHECK(CountsOf(transport, round->id()) == std::vector<int64_t>(kTasks, 1));
      ++num_rounds;
    }
  }
  Measured("{} rounds in {} populations", num_rounds, kPopulations);
  for (ChildProcess& worker : workers) worker.Terminate();
  servers.Stop();
}

// Goal: who runs a program sees nothing of it. Rounds come one after the other while each server in its turn is stopped
// and started as the next version, whose schema is another.
TEST_CASE("Three servers are upgraded one after the other, a migration among them: no task fails, none counts twice") {
  // Which of those that are old the next is: the owner, so that older and newer ones wait for the store together; or
  // the owner when no other is left, as the guide has it.
  const bool owner_first = GENERATE(true, false);
  PostgresDatabase database;
  Servers servers(database.cluster().TcpConninfo(database.name()));
  AnyServer wire(servers.addresses());
  RpcRelay relay(wire);
  const SystemClock clock;
  GrpcTimer timer;
  SystemRandom retry_random;
  RetryingTransport transport(wire, timer, clock, retry_random, RetryOptions());
  const auto num_listed = [&] {
    const absl::StatusOr<v1::ListServersResponse> listed = BlockingCall(wire, kListServers, {});
    return listed.ok() ? listed->servers_size() : 0;
  };
  WaitUntil("three servers are listed", absl::Seconds(20), [&] { return num_listed() == kServers; });
  std::vector<ChildProcess> workers;
  for (int i = 0; i < kWorkers; ++i) {
    const std::string name = fmt::format("w{}", i);
    workers.push_back(Ok(ChildProcess::Start(
        {.argv = {BinaryPath("sheaf-worker"), "--server", relay.target(), "--name", name, "--concurrency", "2"},
         .log_path = fmt::format("{}/{}.log", servers.scratch(), name)})));
  }
  constexpr int kTasks = 80;
  std::atomic<int> num_ended = 0;
  std::vector<absl::StatusOr<v1::Round>> rounds;
  std::jthread program([&](const std::stop_token& stop) {
    SystemRandom random;
    while (!stop.stop_requested()) {
      const auto created =
          CreateRound(transport, random.Token(16),
                      OneHotRound({.num_tasks = kTasks, .work = absl::Milliseconds(50), .lease = absl::Seconds(20)}));
      if (!created.ok()) return rounds.emplace_back(created.status()), void();
      rounds.push_back(WaitForRound(transport, clock, created->id(), {.timeout = absl::Seconds(60)}));
      if (!rounds.back().ok()) return;
      ++num_ended;
    }
  });
  // Two: one of them began since the last look.
  const auto await_rounds = [&] {
    const int enough = num_ended + 2;
    WaitUntil("rounds end", absl::Seconds(60), [&] { return num_ended >= enough; });
  };
  await_rounds();
  const auto schema = [&] { return std::stoi(database.Run("SELECT version FROM schema")); };
  const int old_schema = schema();
  const auto owner = [&] {
    return database.Run(
        "SELECT convert_from(s.address, 'UTF8') FROM owners o JOIN servers s ON s.id = o.server AND s.epoch = "
        "o.server_epoch");
  };
  const absl::Time upgrade_start = clock.Now();
  Answers answers(servers.addresses(), clock);
  std::string pauses;
  std::vector<size_t> old = {0, 1, 2};
  for (int step = 0; step < kServers; ++step) {
    const std::string owner_before = owner();
    const int schema_before = schema();
    auto next = std::find_if(old.begin(), old.end(),
                             [&](size_t i) { return (servers.addresses()[i] == owner_before) == owner_first; });
    if (next == old.end()) next = old.begin();
    const size_t i = *next;
    old.erase(next);
    answers.LongestPause();
    kill(servers.process(i).pid(), SIGTERM);
    CHECK(EndOf(servers.process(i), absl::Seconds(20)) == "exit code 0");
    servers.SetProgram(i, SHEAF_NEXT_SERVER);
    servers.StartEnded();
    // As whoever upgrades does: the next one when this one is there, and the store is somebody's.
    WaitUntil("somebody owns the store", absl::Seconds(30), [&] { return owner() != ""; });
    WaitUntil("all are listed", absl::Seconds(30), [&] { return num_listed() == kServers; });
    await_rounds();
    pauses += fmt::format("; {}{}: {}", servers.addresses()[i] == owner_before ? "the owner" : "one that waits",
                          schema() == schema_before ? "" : ", and a migration of 2 s",
                          InMilliseconds(answers.LongestPause()));
  }
  CHECK(schema() == old_schema + 1);
  program.request_stop();
  program.join();
  int64_t num_lost = 0;
  for (const absl::StatusOr<v1::Round>& round : rounds) {
    INFO(round.status().ToString());
    REQUIRE(round.ok());
    INFO(round->ShortDebugString());
    CHECK(round->state() == v1::SUCCEEDED);
    CHECK(round->tasks().succeeded() == kTasks);
    CHECK(round->num_failed_attempts() == 0);
    CHECK(CountsOf(transport, round->id()) == std::vector<int64_t>(kTasks, 1));
    num_lost += round->num_lost_attempts();
  }
  // Rounds that were under way have been migrated.
  CHECK(database.Run("SELECT count(*) > 0 FROM rounds WHERE upgraded_from > 0") == "t");
  for (size_t i = 0; i < kServers; ++i) CHECK(servers.process(i).IsRunning());
  Measured("the owner {}: {} rounds of {} tasks, 0 failed attempts, {} lost; longest without an answer{}",
           owner_first ? "first" : "last", rounds.size(), kTasks, num_lost, pauses);

  // The three are there, and one of before finds no way back.
  const CommandRun listed = RunCommand({BinaryPath("sheaf"), "--server", relay.target(), "server", "list"});
  INFO(listed.out << listed.err);
  CHECK(listed.exit_code == 0);
  for (const std::string& address : servers.addresses()) CHECK(listed.out.find(address) != std::string::npos);
  CHECK(listed.out.find(" OWNER ") != std::string::npos);
  CHECK(listed.out.find(" SILENT ") == std::string::npos);
  const v1::ListServersResponse response = Ok(BlockingCall(transport, kListServers, {}));
  CHECK(response.servers_size() == kServers);
  for (const v1::Server& server : response.servers()) CHECK(FromProto(server.up_for()) < clock.Now() - upgrade_start);
  const CommandRun returned =
      RunCommand({BinaryPath("sheafd"), "--listen", "127.0.0.1:0", "--data-dir", servers.scratch() + "/returned",
                  "--store", database.cluster().TcpConninfo(database.name())});
  CHECK(returned.exit_code == 1);
  CHECK(returned.err.find(fmt::format("has schema version {0}, which needs at least version {0}; this build knows "
                                      "version {1}: run the newer build",
                                      old_schema + 1, old_schema)) != std::string::npos);
  CHECK(schema() == old_schema + 1);
  for (ChildProcess& worker : workers) worker.Terminate();
  servers.Stop();
}

}  // namespace
}  // namespace sheaf
