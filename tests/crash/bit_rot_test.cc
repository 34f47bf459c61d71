// One bit flips, or the end of a file is gone, while the server is down: at places drawn at random in every kind of
// file. The server that comes up says DATA_LOSS and names what is damaged, or everything is as it would have been. Only
// the end of SQLite's log, which is there after a crash alone, may be lost as a crash would lose it (docs/adr/0008).
//
// SHEAF_CRASH_SEEDS=n draws n times as many places.
#include <fmt/format.h>
#include <sqlite3.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "storage/sqlite/sqlite_connection.h"
#include "tests/crash/aftermath.h"
#include "tests/crash/report.h"

namespace sheaf::crash {
namespace {

struct FileKind {
  const char* name;
  const char* path;
  int num_places;
};
// Places in each of the images below.
constexpr FileKind kKinds[] = {{"database", "tasks.db", 120}, {"log", "tasks.db-wal", 60},
                               {"spool", "/spools/", 30},     {"checkpoints", "/checkpoints/", 30},
                               {"blobs", "/blobs/", 20},      {"uploads", "/uploads/", 10}};
// The script is looked at after each of these numbers of operations.
constexpr int kStops[] = {40, 75, 110, 145, 180, 215, 250, 285};

constexpr bool kDoesNotLook = false;

// And named: by its file, or by the round whose bytes are missing.
bool IsNoticed(const std::string& violation) {
  return violation.find("DATA_LOSS") != std::string::npos &&
         (violation.find("/store/") != std::string::npos || violation.find("round r-") != std::string::npos);
}

struct Damage {
  size_t place;
  int bit;
  // The file ends before `place`.
  bool is_cut;

  void ApplyTo(std::string& bytes) const {
    if (is_cut) {
      bytes.resize(place);
    } else {
      bytes[place] = static_cast<char>(bytes[place] ^ (1 << bit));
    }
  }
  std::string ToText() const {
    return is_cut ? fmt::format("cut at byte {}", place) : fmt::format("bit {} of byte {}", bit, place);
  }
};

// Where the last transaction in a log begins: the frame after the last but one that ends a transaction.
size_t LastTransaction(const std::string& log) {
  constexpr size_t kHeaderBytes = 32;
  constexpr size_t kFrameBytes = 24 + 4096;
  size_t begin = kHeaderBytes;
  size_t end = kHeaderBytes;
  for (size_t at = kHeaderBytes; at + kFrameBytes <= log.size(); at += kFrameBytes) {
    // The salts say which frames are of the log's present use.
    if (log.compare(at + 8, 8, log, 16, 8) != 0) break;
    if (log.compare(at + 4, 4, std::string(4, '\0')) != 0) begin = std::exchange(end, at + kFrameBytes);
  }
  return begin;
}

TEST_CASE("A bit that flips or a tail that is lost is noticed and named, or changes nothing") {
  Report report("bit rot");
  ManualClock clock;
  SimulatedDisk disk;
  SeededRandom random(5);
  Script script(7, clock);
  auto server = DiskServer::Start(disk, clock, ServerOptions());
  REQUIRE(server.ok());
  int operations = 0;
  for (const int stop : kStops) {
    while (operations < stop) {
      script.Step(**server);
      ++operations;
    }
    const Ledger::Mark mark = script.ledger().mark();
    for (const FileKind& kind : kKinds) {
      for (int i = 0; i < kind.num_places * Effort(); ++i) {
        const std::unique_ptr<SimulatedDisk> copy = disk.Copy();
        std::vector<std::pair<std::string, SimulatedDisk::NodePtr>> files;
        for (const auto& [path, file] : copy->Files()) {
          const bool is_kind =
              kind.path[0] == '/' ? path.find(kind.path) != std::string::npos : path.ends_with(kind.path);
          if (is_kind && !file->bytes.empty()) files.emplace_back(path, file);
        }
        if (files.empty()) continue;
        const auto& [path, file] = files[random.Below(files.size())];
        const Damage damage{.place = random.Below(file->bytes.size()),
                            .bit = static_cast<int>(random.Below(8)),
                            .is_cut = random.Chance(0.15)};
        const bool may_look_like_a_crash =
            path.ends_with("-wal") && (damage.is_cut || damage.place >= LastTransaction(file->bytes));
        damage.ApplyTo(file->bytes);
        std::string found = CheckAftermath(*copy, clock.Now(), script.ledger(), mark, ServerOptions(), kDoesNotLook);
        std::string outcome = found.empty() ? "harmless" : IsNoticed(found) ? "noticed" : "missed";
        if (outcome == "missed" && may_look_like_a_crash) {
          // What the end of the log promised is gone. What is left must still be true.
          outcome = "end of the log lost";
          const std::unique_ptr<SimulatedDisk> again = disk.Copy();
          damage.ApplyTo(again->Find(path)->bytes);
          found =
              CheckAftermath(*again, clock.Now(), script.ledger(),
                             {.attempted = mark.attempted, .cancelled = mark.cancelled}, ServerOptions(), kDoesNotLook);
          if (found.find("the server does not start: INTERNAL") == 0) found.clear();
        }
        report.Note(outcome, 1);
        report.Count(IsNoticed(found) ? "" : found, [&, &path = path] {
          return fmt::format("operation {}, {} of {}", operations, damage.ToText(), path);
        });
      }
    }
  }
  report.Print();
  CHECK(report.count() >= 2000);
  CHECK(report.num_violations() == 0);
}

TEST_CASE("A database from before there were checksums gets them, with all that is in it") {
  const ManualClock clock;
  SimulatedDisk disk;
  const DiskVfs vfs(disk);
  sqlite3* plain = nullptr;
  REQUIRE(sqlite3_open_v2("/old.db", &plain, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs.name().c_str()) == 0);
  REQUIRE(sqlite3_exec(plain, "CREATE TABLE a (x TEXT); INSERT INTO a VALUES (hex(zeroblob(9000)))", nullptr, nullptr,
                       nullptr) == SQLITE_OK);
  sqlite3_close(plain);
  for (int i = 0; i < 2; ++i) {
    const auto connection = SqliteConnection::Open("/old.db", {.vfs = vfs.name()});
    INFO(connection.status().ToString());
    REQUIRE(connection.ok());
    int64_t length = 0;
    REQUIRE(
        (*connection)->Execute("SELECT length(x) FROM a", {}, [&](const SqlRow& row) { length = row.Int(0); }).ok());
    CHECK(length == 18000);
  }
  // In the middle of the text, where SQLite sees nothing wrong.
  disk.Find("/old.db")->bytes[9000] ^= 1;
  const auto damaged = SqliteConnection::Open("/old.db", {.vfs = vfs.name()});
  const auto read = damaged.ok() ? (*damaged)->Execute("SELECT max(x) FROM a", {}).status() : damaged.status();
  INFO(read.ToString());
  CHECK(absl::IsDataLoss(read));
}

}  // namespace
}  // namespace sheaf::crash
