// Backup, restore, verify and inspect as an operator runs them: on the store of a server that works.
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

namespace fs = std::filesystem;

CommandRun Run(Federation& federation, const std::vector<std::string>& arguments) {
  CommandRun run = federation.Sheaf(arguments);
  INFO(run.out << run.err);
  CHECK(run.exit_code == 0);
  return run;
}

TEST_CASE("A backup made in the middle of a round, restored elsewhere, ends the round with each contribution once") {
  // Checkpoints replace spools all the time.
  Federation federation({.server_arguments = {"--checkpoint-spool-bytes", "64KiB"}});
  federation.StartWorker("w1", {"--concurrency", "2"});
  federation.StartWorker("w2");
  const int num_tasks = 48;
  // Inline, uploaded, and not spooled at all.
  const std::vector<std::string> rounds = {
      StartRound(federation, OneHotRound({.num_tasks = num_tasks, .work = absl::Milliseconds(40), .num_gated = 8})),
      StartRound(
          federation,
          OneHotRound({.num_tasks = num_tasks, .work = absl::Milliseconds(40), .size = 150'000, .num_gated = 8})),
      StartRound(
          federation,
          OneHotRound(
              {.num_tasks = num_tasks, .work = absl::Milliseconds(40), .durability = v1::EPHEMERAL, .num_gated = 8}))};
  const auto count = [](Federation& of, const std::string& round) {
    return RoundOf(of.transport(), round).num_contributions();
  };
  WaitUntil("some contributions of each round are in", absl::Seconds(30), [&] {
    return std::all_of(rounds.begin(), rounds.end(),
                       [&](const std::string& round) { return count(federation, round) >= 3; });
  });

  constexpr int kBackups = 3;
  std::vector<std::vector<int64_t>> before(kBackups);
  std::vector<std::vector<int64_t>> after(kBackups);
  const auto backup_path = [&](int i) { return fmt::format("{}/backup-{}", federation.directory(), i); };
  for (int i = 0; i < kBackups; ++i) {
    for (const std::string& round : rounds) before[i].push_back(count(federation, round));
    Run(federation, {"store", "backup", federation.data_directory(), "--to", backup_path(i)});
    for (const std::string& round : rounds) after[i].push_back(count(federation, round));
    Run(federation, {"store", "verify", federation.data_directory()});
    const CommandRun inspected = Run(federation, {"store", "inspect", federation.data_directory()});
    CHECK(inspected.out.find("3 COLLECTING") != std::string::npos);
    CHECK(inspected.out.find("used by         process ") != std::string::npos);
  }
  federation.KillServer();
  Run(federation, {"store", "verify", federation.data_directory()});

  int64_t counted_again = 0;
  for (int i = 0; i < kBackups; ++i) {
    Run(federation, {"store", "verify", backup_path(i)});
    const std::string restored = fmt::format("{}/restored-{}", federation.directory(), i);
    Run(federation, {"store", "restore", backup_path(i), "--to", restored});
    Run(federation, {"store", "verify", restored});
    Federation second({.data_directory = restored});
    for (size_t k = 0; k < rounds.size(); ++k) {
      const int64_t found = count(second, rounds[k]);
      INFO("backup " << i << ", round " << k << ": " << before[i][k] << " <= " << found << " <= " << after[i][k]);
      CHECK(found <= after[i][k]);
      // What an EPHEMERAL round had accepted is asked for again, as after a crash.
      if (k < 2) CHECK(found >= before[i][k]);
      counted_again += found;
    }
    second.StartWorker("w1", {"--concurrency", "4"});
    second.StartWorker("gate", {"--concurrency", "4", "--label", "gate=open"});
    for (const std::string& round : rounds) {
      const v1::Round ended = Await(second, round);
      CHECK(ended.aggregate().num_contributions() == num_tasks);
      CHECK(CountsOf(second.transport(), round) == std::vector<int64_t>(num_tasks, 1));
    }
    second.StopServer();
    Run(second, {"store", "verify", restored});
  }
  Measured("{} backups of a working server; {} contributions came back from them, {} counted once each", kBackups,
           counted_again, kBackups * rounds.size() * num_tasks);
}

TEST_CASE("A backup whose process is killed leaves no backup, and the server goes on") {
  Federation federation;
  federation.StartWorker("w1");
  // Enough to copy that it takes a while.
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 24, .size = 400'000, .num_gated = 4}));
  WaitUntil("all but the gated are in", absl::Seconds(30),
            [&] { return RoundOf(federation.transport(), round).num_contributions() == 20; });
  const std::string target = federation.directory() + "/backup";
  const std::string unfinished = target + ".unfinished";
  bool was_killed = false;
  for (int i = 0; i < 20 && !was_killed; ++i) {
    auto backup = ChildProcess::Start(
        {.argv = {BinaryPath("sheaf"), "store", "backup", federation.data_directory(), "--to", target},
         .log_path = federation.directory() + "/backup.log"});
    REQUIRE(backup.ok());
    WaitUntil("it has begun", absl::Seconds(10), [&] { return fs::exists(unfinished) || fs::exists(target); });
    ::kill(backup->pid(), SIGKILL);
    REQUIRE(backup->WaitForEnd(absl::Seconds(10)));
    was_killed = !fs::exists(target);
    fs::remove_all(was_killed ? unfinished : target);
  }
  CHECK(was_killed);
  // The kernel has released the store.
  federation.StartWorker("gate", {"--label", "gate=open"});
  Await(federation, round);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(24, 1));
  WaitUntil("the spool is gone", absl::Seconds(15),
            [&] { return !fs::exists(federation.data_directory() + "/spools/" + round); });
  Run(federation, {"store", "backup", federation.data_directory(), "--to", target});
}

TEST_CASE("Damage to a store is named by sheaf store verify, with exit code 1") {
  Federation federation;
  federation.StartWorker("w1");
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 8, .num_gated = 2}));
  WaitUntil("all but the gated are in", absl::Seconds(20),
            [&] { return RoundOf(federation.transport(), round).num_contributions() == 6; });
  federation.KillServer();
  const std::string spool = federation.data_directory() + "/spools/" + round;
  const auto damaged = [&](const std::vector<std::string>& said) {
    const CommandRun run = federation.Sheaf({"store", "verify", federation.data_directory()});
    INFO(run.out << run.err);
    CHECK(run.exit_code == 1);
    for (const std::string& text : said) CHECK(run.out.find(text) != std::string::npos);
    CHECK(run.err.find("restore the store from a backup") != std::string::npos);
  };
  fs::rename(spool, federation.directory() + "/away");
  damaged({"contribution 1 of round " + round, "violation: "});
  const CommandRun json = federation.Sheaf({"store", "verify", federation.data_directory(), "-o", "json"});
  CHECK(json.exit_code == 1);
  CHECK(json.out.find("\"holds\": false") != std::string::npos);
  fs::rename(federation.directory() + "/away", spool);
  Run(federation, {"store", "verify", federation.data_directory()});
  {
    std::fstream file(federation.data_directory() + "/tasks.db-wal", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('x');
  }
  damaged({"tasks.db-wal is damaged"});
}

