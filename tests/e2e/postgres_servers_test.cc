// Three servers on one database, of which one owns the store and two forward to it, while each in its turn is killed,
// stands still, or is stopped, and its connections to the database are cut.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/methods.h"
#include "proto/time.h"
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

int FreePort() {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(probe, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(probe);
  return ntohs(address.sin_port);
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
  const char* const names[] = {"SIGTERM", "SIGKILL", "connections", "SIGSTOP"};
  std::vector<absl::Duration> slowest(std::size(names));
  for (int loop = 0; loop < num_loops; ++loop) {
    const size_t fault = static_cast<size_t>(loop) % std::size(names);
    INFO("loop " << loop << ", " << names[fault]);
    const std::string round =
        Ok(CreateRound(transport, random.Token(16),
                       OneHotRound({.num_tasks = kTasks, .work = absl::Milliseconds(100), .lease = absl::Seconds(5)})))
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
    const absl::Time start = clock.Now();
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
    // One that must be written down, by a caller whose own pauses are no part of the figure.
    const std::string next = random.Token(16);
    WaitUntil("a round is written down", absl::Seconds(30),
              [&] { return CreateRound(wire, next, OneHotRound({.num_tasks = 1})).ok(); });
    slowest[fault] = std::max(slowest[fault], clock.Now() - start);
    // Who stood still ends by itself once it notices.
    if (fault != 2) CHECK(servers.process(owner).WaitForEnd(absl::Seconds(20)));
    servers.StartEnded();
    const v1::Round ended = Ok(WaitForRound(transport, clock, round, {.timeout = absl::Seconds(60)}));
    INFO(ended.ShortDebugString());
    REQUIRE(ended.state() == v1::SUCCEEDED);
    CHECK(ended.aggregate().num_contributions() == kTasks);
    CHECK(CountsOf(transport, round) == std::vector<int64_t>(kTasks, 1));
  }
  std::string figures;
  for (size_t i = 0; i < std::size(names); ++i) {
    figures += fmt::format("; {}: written down again within {}", names[i], absl::FormatDuration(slowest[i]));
  }
  Measured("{} loops, {} servers, {} workers{}", num_loops, kServers, kWorkers, figures);
  for (ChildProcess& worker : workers) worker.Terminate();
}

// Goal: who runs a program sees nothing of it. Rounds come one after the other while each server in its turn is stopped
// and started as the next version, whose schema is another.
TEST_CASE("Three servers are upgraded one after the other, a migration among them: no task fails, none counts twice") {
  PostgresCluster cluster;
  PostgresDatabase database(cluster);
  Servers servers(cluster.TcpConninfo(database.name()));
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
  const std::string version = "SELECT version FROM schema";
  const int before = std::stoi(database.Run(version));
  const auto owner = [&] {
    return database.Run(
        "SELECT convert_from(s.address, 'UTF8') FROM owners o JOIN servers s ON s.id = o.server AND s.epoch = "
        "o.server_epoch");
  };
  // The owner in the middle: one of the next version waits then, and one of this.
  std::vector<size_t> order;
  const std::string first_owner = owner();
  for (size_t i = 0; i < kServers; ++i) {
    if (servers.addresses()[i] != first_owner) order.push_back(i);
  }
  REQUIRE(order.size() == kServers - 1);
  order.insert(order.begin() + 1, kServers - order[0] - order[1]);
  for (const size_t i : order) {
    kill(servers.process(i).pid(), SIGTERM);
    CHECK(EndOf(servers.process(i), absl::Seconds(20)) == "exit code 0");
    servers.SetProgram(i, SHEAF_NEXT_SERVER);
    servers.StartEnded();
    // As whoever upgrades does: the next one when this one is there, and the store is somebody's.
    WaitUntil("somebody owns the store", absl::Seconds(30), [&] { return owner() != ""; });
    WaitUntil("all are listed", absl::Seconds(30), [&] { return num_listed() == kServers; });
    await_rounds();
  }
  CHECK(database.Run(version) == std::to_string(before + 1));
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
  Measured("{} rounds of {} tasks, 0 failed attempts, {} lost", rounds.size(), kTasks, num_lost);
  for (ChildProcess& worker : workers) worker.Terminate();
}

}  // namespace
}  // namespace sheaf
