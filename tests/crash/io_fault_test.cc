// One operation on the disk fails, or all from then on: the first, the second, the third ... of each kind, in each
// place. What was acknowledged is kept, a failed flush ends the process, a full disk does not.
//
// SHEAF_CRASH_SEEDS=n takes n times as many calls of each kind.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/crash/aftermath.h"
#include "tests/crash/report.h"

namespace sheaf::crash {
namespace {

constexpr int kOperations = 90;
constexpr int kOperationsAfter = 20;
// The first calls of each kind one by one; later ones farther and farther apart.
constexpr int64_t kOneByOne = 8;

using Op = DiskOperation;

struct Place {
  const char* name;
  const char* path;
  bool is_end = false;
};
constexpr Place kPlaces[] = {
    {"database", "/tasks.db", true},
    {"log", "/tasks.db-wal", true},
    {"spool", "/spools"},
    {"checkpoints", "/checkpoints"},
    {"uploads", "/uploads"},
    {"blobs", "/blobs"},
    {"store", "/store"},
};

struct Kind {
  const char* name;
  std::vector<Op> operations;
  DiskFault fault;
};
const std::vector<Kind>& Kinds() {
  static const std::vector<Kind> kinds = {
      {"EIO in a write", {Op::kWrite}, {.error = EIO}},
      {"a full disk", {Op::kWrite, Op::kCreate, Op::kCreateDirectory, Op::kRename, Op::kLink}, {.error = ENOSPC}},
      {"a short write", {Op::kWrite}, {.error = EIO, .written = 0.6}},
      {"a short write on a full disk", {Op::kWrite}, {.error = ENOSPC, .written = 0.6}},
      {"a failed flush", {Op::kSync}, {.error = EIO}},
      {"a failed flush of a directory", {Op::kSyncDirectory}, {.error = EIO}},
      {"a failed rename or link", {Op::kRename, Op::kLink}, {.error = EIO}},
      {"EIO in a read", {Op::kRead, Op::kOpen}, {.error = EIO}},
      {"EIO when names change",
       {Op::kCreate, Op::kCreateDirectory, Op::kRemoveDirectory, Op::kUnlink, Op::kTruncate},
       {.error = EIO}},
  };
  return kinds;
}

struct Point {
  const Place* place;
  const Kind* kind;
  int64_t call = 0;
  bool is_sticky = false;

