// Workers as processes: killed, told to stop, and looked at from outside.
#include <poll.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "proto/methods.h"
#include "proto/time.h"
#include "tests/e2e/rounds.h"
#include "tests/e2e/wire.h"

namespace sheaf {
namespace {

std::vector<v1::Task> LeasedBy(Federation& federation, const std::string& round, const std::string& worker) {
  std::vector<v1::Task> leased;
  for (const v1::Task& task : TasksOf(federation.transport(), round, v1::LEASED)) {
    if (task.worker() == worker) leased.push_back(task);
  }
  return leased;
}

v1::Task WaitForLease(Federation& federation, const std::string& round, const std::string& worker) {
  std::vector<v1::Task> leased;
  WaitUntil(worker + " holds a task", absl::Seconds(10), [&] {
    leased = LeasedBy(federation, round, worker);
    return !leased.empty();
  });
  return TaskOf(federation.transport(), leased.front().id());
}

TEST_CASE("A worker killed in the middle of a task: another attempt starts within the lease and a second") {
  constexpr absl::Duration kLease = absl::Seconds(2);
  const Wire wire(GENERATE(from_range(kGrpcAndHttps)));
  Federation federation(wire.Options());
  federation.StartWorker("doomed");
  const std::string round =
      StartRound(federation, OneHotRound({.num_tasks = 6, .work = absl::Milliseconds(1200), .lease = kLease}));
  const v1::Task held = WaitForLease(federation, round, "doomed");
  federation.KillWorker("doomed");
  const absl::Time killed = federation.clock().Now();
  // They do the other tasks, and are parked when the lease expires.
  federation.StartWorker("heir-1", {"--concurrency", "3"});
  federation.StartWorker("heir-2", {"--concurrency", "3"});

  const v1::Round ended = Await(federation, round);
  const v1::Task task = TaskOf(federation.transport(), held.id());
  REQUIRE(task.attempts_size() == 2);
  CHECK(task.attempts(0).worker() == "doomed");
  CHECK(task.attempts(0).outcome() == v1::ATTEMPT_LOST);
  CHECK_THAT(task.attempts(0).error(), Catch::Contains("doomed") && Catch::Contains("lease"));
  CHECK(task.attempts(1).outcome() == v1::ATTEMPT_SUCCEEDED);
  const absl::Duration until_next = FromProto(task.attempts(1).lease_time()) - killed;
  CHECK(until_next <= kLease + absl::Seconds(1));
  CHECK(ended.num_lost_attempts() == 1);
  CHECK(ended.num_failed_attempts() == 0);
  CHECK(ended.aggregate().num_contributions() == 6);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(6, 1));
  Measured("the next attempt began {} after the kill (lease {})", absl::FormatDuration(until_next),
           absl::FormatDuration(kLease));
}

TEST_CASE("A worker that is told to stop finishes what it holds, or gives it back at once when it has no time") {
  const Wire wire(GENERATE(from_range(kGrpcAndHttps)));
  Federation federation(wire.Options());
  ChildProcess& patient = federation.StartWorker("patient");
  ChildProcess& hasty = federation.StartWorker("hasty", {"--grace", "0s"});
  const std::string round = StartRound(
      federation, OneHotRound({.num_tasks = 4, .work = absl::Milliseconds(1500), .lease = absl::Seconds(60)}));
  const v1::Task finished = WaitForLease(federation, round, "patient");
  const v1::Task released = WaitForLease(federation, round, "hasty");
  // The store has a lease before its worker does, and what is not begun is given back in any case.
  ::poll(nullptr, 0, 500);
  const absl::Time told = federation.clock().Now();
  patient.Terminate();
  hasty.Terminate();
  CHECK(EndOf(hasty, absl::Seconds(5)) == "exit code 0");
  const absl::Duration hasty_took = federation.clock().Now() - told;
  CHECK(EndOf(patient, absl::Seconds(5)) == "exit code 0");
  const absl::Duration patient_took = federation.clock().Now() - told;

  const v1::Task done = TaskOf(federation.transport(), finished.id());
  CHECK(done.state() == v1::TASK_SUCCEEDED);
  REQUIRE(done.attempts_size() == 1);
  CHECK(done.attempts(0).outcome() == v1::ATTEMPT_SUCCEEDED);
  const v1::Task back = TaskOf(federation.transport(), released.id());
  CHECK(back.state() == v1::QUEUED);
  REQUIRE(back.attempts_size() == 1);
  CHECK(back.attempts(0).outcome() == v1::ATTEMPT_RELEASED);
  // Nobody holds anything, long before any lease expires.
  CHECK(TasksOf(federation.transport(), round, v1::LEASED).empty());

  federation.StartWorker("heir", {"--concurrency", "4"});
  const v1::Round ended = Await(federation, round);
  CHECK(ended.num_lost_attempts() == 0);
  CHECK(ended.num_failed_attempts() == 0);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(4, 1));
  Measured("after SIGTERM the one without grace ended in {}, the one with grace in {}",
           absl::FormatDuration(hasty_took), absl::FormatDuration(patient_took));
}

// --- Sockets ---

// Inodes of the process's sockets.
std::set<std::string> SocketsOf(pid_t pid) {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid))) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

// How many of the sockets a kernel table lists in this state; "" counts all.
int CountSockets(pid_t pid, const std::string& table, const std::string& state) {
  const std::set<std::string> inodes = SocketsOf(pid);
  std::ifstream file(fmt::format("/proc/{}/net/{}", pid, table));
  std::string line;
  std::getline(file, line);
  int count = 0;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::vector<std::string> fields(std::istream_iterator<std::string>(words), {});
    if (fields.size() > 9 && inodes.contains(fields[9]) && (state.empty() || fields[3] == state)) ++count;
  }
  return count;
}

constexpr char kEstablished[] = "01";
constexpr char kListening[] = "0A";

int NumListening(pid_t pid) { return CountSockets(pid, "tcp", kListening) + CountSockets(pid, "tcp6", kListening); }
int NumEstablished(pid_t pid) {
  return CountSockets(pid, "tcp", kEstablished) + CountSockets(pid, "tcp6", kEstablished);
}

TEST_CASE("A worker opens no listening socket: nobody can connect to it while it works") {
  const Wire wire(GENERATE(from_range(kEveryWire)));
  Federation federation(wire.Options());
  ChildProcess& worker = federation.StartWorker("leaf", {"--concurrency", "2"});
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 12, .work = absl::Milliseconds(150)}));
  int looks = 0;
  while (RoundOf(federation.transport(), round).state() == v1::COLLECTING) {
    if (LeasedBy(federation, round, "leaf").empty()) continue;
    REQUIRE(NumEstablished(worker.pid()) >= 1);
    REQUIRE(NumListening(worker.pid()) == 0);
    REQUIRE(CountSockets(worker.pid(), "udp", "") + CountSockets(worker.pid(), "udp6", "") == 0);
    ++looks;
    ::poll(nullptr, 0, 20);
  }
  Await(federation, round);
  CHECK(looks >= 3);
  // The same look at the server sees its port.
  CHECK(NumListening(federation.server().pid()) >= 1);
  Measured("{} looks while it held tasks: {} established, 0 listening; the server: {} listening", looks,
           NumEstablished(worker.pid()), NumListening(federation.server().pid()));
}

}  // namespace
}  // namespace sheaf
