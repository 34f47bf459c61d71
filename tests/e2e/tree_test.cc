// Trees of servers: relays pass the tasks of one server on to the next, and what is released at the root has the bits
// that one server alone releases.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aggregation/operators.h"
#include "base/checksum.h"
#include "base/random.h"
#include "proto/time.h"
#include "sdk/cpp/client/round_client.h"
#include "sdk/cpp/computation/inputless_task.h"
#include "tests/aggregation/values.h"
#include "tests/e2e/rounds.h"
#include "tests/postgres/postgres_cluster.h"
#include "worker/runtime.h"
#include "worker/thread_pool.h"

namespace sheaf {
namespace {

constexpr int kClients = 36;
constexpr absl::Duration kSoon = absl::Seconds(20);

// Values of any size, for every output: those of the client that the payload names.
class AwkwardValues final : public Computation {
 public:
  explicit AwkwardValues(Waiter& waiter) : waiter_(waiter) {}
  std::string_view name() const override { return "awkward"; }
  int version() const override { return 3; }
  absl::StatusOr<std::unique_ptr<PreparedTask>> Prepare(const v1::Lease& lease, RunControl&) const override {
    return std::make_unique<InputlessTask>(
        [&waiter = waiter_, spec = lease.aggregate(), client = lease.payload()](RunControl&) {
          waiter.Wait(absl::Milliseconds(40));
          return ContributionOf(spec, client);
        });
  }

 private:
  static v1::Contribution ContributionOf(const v1::AggregateSpec& spec, const std::string& client) {
    SeededRandom random(Crc32(client));
    v1::Contribution contribution;
    for (const v1::OutputSpec& output : spec.outputs()) {
      v1::Contribution one = RandomContribution(ASpec(output), random);
      one.mutable_outputs(0)->set_name(output.name());
      contribution.mutable_outputs()->Add(std::move(*one.mutable_outputs(0)));
    }
    contribution.set_weight(static_cast<float>(1 + random.Below(1000)) / 8);
    (*contribution.mutable_metrics())["clients"] = 1;
    return contribution;
  }

  Waiter& waiter_;
};

// A worker in this process: the tests' own computation is in no program.
class Leaf {
 public:
  Leaf(Federation& server, const std::string& name) : runtime_(ConfigFor(server, name), clock_, random_) {
    REQUIRE(runtime_.Start().ok());
    thread_.Post([this] { static_cast<void>(runtime_.Run()); });
  }
  ~Leaf() { runtime_.RequestDrain(); }

 private:
  static WorkerConfig ConfigFor(Federation& server, const std::string& name) {
    WorkerConfig config;
    config.server = server.address();
    config.computations = {{.name = "awkward", .data = {}, .make = [](const ComputationParts& parts) {
                              return std::make_unique<AwkwardValues>(parts.waiter);
                            }}};
    config.options.worker = name;
    config.options.concurrency = 2;
    config.options.grace = absl::Milliseconds(100);
    config.options.call_timeout = absl::Seconds(1);
    return config;
  }

