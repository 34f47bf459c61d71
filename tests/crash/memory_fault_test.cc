// SQLite asks for memory and gets none, once or from then on: the first time, and at times drawn over a whole script.
// There is an error, never a wrong state.
//
// SHEAF_CRASH_SEEDS=n draws n times as many times.
#include <fmt/format.h>
#include <sqlite3.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "base/clock.h"
#include "tests/crash/aftermath.h"
#include "tests/crash/report.h"

namespace sheaf::crash {
namespace {

constexpr int kOperations = 40;
constexpr int kTimes = 400;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// SQLite's memory, in between.
sqlite3_mem_methods real_memory;
int64_t num_requests = 0;
int64_t fails_from = kNever;
int64_t fails_until = kNever;

bool Fails() {
  ++num_requests;
  return num_requests >= fails_from && num_requests < fails_until;
}
void* Allocate(int size) { return Fails() ? nullptr : real_memory.xMalloc(size); }
void* Reallocate(void* memory, int size) { return Fails() ? nullptr : real_memory.xRealloc(memory, size); }

void TakeMemoryOver() {
  static const bool done = [] {
    sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_memory);
    sqlite3_mem_methods ours = real_memory;
    ours.xMalloc = Allocate;
    ours.xRealloc = Reallocate;
    return sqlite3_config(SQLITE_CONFIG_MALLOC, &ours) == SQLITE_OK && sqlite3_initialize() == SQLITE_OK;
  }();
  REQUIRE(done);
}

// Runs the script while memory fails; then what is left must be in order.
std::string RunPoint(int64_t from, int64_t until, std::string& outcome) {
  ManualClock clock;
  SeededRandom random(static_cast<uint64_t>(from));
  SimulatedDisk disk;
  Script script(11, clock);
  script.Expect({absl::StatusCode::kInternal});
  num_requests = 0;
  fails_from = from;
  fails_until = until;
  const auto server = DiskServer::Start(disk, clock, ServerOptions());
  for (int i = 0; i < kOperations && server.ok() && (*server)->stop_status().ok(); ++i) script.Step(**server);
  fails_from = fails_until = kNever;
  outcome = !server.ok() ? "not started" : (*server)->stop_status().ok() ? "went on" : "stopped";
  if (!script.ledger().complaints.empty()) return script.ledger().complaints.front();
  const Ledger::Mark mark = script.ledger().mark();
  std::string violation = CheckAftermath(*disk.Crash(random), clock.Now(), script.ledger(), mark, ServerOptions());
  if (!violation.empty() || outcome != "went on") return violation;
  const std::string afterwards = CheckServer(**server, clock, script.ledger(), mark);
  return afterwards.empty() ? "" : "afterwards: " + afterwards;
}

TEST_CASE("SQLite without memory gives an error, never a wrong state") {
  TakeMemoryOver();
  Report report("memory faults");
  std::string outcome;
  REQUIRE(RunPoint(kNever, kNever, outcome).empty());
  const int64_t total = num_requests;
  SeededRandom random(3);
  for (int i = 0; i < kTimes * Effort(); ++i) {
    // One in four where the server starts.
    const int64_t from = 1 + static_cast<int64_t>(random.Below(i % 4 == 0 ? 2000 : static_cast<uint64_t>(total)));
    const int64_t until = i % 3 == 0 ? kNever : from + 1;
    const std::string violation = RunPoint(from, until, outcome);
    report.Note(outcome, 1);
    report.Count(violation, [&] { return fmt::format("request {}{}", from, until == kNever ? " and on" : ""); });
  }
  report.Print();
  CHECK(report.num_violations() == 0);
}

}  // namespace
}  // namespace sheaf::crash
