// What operators do while workers hold tasks: replace tokens, take workers out of service and back, restart them and
// the server. Nobody's attempt is lost by it.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "proto/methods.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

std::vector<v1::Task> HeldBy(Federation& federation, const std::string& round, const std::string& worker) {
  std::vector<v1::Task> held;
  for (const v1::Task& task : TasksOf(federation.transport(), round, v1::LEASED)) {
    if (task.worker() == worker) held.push_back(task);
  }
  return held;
}

void WaitUntilHeld(Federation& federation, const std::string& round, const std::string& worker) {
  WaitUntil(worker + " holds a task", absl::Seconds(10), [&] { return !HeldBy(federation, round, worker).empty(); });
}

v1::Worker WorkerOf(Federation& federation, const std::string& name) {
  const auto response = BlockingCall(federation.transport(), kListWorkers, {});
  REQUIRE(response.ok());
  for (const v1::Worker& worker : response->workers()) {
    if (worker.name() == name) return worker;
  }
  return {};
}

// A server with tokens, of which the test shows an operator's.
class TokenScene {
 public:
  TokenScene() { Make(admin_, {"admin", "--role", "operator", "--role", "submitter"}, false); }

  Federation& federation() { return federation_; }
  std::string Path(const std::string& name) const { return directory_.path() + "/" + name; }
  // Its id.
  std::string Make(const std::string& file, std::vector<std::string> words, bool shows_token = true) {
    std::vector<std::string> argv = {BinaryPath("sheaf"), "--server", federation_.address(), "token", "create"};
    argv.insert(argv.end(), words.begin(), words.end());
    argv.insert(argv.end(), {"--to", file, "-o", "json"});
    if (shows_token) argv.insert(argv.end(), {"--token-file", admin_});
    const CommandRun run = RunCommand(argv);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const size_t id = run.out.find("\"t-");
    REQUIRE(id != std::string::npos);
    return run.out.substr(id + 1, run.out.find('"', id + 1) - id - 1);
  }
  void Revoke(const std::string& id) { CHECK(federation_.Sheaf({"token", "revoke", id}).exit_code == 0); }

 private:
  const TemporaryDirectory directory_ = ScratchDirectory();
  const std::string admin_ = Path("admin.token");
  Federation federation_{{.security = {.token_file = admin_}}};
};

TEST_CASE("A token is replaced under a worker in the middle of a task: no attempt is lost, whichever comes first") {
  for (const bool is_revoked_first : {false, true}) {
    INFO((is_revoked_first ? "the old token is revoked first" : "the new token is there first"));
    TokenScene scene;
    Federation& federation = scene.federation();
    const std::string file = scene.Path("edge.token");
    const std::string old_token = scene.Make(file, {"edge", "--role", "worker"});
    scene.Make(scene.Path("new.token"), {"edge", "--role", "worker"});
    federation.StartWorker("edge", {"--token-file", file, "--concurrency", "2"});
    // Longer than a lease, so that each must be renewed under the new token.
    const std::string round =
        StartRound(federation, OneHotRound({.num_tasks = 2, .work = absl::Seconds(9), .lease = absl::Seconds(6)}));
    WaitUntilHeld(federation, round, "edge");
    if (is_revoked_first) {
      scene.Revoke(old_token);
      ::poll(nullptr, 0, 1500);
    }
    std::filesystem::rename(scene.Path("new.token"), file);
    if (!is_revoked_first) scene.Revoke(old_token);
    const v1::Round ended = Await(federation, round);
    CHECK(ended.num_lost_attempts() == 0);
    CHECK(ended.num_failed_attempts() == 0);
    CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(2, 1));
  }
}

TEST_CASE("A refused worker that holds nothing is back within two seconds of its new token") {
  TokenScene scene;
  Federation& federation = scene.federation();
  const std::string file = scene.Path("edge.token");
  const std::string old_token = scene.Make(file, {"edge", "--role", "worker"});
  scene.Make(scene.Path("new.token"), {"edge", "--role", "worker"});
  ChildProcess& worker = federation.StartWorker("edge", {"--token-file", file});
  WaitUntil("it waits", absl::Seconds(10), [&] { return WorkerOf(federation, "edge").is_parked(); });
  scene.Revoke(old_token);
  WaitUntil("it is refused", absl::Seconds(10),
            [&] { return worker.LogTail(1000).find("refused this worker") != std::string::npos; });
  const absl::Time replaced = federation.clock().Now();
  std::filesystem::rename(scene.Path("new.token"), file);
  WaitUntil("it waits again", absl::Seconds(10), [&] { return WorkerOf(federation, "edge").is_parked(); });
  const absl::Duration took = federation.clock().Now() - replaced;
  CHECK(took < absl::Seconds(2));
  Measured("{} after the file was replaced", absl::FormatDuration(took));
}