  SystemClock clock_;
  SystemRandom random_;
  WorkerRuntime runtime_;
  // Goes first: its end is waited for.
  ThreadPool thread_{1};
};

// A server with workers of its own.
struct Edge {
  explicit Edge(const std::string& name, int num_leaves = 1, FederationOptions options = {})
      : server(std::move(options)) {
    for (int i = 0; i < num_leaves; ++i)
      leaves.push_back(std::make_unique<Leaf>(server, fmt::format("{}-leaf-{}", name, i)));
  }
  Federation server;
  std::vector<std::unique_ptr<Leaf>> leaves;
};

// Every operator, EXACT, with thresholds.
v1::RoundSpec EveryOperator() {
  v1::RoundSpec spec;
  spec.mutable_computation()->set_name("awkward");
  spec.mutable_aggregate()->set_numerics(v1::EXACT);
  for (const Operator& op : Operators()) {
    v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
    output = AnOutput(std::string(op.symbol), v1::FLOAT32, {6, 3}, std::string(op.symbol));
    // A sum that is too large for a float is an infinity, not the round's end.
    output.set_non_finite(v1::PROPAGATE_NON_FINITE);
    if (op.operand == Operand::kKeyed) output.set_key_type(v1::STRING_KEYS);
    if (op.operand != Operand::kDense) output.set_min_contributors(2);
  }
  *spec.mutable_lease_duration() = ToProto(absl::Seconds(2));
  *spec.mutable_deadline() = ToProto(absl::Minutes(5));
  return spec;
}

std::vector<v1::TaskSpec> ClientTasks() {
  std::vector<v1::TaskSpec> tasks(kClients);
  for (int i = 0; i < kClients; ++i) tasks[static_cast<size_t>(i)].set_payload(fmt::format("client {}", i));
  return tasks;
}

// Each so many in a row become one task for a relay.
std::vector<v1::TaskSpec> Grouped(const std::vector<v1::TaskSpec>& tasks, size_t size) {
  std::vector<v1::TaskSpec> groups;
  for (size_t first = 0; first < tasks.size(); first += size) {
    v1::ListedTasks group;
    for (size_t i = first; i < std::min(first + size, tasks.size()); ++i) *group.add_tasks() = tasks[i];
    groups.emplace_back().set_payload(group.SerializeAsString());
  }
  return groups;
}

v1::RoundSpec SpecOf(const std::vector<v1::TaskSpec>& tasks) {
  v1::RoundSpec spec = EveryOperator();
  for (const v1::TaskSpec& task : tasks) *spec.mutable_listed()->add_tasks() = task;
  return spec;
}

void StartRelay(Federation& above, const std::string& name, Federation& below, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"--relay", below.address()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  above.StartWorker(name, arguments);
}

std::vector<v1::Round> RoundsOf(Federation& server) {
  absl::StatusOr<v1::ListRoundsResponse> listed = BlockingCall(server.transport(), kListRounds, {});
  REQUIRE(listed.ok());
  return {listed->rounds().begin(), listed->rounds().end()};
}

void Cancel(Federation& server, const std::string& round) {
  v1::CancelRoundRequest request;
  request.set_request_id(server.random().Token(16));
  request.set_round(round);
  REQUIRE(BlockingCall(server.transport(), kCancelRound, request).ok());
}

void CheckRoot(const v1::Round& round) {
  CHECK(round.num_clients() == kClients);
  CHECK(round.metrics().at("clients") == 1);
}

// What one server alone releases.
const std::string& DigestOfOneServer() {
  static const std::string digest = [] {
    Edge alone("alone", 4);
    const v1::Round round = Await(alone.server, StartRound(alone.server, SpecOf(ClientTasks())));
    CheckRoot(round);
    return round.aggregate().digest();
  }();
  return digest;
}

}  // namespace

TEST_CASE("One server releases the same bits, whichever store it keeps, and whichever of three servers is called") {
  const auto digest_of = [](Federation& called, std::vector<Federation*> with_workers) {
    std::vector<std::unique_ptr<Leaf>> leaves;
    for (Federation* server : with_workers) {
      leaves.push_back(std::make_unique<Leaf>(*server, fmt::format("leaf-{}", leaves.size())));
    }
    const v1::Round round = Await(called, StartRound(called, SpecOf(ClientTasks())));
    CheckRoot(round);
    return round.aggregate().digest();
  };
  Federation memory({.server_arguments = {"--store", "memory"}});
  CHECK(digest_of(memory, {&memory}) == DigestOfOneServer());

  PostgresDatabase database;
  const FederationOptions shared = {.server_arguments = {"--store", database.cluster().TcpConninfo(database.name())}};
  Federation first(shared), second(shared), third(shared);
  CHECK(digest_of(third, {&first, &second, &third}) == DigestOfOneServer());
}

TEST_CASE("A tree of one and three servers releases the bits of one, also when an edge is lost for good") {
  Federation root;
  std::vector<std::unique_ptr<Edge>> edges;
  for (const char* name : {"a", "b", "c"}) {
    edges.push_back(std::make_unique<Edge>(name));
    StartRelay(root, fmt::format("relay-{}", name), edges.back()->server);
  }
  const std::string id = StartRound(root, SpecOf(Grouped(ClientTasks(), 4)));
  WaitUntil("the third edge has a round", kSoon, [&] { return !RoundsOf(edges[2]->server).empty(); });
  edges[2]->leaves.clear();
  edges[2]->server.KillServer();
  const v1::Round round = Await(root, id);
  CheckRoot(round);
  CHECK(round.num_contributions() == 9);
  CHECK(round.aggregate().digest() == DigestOfOneServer());
}

TEST_CASE("A tree of one, three and nine servers releases the bits of one, whatever of it is killed meanwhile") {
  Federation root;
  std::vector<std::unique_ptr<Federation>> middles;
  std::vector<std::unique_ptr<Edge>> edges;
  for (int i = 0; i < 3; ++i) {
    Federation& middle = *middles.emplace_back(std::make_unique<Federation>());
    for (int j = 0; j < 3; ++j) {
      const std::string name = fmt::format("edge-{}-{}", i, j);
      StartRelay(middle, name, edges.emplace_back(std::make_unique<Edge>(name))->server);
    }
  }
  for (int i = 0; i < 3; ++i) StartRelay(root, fmt::format("middle-{}", i), *middles[static_cast<size_t>(i)]);

  v1::RoundSpec spec = SpecOf(Grouped(Grouped(ClientTasks(), 4), 3));
  // Whoever is restarted finds what it had.
  *spec.mutable_lease_duration() = ToProto(absl::Seconds(20));
  const std::string id = StartRound(root, spec);
  WaitUntil("the first edge has a round", kSoon, [&] { return !RoundsOf(edges[0]->server).empty(); });
  edges[0]->server.KillServer();
  middles[1]->KillWorker("edge-1-0");
  root.KillWorker("middle-2");
  middles[2]->KillServer();
  middles[2]->StartServer();
  root.RestartWorker("middle-2");
  middles[1]->RestartWorker("edge-1-0");
  edges[0]->server.StartServer();

  const v1::Round round = Await(root, id, absl::Seconds(60));
  CheckRoot(round);
  CHECK(round.num_contributions() == 3);
  CHECK(round.aggregate().digest() == DigestOfOneServer());
  // Nothing was done twice: a relay that comes back finds the round that it had made.
  for (const auto& middle : middles) CHECK(RoundsOf(*middle).size() == 1);
}

TEST_CASE("A round of a relay is nobody else's, and a relay reads nothing else") {
  Federation edge;
  const auto secret = [&](const std::string& role, const std::string& as) {
    const std::string file = fmt::format("{}/{}.token", edge.directory(), role);
    std::vector<std::string> words = {"token", "create", role, "--role", role, "--to", file};
    if (!as.empty()) words.insert(words.end(), {"--token-file", as});
    REQUIRE(edge.Sheaf(words).exit_code == 0);
    return file;
  };
  const std::string admin = secret("operator", "");
  const auto wire = [&](const std::string& role) {
    return OpenTransport(edge.address(), {.security = {.token_file = secret(role, admin)}});
  };
  const auto relay = wire("relay"), submitter = wire("submitter"), worker = wire("worker"), viewer = wire("viewer");

  v1::CreateRoundRequest create;
  create.set_request_id("values");
  *create.mutable_spec() = OneHotRound({.num_tasks = 1});
  CHECK(BlockingCall(*relay, kCreateRound, create).status().message().find("CreateRound is for submitter") == 0);
  const absl::StatusOr<v1::CreateRoundResponse> values = BlockingCall(*submitter, kCreateRound, create);
  REQUIRE(values.ok());
  create.set_request_id("states");
  create.mutable_spec()->set_release(v1::PARTIAL_AGGREGATE);
  CHECK(BlockingCall(*submitter, kCreateRound, create)
            .status()
            .message()
            .find("CreateRound of a partial aggregate is for relay") == 0);
  const absl::StatusOr<v1::CreateRoundResponse> states = BlockingCall(*relay, kCreateRound, create);
  REQUIRE(states.ok());

  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<v1::SyncResponse> leased =
        BlockingCall(*worker, kSync, APoll("hand", fmt::format("poll-{}", i), 1, absl::Seconds(5)));
    REQUIRE(leased.ok());
    REQUIRE(leased->leases_size() == 1);
    v1::SyncRequest result = APoll("hand", "", 0);
    AddResult(leased->leases(0), result);
    REQUIRE(BlockingCall(*worker, kSync, result).ok());
  }
  // What one round releases, each way that there is, and the round itself.
  const auto may_read = [&](Transport& who, const std::string& round) {
    v1::ReadAggregateRequest read;
    read.set_round(round);
    v1::GetRoundRequest get;
    get.set_round(round);
    get.set_aggregate_bytes_max(1 << 20);
    const absl::Status whole = BlockingCall(who, kReadAggregate, read).status();
    const absl::Status along = BlockingCall(who, kGetRound, get).status();
    CHECK(whole.code() == along.code());
    if (whole.ok()) return true;
    CHECK(absl::IsPermissionDenied(whole));
    return false;
  };
  const auto may_see = [&](Transport& who, const std::string& round) {
    v1::GetRoundRequest get;
    get.set_round(round);
    const absl::Status seen = BlockingCall(who, kGetRound, get).status();
    return seen.ok() || !absl::IsPermissionDenied(seen);
  };
  const std::string of_values = values->round().id(), of_states = states->round().id();
  WaitUntil("both rounds end", kSoon, [&] {
    return v1::SUCCEEDED == RoundOf(*submitter, of_values).state() &&
           v1::SUCCEEDED == RoundOf(*submitter, of_states).state();
  });
  CHECK(may_read(*submitter, of_values));
  CHECK(!may_read(*submitter, of_states));
  CHECK(may_read(*relay, of_states));
  CHECK(!may_read(*relay, of_values));
  CHECK(!may_read(*viewer, of_states));
  CHECK(may_see(*viewer, of_states));
  CHECK(may_see(*relay, of_states));
  CHECK(!may_see(*relay, of_values));
  v1::CancelRoundRequest cancel;
  cancel.set_request_id("cancel");
  cancel.set_round(of_values);
  CHECK(absl::IsPermissionDenied(BlockingCall(*relay, kCancelRound, cancel).status()));

