// A crash at every write and flush of a script of 300 operations, then at random ones, several in a run: see
// simulated_disk.h for what a crash leaves, aftermath.h for what must hold.
//
// SHEAF_CRASH_SEEDS=n runs every point n times, each with another part kept, and n times as many random runs.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/crash/aftermath.h"
#include "tests/crash/report.h"
#include "tests/storage/temporary_directory.h"

namespace sheaf::crash {
namespace {

constexpr int kOperations = 300;
constexpr int kRandomRuns = 12;
constexpr int kHeldRuns = 40;

struct Image {
  std::unique_ptr<SimulatedDisk> disk;
  Ledger::Mark mark;
  absl::Time now;
  int64_t point;
};

TEST_CASE("A crash at any write or flush loses nothing that was acknowledged and counts nothing twice") {
  Report report("crash points");
  for (int seed = 1; seed <= Effort(); ++seed) {
    ManualClock clock;
    SimulatedDisk disk;
    SeededRandom random(static_cast<uint64_t>(seed) * 1000);
    Script script(7, clock);
    std::vector<Image> images;
    int64_t point = 0;
    disk.set_on_change([&] {
      ++point;
      // Every second one twice, with another part kept.
      for (int64_t i = 0; i <= point % 2; ++i) {
        images.push_back({disk.Crash(random), script.ledger().mark(), clock.Now(), point});
      }
    });
    auto server = DiskServer::Start(disk, clock, ServerOptions());
    REQUIRE(server.ok());
    for (int i = 0; i <= kOperations; ++i) {
      for (const Image& image : images) {
        report.Count(CheckAftermath(*image.disk, image.now, script.ledger(), image.mark, ServerOptions()),
                     [&] { return fmt::format("seed {}, point {}, operation {}", seed, image.point, i); });
      }
      images.clear();
      if (i < kOperations) script.Step(**server);
    }
    for (const std::string& complaint : script.ledger().complaints) report.Violate(complaint);
    report.Note("writes and flushes", point);
  }
  report.Print();
  CHECK(report.count() >= 5000);
  CHECK(report.num_violations() == 0);
}

TEST_CASE("Crashes at random points, one after the other, also while a server starts, lose nothing either") {
  Report report("random crashes");
  for (int seed = 1; seed <= kRandomRuns * Effort(); ++seed) {
    ManualClock clock;
    SeededRandom random(static_cast<uint64_t>(seed));
    Script script(random.Bits(), clock);
    auto disk = std::make_unique<SimulatedDisk>();
    int operations = 0;
    while (operations < kOperations) {
      // The change at which this life ends.
      int64_t left = 1 + static_cast<int64_t>(random.Below(random.Chance(0.3) ? 60 : 1500));
      std::unique_ptr<SimulatedDisk> after;
      Ledger::Mark mark{};
      DiskServer* running = nullptr;
      disk->set_on_change([&] {
        if (--left != 0) return;
        after = disk->Crash(random);
        mark = script.ledger().mark();
        if (running != nullptr) running->Kill();
      });
      {
        auto server = DiskServer::Start(*disk, clock, ServerOptions(random.Bits()));
        running = server.ok() ? server->get() : nullptr;
        if (!server.ok()) {
          report.Violate(fmt::format("seed {}: the server does not start: {}", seed, server.status().ToString()));
          break;
        }
        while (after == nullptr && operations < kOperations) {
          script.Step(**server);
          ++operations;
        }
      }
      if (after == nullptr) break;
      report.Count(CheckAftermath(*after->Copy(), clock.Now(), script.ledger(), mark, ServerOptions()),
                   [&] { return fmt::format("seed {}, operation {}", seed, operations); });
      disk = std::move(after);
    }
  }
  report.Print();
  CHECK(report.num_violations() == 0);
}

TEST_CASE("While a backup holds the store, neither full disks nor crashes, one after the other, lose anything") {
  // What each leaves behind the end of the log stays there: it is not begun anew before the hold ends.
  Report report("crashes under a hold");
  const TemporaryDirectory directory;
  const auto gate = HoldGate::Open(directory.path());
  REQUIRE(gate.ok());
  const auto hold = StoreHold::Take(directory.path());
  REQUIRE(hold.ok());
  for (int seed = 1; seed <= kHeldRuns * Effort(); ++seed) {
    ManualClock clock;
    SeededRandom random(static_cast<uint64_t>(seed));
    Script script(random.Bits(), clock);
    script.Expect({absl::StatusCode::kResourceExhausted});
    auto disk = std::make_unique<SimulatedDisk>();
    int operations = 0;
    while (operations < kOperations) {
      std::unique_ptr<SimulatedDisk> after;
      Ledger::Mark mark{};
      {
        DiskServer::Options options = ServerOptions(random.Bits());
        options.gate = gate->get();
        auto server = DiskServer::Start(*disk, clock, options);
        if (!server.ok()) {
          report.Violate(fmt::format("seed {}: the server does not start: {}", seed, server.status().ToString()));
          break;
        }
        disk->set_fault([&](const DiskCall& call) {
          if (after != nullptr || !call.path.ends_with("/tasks.db-wal")) return DiskFault{};
          if (call.operation == DiskOperation::kWrite && random.Chance(0.02)) {
            report.Note("full disks", 1);
            return DiskFault{.error = ENOSPC, .written = random.Chance(0.5) ? 0 : 0.6};
          }
          // A whole transaction lies there, and of each sector the crash keeps what it likes.
          if (call.operation == DiskOperation::kSync && random.Chance(0.1)) {
            after = disk->Crash(random);
            mark = script.ledger().mark();
            (*server)->Kill();
          }
          return DiskFault{};
        });
        while (after == nullptr && operations < kOperations) {
          script.Step(**server);
          ++operations;
        }
      }
      if (after == nullptr) break;
      report.Count(CheckAftermath(*after->Copy(), clock.Now(), script.ledger(), mark, ServerOptions()),
                   [&] { return fmt::format("seed {}, operation {}", seed, operations); });
      disk = std::move(after);
    }
    for (const std::string& complaint : script.ledger().complaints) report.Violate(complaint);
  }
  report.Print();
  CHECK(report.num_violations() == 0);
}

}  // namespace
}  // namespace sheaf::crash