TEST_CASE("A drained worker finishes what it holds, stays idle, and works again as soon as it is taken back") {
  Federation federation;
  ChildProcess& worker = federation.StartWorker("edge");
  const std::string first = StartRound(federation, OneHotRound({.num_tasks = 2, .work = absl::Milliseconds(1500)}));
  WaitUntilHeld(federation, first, "edge");
  const CommandRun drained = federation.Sheaf({"worker", "drain", "edge"});
  CHECK(drained.exit_code == 0);
  CHECK_THAT(drained.out, Contains("finishes what it holds (1 lease)"));
  CHECK_THAT(federation.Sheaf({"worker", "list"}).out, Contains("DRAINING"));
  WaitUntil("it has finished", absl::Seconds(10),
            [&] { return RoundOf(federation.transport(), first).tasks().succeeded() == 1; });
  WaitUntil("it waits", absl::Seconds(10), [&] { return WorkerOf(federation, "edge").is_parked(); });
  CHECK_THAT(federation.Sheaf({"worker", "list"}).out, Contains("DRAINED"));
  CHECK(federation.Sheaf({"worker", "list", "--state", "DRAINED", "--no-headers"}).out.find("edge") !=
        std::string::npos);
  // It stays, and takes nothing.
  ::poll(nullptr, 0, 500);
  CHECK(worker.IsRunning());
  CHECK(RoundOf(federation.transport(), first).tasks().queued() == 1);

  // Under its name a restarted worker stays drained, and so it does when the server is restarted.
  federation.KillWorker("edge");
  federation.KillServer();
  federation.StartServer();
  federation.RestartWorker("edge");
  WaitUntil("it waits again", absl::Seconds(10), [&] { return WorkerOf(federation, "edge").is_parked(); });
  ::poll(nullptr, 0, 300);
  CHECK(RoundOf(federation.transport(), first).tasks().queued() == 1);

  const absl::Time told = federation.clock().Now();
  const CommandRun undone = federation.Sheaf({"worker", "drain", "edge", "--undo"});
  CHECK(undone.exit_code == 0);
  CHECK_THAT(undone.out, Contains("back in service"));
  WaitUntilHeld(federation, first, "edge");
  const absl::Duration took = federation.clock().Now() - told;
  CHECK(took < absl::Seconds(1));
  Measured("held a task {} after the command began", absl::FormatDuration(took));
  Await(federation, first);
}

TEST_CASE("A worker told to end when it is drained does, and what is said of an absent or unknown worker is true") {
  Federation federation;
  ChildProcess& worker = federation.StartWorker("script", {"--exit-when-drained", "true"});
  WaitUntil("it waits", absl::Seconds(10), [&] { return WorkerOf(federation, "script").is_parked(); });
  CHECK(federation.Sheaf({"worker", "drain", "script"}).exit_code == 0);
  CHECK(EndOf(worker, absl::Seconds(5)) == "exit code 0");
  ::poll(nullptr, 0, 300);
  const CommandRun undone = federation.Sheaf({"worker", "drain", "script", "--undo"});
  CHECK(undone.exit_code == 0);
  CHECK_THAT(undone.out, Contains("is not connected") && Contains("script"));
  CHECK(undone.out.find("is back in service") == std::string::npos);
  CHECK_THAT(federation.Sheaf({"worker", "drain", "script"}).out, Contains("is not connected"));
  const CommandRun unknown = federation.Sheaf({"worker", "drain", "nobody"});
  CHECK(unknown.exit_code == 3);
  CHECK_THAT(unknown.err, Contains("nobody") && Contains("worker list"));
}

TEST_CASE(
    "A worker killed in the middle of a task and restarted under its name goes on with it, and loses no attempt") {
  Federation federation;
  federation.StartWorker("edge");
  const std::string round =
      StartRound(federation, OneHotRound({.num_tasks = 1, .work = absl::Seconds(5), .lease = absl::Seconds(3)}));
  WaitUntilHeld(federation, round, "edge");
  // The second life takes longer than the lease to get as far as the first.
  ::poll(nullptr, 0, 4200);
  federation.KillWorker("edge");
  federation.RestartWorker("edge");
  const v1::Round ended = Await(federation, round);
  CHECK(ended.num_lost_attempts() == 0);
  CHECK(TaskOf(federation.transport(), round + "/0").attempts_size() == 1);
}