TEST_CASE("Offline commands refuse the store of a running server, naming it") {
  Federation federation;
  const CommandRun migrated = federation.Sheaf({"store", "migrate", federation.data_directory()});
  CHECK(migrated.exit_code == 7);
  CHECK(migrated.err.find("works on the store in " + federation.data_directory()) != std::string::npos);
  CHECK(migrated.err.find("process ") != std::string::npos);
  const std::string backup = federation.directory() + "/backup";
  Run(federation, {"store", "backup", federation.data_directory(), "--to", backup});
  const CommandRun restored = federation.Sheaf({"store", "restore", backup, "--to", federation.data_directory()});
  CHECK(restored.exit_code == 7);
  CHECK(restored.err.find("process ") != std::string::npos);
  CHECK(federation.Sheaf({"store", "backup", federation.data_directory(), "--to", backup}).exit_code == 7);
  CHECK(federation.Sheaf({"store", "verify", federation.directory() + "/nothing"}).exit_code == 3);
  CHECK(federation.Sheaf({"store", "restore", federation.data_directory(), "--to", backup + "2"}).exit_code == 3);
  federation.StopServer();
  CHECK(Run(federation, {"store", "migrate", federation.data_directory()}).out.find("there is nothing to do") !=
        std::string::npos);
  federation.StartServer();
}

}  // namespace
}  // namespace sheaf
