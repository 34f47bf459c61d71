// What one version does not have of the other: it works without, or somebody is told in a sentence.
#include "proto/methods.h"
#include "tests/compat/released.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

constexpr absl::Duration kSoon = absl::Seconds(20);

v1::Worker WorkerOf(Federation& federation, const std::string& name) {
  const absl::StatusOr<v1::ListWorkersResponse> listed = BlockingCall(federation.transport(), kListWorkers, {});
  REQUIRE(listed.ok());
  for (const v1::Worker& worker : listed->workers()) {
    if (worker.name() == name) return worker;
  }
  return {};
}

void AwaitWorker(Federation& federation, const std::string& name) {
  WaitUntil(name + " has called", kSoon, [&] { return WorkerOf(federation, name).name() == name; });
}

TEST_CASE("A worker says which protocol it speaks, and a server of either version which it serves") {
  for (const Programs& programs : {Programs(), Released()}) {
    Federation federation({.programs = programs});
    for (const auto& [name, program] : {std::pair("released", Released().worker), {"today", Programs().worker}}) {
      federation.programs().worker = program;
      federation.StartWorker(name);
      AwaitWorker(federation, name);
      const int version = WorkerOf(federation, name).protocol_version();
      CHECK(version >= 1);
      const v1::SyncResponse answer = SyncOnce(federation.transport(), [&] {
        v1::SyncRequest request = APoll(fmt::format("asks-{}", name), "poll", 0);
        request.set_protocol_version(1);
        return request;
      }());
      CHECK(answer.protocol_version() == 1);
      CHECK(answer.protocol_version_min() == 1);
      CHECK(answer.protocol_version_max() >= version);
    }
  }
}

// --- Drained workers ---

TEST_CASE("A worker of today that a server of 0.1 drains waits, and works again when it is taken back") {
  Federation federation({.programs = {.sheafd = Released().sheafd}});
  ChildProcess& worker = federation.StartWorker("w1");
  AwaitWorker(federation, "w1");
  REQUIRE(federation.Sheaf({"worker", "drain", "w1"}).exit_code == 0);
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 2}));
  CHECK(!worker.WaitForEnd(absl::Seconds(2)));
  CHECK(RoundOf(federation.transport(), round).num_contributions() == 0);
  REQUIRE(federation.Sheaf({"worker", "drain", "w1", "--undo"}).exit_code == 0);
  Await(federation, round);
}

TEST_CASE("A worker of 0.1 that a server of today drains finishes what it holds and ends, as it did at its own") {
  Federation federation({.programs = {.worker = Released().worker}});
  ChildProcess& worker = federation.StartWorker("w1");
  const std::string round =
      StartRound(federation, OneHotRound({.num_tasks = 1, .work = absl::Seconds(1), .lease = absl::Seconds(30)}));
  WaitUntil("the task runs", kSoon, [&] { return RoundOf(federation.transport(), round).tasks().leased() == 1; });
  REQUIRE(federation.Sheaf({"worker", "drain", "w1"}).exit_code == 0);
  CHECK(EndOf(worker, kSoon) == "exit code 0");
  CHECK(Await(federation, round).num_lost_attempts() == 0);
  // Its name stays drained: whoever starts it again is told so, by the worker's log and by the command line.
  ChildProcess& again = federation.RestartWorker("w1");
  CHECK(EndOf(again, kSoon) == "exit code 0");
  CHECK_THAT(again.LogTail(20), Contains("draining, because the server said so"));
  CHECK_THAT(federation.Sheaf({"worker", "list"}).out, Contains("DRAINED"));
  REQUIRE(federation.Sheaf({"worker", "drain", "w1", "--undo"}).exit_code == 0);
  federation.RestartWorker("w1");
  Await(federation, StartRound(federation, OneHotRound({.num_tasks = 1})));
}

// --- Trees, which 0.1 does not know ---

// Two tasks for relays, each of which stands for three.
v1::RoundSpec TreeRound() {
  v1::RoundSpec leaves = OneHotRound({.num_tasks = 6, .lease = absl::Seconds(30)});
  v1::RoundSpec spec = leaves;
  spec.mutable_listed()->clear_tasks();
  for (int i = 0; i < 2; ++i) {
    v1::ListedTasks group;
    for (int j = 0; j < 3; ++j) *group.add_tasks() = leaves.listed().tasks(3 * i + j);
    spec.mutable_listed()->add_tasks()->set_payload(group.SerializeAsString());
  }
  spec.mutable_retry()->set_failed_max(1);
  return spec;
}

TEST_CASE("A relay has its tasks done by workers of 0.1, and passes them on from a server of 0.1") {
  Federation edge({.programs = {.worker = Released().worker}});
  edge.StartWorker("leaf");
  for (const std::string& sheafd : {Programs().sheafd, Released().sheafd}) {
    INFO(sheafd);
    Federation root({.programs = {.sheafd = sheafd}});
    root.StartWorker("relay", {"--relay", edge.address()});
    const std::string round = StartRound(root, TreeRound());
    Await(root, round);
    CHECK(CountsOf(root.transport(), round) == std::vector<int64_t>(6, 1));
  }
}

TEST_CASE("A relay to a server of 0.1 takes no tasks, says why, and takes them once that server is of today") {
  Federation edge({.programs = {.sheafd = Released().sheafd}});
  edge.StartWorker("leaf");
  AwaitWorker(edge, "leaf");
  Federation root;
  const ChildProcess& relay = root.StartWorker("relay", {"--relay", edge.address()});
  const std::string round = StartRound(root, TreeRound());
  WaitUntil("the relay says why", kSoon,
            [&] { return relay.LogTail(20).find("it is older than 0.2: upgrade that server") != std::string::npos; });
  AwaitWorker(root, "relay");
  CHECK(RoundOf(root.transport(), round).tasks().queued() == 2);
  CHECK_THAT(root.Sheaf({"round", "explain", round}).out, Contains("slow"));

  edge.KillServer();
  edge.programs() = Programs();
  edge.StartServer();
  Await(root, round);
  CHECK(CountsOf(root.transport(), round) == std::vector<int64_t>(6, 1));
}

// --- Commands and addresses that 0.1 does not know ---

TEST_CASE("A command that a server of 0.1 does not know says so") {
  Federation federation({.programs = {.sheafd = Released().sheafd}});
  const CommandRun run = federation.Sheaf({"server", "list"});
  INFO(run.out << run.err);
  CHECK(run.exit_code != 0);
  CHECK_THAT(run.err, Contains("older"));
}

}  // namespace
}  // namespace sheaf