TEST_CASE("A worker is back within a second or so of a restarted server, however long that was away") {
  Federation federation;
  federation.StartWorker("edge");
  WaitUntil("it waits", absl::Seconds(10), [&] { return WorkerOf(federation, "edge").is_parked(); });
  for (const absl::Duration away : {absl::Milliseconds(200), absl::Seconds(2), absl::Seconds(15)}) {
    federation.KillServer();
    ::poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(away)));
    federation.StartServer();
    const absl::Time serves = federation.clock().Now();
    WaitUntil("it waits again", absl::Seconds(20), [&] { return WorkerOf(federation, "edge").is_parked(); });
    const absl::Duration took = federation.clock().Now() - serves;
    CHECK(took < absl::Seconds(2.5));
    Measured("back {} after a server that was away for {}", absl::FormatDuration(took), absl::FormatDuration(away));
  }
}

TEST_CASE("Ctrl-C on a command that waits for a round says that the round goes on") {
  Federation federation;
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 1}));
  absl::StatusOr<ChildProcess> wait =
      ChildProcess::Start({.argv = {BinaryPath("sheaf"), "--server", federation.address(), "round", "watch", round},
                           .log_path = federation.directory() + "/watch.log"});
  REQUIRE(wait.ok());
  WaitUntil("it watches", absl::Seconds(10), [&] { return wait->LogTail(10).find("0/1") != std::string::npos; });
  REQUIRE(::kill(wait->pid(), SIGINT) == 0);
  CHECK(EndOf(*wait, absl::Seconds(5)) == "signal 2 (Interrupt)");
  CHECK_THAT(wait->LogTail(10), Contains("round " + round + " goes on") && Contains("round cancel " + round));
  CHECK(RoundOf(federation.transport(), round).state() == v1::COLLECTING);
}

TEST_CASE("A reader that has seen enough ends a command quietly") {
  const CommandRun run =
      RunCommand({"/bin/bash", "-c", "(sleep 0.3; exec \"$0\" help exit-codes) | true", BinaryPath("sheaf")});
  CHECK(run.err.empty());
  // A disk that is full is another matter.
  const CommandRun full = RunCommand({"/bin/bash", "-c", "\"$0\" help exit-codes > /dev/full", BinaryPath("sheaf")});
  CHECK(full.exit_code == 1);
  CHECK_THAT(full.err, Contains("cannot write to standard output") && Contains("full"));
}

TEST_CASE(
    "The server's log tells who joins and stops, which attempts end badly, who is refused, and what becomes of "
    "tokens") {
  TokenScene scene;
  Federation& federation = scene.federation();
  const std::string file = scene.Path("edge.token");
  const std::string token = scene.Make(file, {"edge", "--role", "worker"});
  federation.StartWorker("edge-1", {"--token-file", file, "--label", "zone=eu"});
  const std::string round =
      StartRound(federation, OneHotRound({.num_tasks = 1, .work = absl::Seconds(20), .lease = absl::Seconds(1)}));
  WaitUntilHeld(federation, round, "edge-1");
  federation.KillWorker("edge-1");
  const auto says = [&](const std::string& words) {
    WaitUntil("the log says \"" + words + "\"", absl::Seconds(10),
              [&] { return federation.server().LogTail(1000).find(words) != std::string::npos; });
  };
  says("worker edge-1 of population default joins as edge");
  says("labels zone=eu");
  says("task " + round + "/0: attempt 1 of worker edge-1 LOST, the task is QUEUED");
  CHECK(federation.Sheaf({"worker", "drain", "edge-1"}).exit_code == 0);
  says("worker edge-1 of population default is drained");
  ChildProcess& second = federation.RestartWorker("edge-1");
  WaitUntil("it waits", absl::Seconds(10), [&] { return WorkerOf(federation, "edge-1").is_parked(); });
  second.Terminate();
  says("worker edge-1 of population default stops");
  scene.Revoke(token);
  says("token " + token + " of edge is revoked by admin");
  CHECK(RunCommand({BinaryPath("sheaf"), "--server", federation.address(), "--token-file", file, "round", "list"})
            .exit_code == 4);
  says("is refused: token " + token + " of edge was revoked");
  says("token " + token + " of edge is made by admin: worker, for all populations");
}

}  // namespace
}  // namespace sheaf