  // The states are those of the round's one client.
  v1::ReadAggregateRequest read;
  read.set_round(of_states);
  v1::Contribution partial;
  REQUIRE(partial.ParseFromString(BlockingCall(*relay, kReadAggregate, read)->data()));
  CHECK(partial.num_clients() == 1);
  CHECK(partial.outputs_size() == 2);
  CHECK(!partial.outputs(0).state().empty());
}

TEST_CASE("A relay returns nothing that combines too few clients, and cancels what nobody wants any more") {
  Federation root;
  Edge edge("edge");
  StartRelay(root, "relay", edge.server, {"--relay-min-clients", "5"});
  v1::RoundSpec spec = SpecOf(Grouped(ClientTasks(), 4));
  spec.mutable_retry()->set_failed_max(1);
  const std::string few = StartRound(root, spec);
  const auto first_task = [&] { return TaskOf(root.transport(), few + "/0"); };
  WaitUntil("a task is given up", kSoon, [&] { return first_task().state() == v1::BURIED; });
  CHECK(first_task().last_error() ==
        fmt::format("ABORTED: round {} of the server below FAILED: it combines 4 clients; nothing is released below "
                    "min_clients = 5",
                    RoundsOf(edge.server).back().id()));
  Cancel(root, few);

  // One of its tasks is for nobody that there is.
  std::vector<v1::TaskSpec> tasks = ClientTasks();
  (*tasks.back().mutable_requirements())["place"] = "elsewhere";
  const std::string unwanted = StartRound(root, SpecOf(Grouped(tasks, kClients)));
  const auto below = [&] { return RoundsOf(edge.server).front(); };
  WaitUntil("the edge has begun the second round", kSoon,
            [&] { return below().spec().job() == unwanted && below().num_contributions() > 0; });
  Cancel(root, unwanted);
  WaitUntil("the round below ends", kSoon, [&] { return IsFinal(below().state()); });
  CHECK(below().state() == v1::CANCELLED);
  CHECK(below().error().find("not this relay's any more") != std::string::npos);
}

}  // namespace sheaf