  bool Matches(const DiskCall& call_made) const {
    const bool is_there = place->is_end ? call_made.path.ends_with(place->path)
                                        : call_made.path.find(place->path) != std::string_view::npos;
    const std::vector<Op>& operations = kind->operations;
    return is_there && std::find(operations.begin(), operations.end(), call_made.operation) != operations.end();
  }
};

// Runs the script with one fault; the first thing that is wrong. `num_calls`: how many calls matched. `outcome`: of the
// server, in a word or two.
std::string RunPoint(const Point& point, int64_t& num_calls, std::string& outcome) {
  ManualClock clock;
  SeededRandom random(static_cast<uint64_t>(point.call));
  SimulatedDisk disk;
  Script script(11, clock);
  script.Expect(point.kind->fault.error == ENOSPC
                    ? std::vector{absl::StatusCode::kResourceExhausted}
                    : std::vector{absl::StatusCode::kInternal, absl::StatusCode::kDataLoss});
  num_calls = 0;
  bool has_healed = false;
  disk.set_fault([&](const DiskCall& call) {
    if (has_healed || !point.Matches(call)) return DiskFault{};
    ++num_calls;
    return num_calls == point.call || (point.is_sticky && num_calls > point.call) ? point.kind->fault : DiskFault{};
  });
  const auto server = DiskServer::Start(disk, clock, ServerOptions());
  for (int i = 0; i < kOperations && server.ok() && (*server)->stop_status().ok(); ++i) script.Step(**server);
  const std::unique_ptr<SimulatedDisk> left = disk.Crash(random);
  const Ledger::Mark mark = script.ledger().mark();
  const absl::Time now = clock.Now();
  const auto after_crash = [&] { return CheckAftermath(*left, now, script.ledger(), mark, ServerOptions()); };
  if (!script.ledger().complaints.empty()) return script.ledger().complaints.front();

  if (!server.ok()) {
    outcome = "not started";
    return after_crash();
  }
  if (!(*server)->stop_status().ok()) {
    outcome = "stopped";
    if (point.kind->fault.error == ENOSPC) return "a full disk ended it: " + (*server)->stop_status().ToString();
    return after_crash();
  }
  for (const auto& [path, file] : disk.Files()) {
    // What is written back to the database stays in the log until it is flushed.
    if (file->has_lost_changes && !path.ends_with("/tasks.db")) return path + " could not be flushed, and it goes on";
  }
  // The disk is well again.
  has_healed = true;
  outcome = "went on";
  clock.Advance(absl::Seconds(2));
  (*server)->Run();
  script.Expect({});
  for (int i = 0; i < kOperationsAfter && (*server)->stop_status().ok(); ++i) script.Step(**server);
  if (!(*server)->stop_status().ok()) return "it stopped afterwards: " + (*server)->stop_status().ToString();
  if (!script.ledger().complaints.empty()) return "afterwards: " + script.ledger().complaints.front();
  const std::string violation = CheckServer(**server, clock, script.ledger(), script.ledger().mark(), true);
  return violation.empty() ? after_crash() : "afterwards: " + violation;
}

TEST_CASE("No I/O error loses what was acknowledged; a failed flush ends the process, a full disk does not") {
  Report report("I/O faults");
  for (const Place& place : kPlaces) {
    for (const Kind& kind : Kinds()) {
      for (const bool is_sticky : {false, true}) {
        Point point{.place = &place, .kind = &kind, .is_sticky = is_sticky};
        int64_t num_calls = 0;
        int64_t step = 1;
        for (point.call = 1; point.call == 1 || point.call <= num_calls; point.call += step) {
          int64_t seen = 0;
          std::string outcome;
          const std::string violation = RunPoint(point, seen, outcome);
          num_calls = std::max(num_calls, seen);
          if (seen < point.call) break;
          report.Note(outcome, 1);
          report.Count(violation, [&] {
            return fmt::format("{} in {}, call {}{}", kind.name, place.name, point.call, is_sticky ? " and on" : "");
          });
          if (point.call >= kOneByOne * Effort()) step *= 2;
        }
      }
    }
  }
  report.Print();
  CHECK(report.count() >= 300);
  CHECK(report.num_violations() == 0);
}

template <typename Response, typename Request>
absl::Status Ask(DiskServer& server, const std::string& method, const Request& request) {
  return server.Call<Response>(method, request).status();
}

TEST_CASE("While a full disk fails every batch, whoever only looks is answered") {
  ManualClock clock;
  SimulatedDisk disk;
  const auto server = DiskServer::Start(disk, clock, ServerOptions());
  REQUIRE(server.ok());
  v1::CreateRoundRequest create;
  create.set_request_id("create");
  create.mutable_spec()->mutable_computation()->set_name("noop");
  v1::OutputSpec& output = *create.mutable_spec()->mutable_aggregate()->add_outputs();
  output.set_name("x");
  output.set_operator_("sum");
  output.set_dtype(v1::FLOAT32);
  create.mutable_spec()->mutable_lease_duration()->set_seconds(5);
  create.mutable_spec()->mutable_listed()->add_tasks();
  const auto created = (*server)->Call<v1::CreateRoundResponse>("RoundService/CreateRound", create);
  REQUIRE(created.ok());
  const std::string round = created->round().id();
  v1::SyncRequest poll;
  poll.set_protocol_version(1);
  poll.set_worker("w");
  poll.set_poll_id("poll");
  poll.add_computations()->set_name("noop");
  poll.set_want(1);
  REQUIRE((*server)->Call<v1::SyncResponse>("WorkService/Sync", poll)->leases_size() == 1);

  disk.set_fault([](const DiskCall& call) {
    return call.operation == Op::kWrite || call.operation == Op::kCreate ? DiskFault{.error = ENOSPC} : DiskFault{};
  });
  // From now on every batch has an expired lease to write down.
  clock.Advance(absl::Seconds(6));
  DiskServer& full = **server;
  for (int i = 0; i < 20; ++i) {
    poll.set_poll_id("poll-" + std::to_string(i));
    CHECK(absl::IsResourceExhausted(Ask<v1::SyncResponse>(full, "WorkService/Sync", poll)));
    v1::GetRoundRequest get;
    get.set_round(round);
    v1::GetTaskRequest task;
    task.set_task(round + "/0");
    v1::ExplainRoundRequest explain;
    explain.set_round(round);
    v1::ListTasksRequest tasks;
    tasks.set_round(round);
    for (const absl::Status& looked :
         {Ask<v1::GetServerInfoResponse>(full, "InspectionService/GetServerInfo", v1::GetServerInfoRequest()),
          Ask<v1::DescribeQueueResponse>(full, "InspectionService/DescribeQueue", v1::DescribeQueueRequest()),
          Ask<v1::ListWorkersResponse>(full, "InspectionService/ListWorkers", v1::ListWorkersRequest()),
          Ask<v1::ListTasksResponse>(full, "InspectionService/ListTasks", tasks),
          Ask<v1::GetTaskResponse>(full, "InspectionService/GetTask", task),
          Ask<v1::ExplainRoundResponse>(full, "InspectionService/ExplainRound", explain),
          Ask<v1::ListRoundsResponse>(full, "RoundService/ListRounds", v1::ListRoundsRequest()),
          Ask<v1::GetRoundResponse>(full, "RoundService/GetRound", get)}) {
      INFO(looked.ToString());
      CHECK(looked.ok());
    }
    // Nothing that the failed batch assumed is shown.
    const auto seen = full.Call<v1::GetTaskResponse>("InspectionService/GetTask", task);
    CHECK(seen->task().state() == v1::LEASED);
    CHECK(seen->task().num_lost() == 0);
    // What is not there is not there, and what would change something is refused.
    get.set_round("r-nosuch22");
    CHECK(absl::IsNotFound(Ask<v1::GetRoundResponse>(full, "RoundService/GetRound", get)));
    v1::CancelRoundRequest cancel;
    cancel.set_round(round);
    cancel.set_request_id("cancel");
    CHECK(absl::IsResourceExhausted(Ask<v1::CancelRoundResponse>(full, "RoundService/CancelRound", cancel)));
    clock.Advance(absl::Seconds(1));
  }
  REQUIRE(full.stop_status().ok());

  // Also a server that starts without any room.
  SeededRandom random(1);
  const std::unique_ptr<SimulatedDisk> left = disk.Crash(random);
  left->set_fault([](const DiskCall& call) {
    return call.operation == Op::kWrite || call.operation == Op::kCreate ? DiskFault{.error = ENOSPC} : DiskFault{};
  });
  const auto restarted = DiskServer::Start(*left, clock, ServerOptions());
  INFO(restarted.status().ToString());
  REQUIRE(restarted.ok());
  CHECK(
      Ask<v1::GetServerInfoResponse>(**restarted, "InspectionService/GetServerInfo", v1::GetServerInfoRequest()).ok());
  CHECK(Ask<v1::ListRoundsResponse>(**restarted, "RoundService/ListRounds", v1::ListRoundsRequest()).ok());
}

TEST_CASE("A server on a file system without hard links does not start, and says what is missing") {
  for (const int error : {EPERM, EOPNOTSUPP}) {
    ManualClock clock;
    SimulatedDisk disk;
    disk.set_fault(
        [&](const DiskCall& call) { return call.operation == Op::kLink ? DiskFault{.error = error} : DiskFault{}; });
    const auto server = DiskServer::Start(disk, clock, ServerOptions());
    CHECK(absl::IsFailedPrecondition(server.status()));
    CHECK_THAT(std::string(server.status().message()), Catch::Contains("hard links, which uploads need"));
  }
}

}  // namespace
}  // namespace sheaf::crash
