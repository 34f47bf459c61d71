// What OpenStore and the SQLite connection refuse, and how they say it.
#include "storage/directory/open.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "base/checksum.h"
#include "storage/sql/migrator.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sqlite/sqlite_connection.h"
#include "tests/storage/temporary_directory.h"

namespace sheaf {
namespace {

namespace fs = std::filesystem;

bool Mentions(const absl::Status& status, const std::string& text) {
  return status.ToString().find(text) != std::string::npos;
}

absl::StatusOr<TaskStore::CreateRoundResult> CreateRound(TaskStore& store, const std::string& id, std::string spec) {
  return store.CreateRound({.round = {.id = RoundId(id), .request_id = id, .spec = std::move(spec)},
                            .tasks = std::vector<TaskStore::NewTask>(3)});
}

TEST_CASE("A store's directory is created for its owner alone") {
  TemporaryDirectory parent;
  std::string directory = parent.path() + "/store";
  auto store = OpenStore(directory);
  REQUIRE(store.ok());
  CHECK(fs::status(directory).permissions() == fs::perms::owner_all);
  CHECK(store->tasks->GetInfo().engine == "sqlite");
  CHECK(store->tasks->GetInfo().schema_version == 9);
  CHECK(store->payloads->PutBlob("bytes").ok());
}

TEST_CASE("The files of a store are for their owner alone, also those that 0.1 made readable") {
  TemporaryDirectory parent;
  const std::string directory = parent.path() + "/store";
  const mode_t before = ::umask(022);
  const auto check_all = [&] {
    int num_files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      INFO(entry.path());
      const bool is_private =
          (entry.status().permissions() & (fs::perms::group_all | fs::perms::others_all)) == fs::perms::none;
      CHECK(is_private);
      if (entry.is_regular_file()) ++num_files;
    }
    return num_files;
  };
  {
    auto store = OpenStore(directory);
    REQUIRE(store->tasks->BeginBatch().ok());
    REQUIRE(CreateRound(*store->tasks, "r", "spec").ok());
    REQUIRE(store->tasks->CommitBatch().ok());
    PayloadStore& payloads = *store->payloads;
    REQUIRE(payloads.PutBlob("bytes").ok());
    REQUIRE(payloads.AppendToSpool(RoundId("r"), "a contribution").ok());
    REQUIRE(payloads.PutCheckpoint(RoundId("r"), "c1", "merged").ok());
    REQUIRE(payloads.StartUpload(UploadId("u"), 7, Sha256Hex("partial")).ok());
    REQUIRE(payloads.WriteChunk(UploadId("u"), 0, "part").ok());
    // The database, its log, the lock, and one of each of these.
    CHECK(check_all() >= 7);
  }
  REQUIRE(::chmod((directory + "/tasks.db").c_str(), 0644) == 0);
  {
    auto store = OpenStore(directory);
    REQUIRE(store.ok());
    CHECK(check_all() >= 6);
  }
  ::umask(before);
}

TEST_CASE("A backup is not opened as a store, which it would no longer be a backup after") {
  TemporaryDirectory parent;
  const std::string directory = parent.path() + "/backup";
  REQUIRE(OpenStore(directory).ok());
  std::ofstream(directory + "/MANIFEST") << "# sheaf backup";
  // A server of 0.1 has opened it: what is there is that server's store.
  CHECK(OpenStore(directory).ok());
  fs::remove(directory + "/LOCK");
  const auto size = fs::file_size(directory + "/tasks.db");
  const auto store = OpenStore(directory);
  CHECK(store.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Mentions(store.status(), "sheaf store restore " + directory + " --to DIR"));
  CHECK_FALSE(fs::exists(directory + "/LOCK"));
  CHECK(fs::file_size(directory + "/tasks.db") == size);
}

TEST_CASE("A second server on the same directory is refused until the first has gone") {
  TemporaryDirectory directory;
  auto first = OpenStore(directory.path());
  REQUIRE(first.ok());
  auto second = OpenStore(directory.path());
  CHECK(second.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Mentions(second.status(), directory.path()));
  first = absl::CancelledError();
  CHECK(OpenStore(directory.path()).ok());
}

TEST_CASE("Whoever asks who has a store keeps no server from starting") {
  TemporaryDirectory directory;
  REQUIRE(DirectoryLock::Take(directory.path()).ok());
  const pid_t asking = ::fork();
  REQUIRE(asking >= 0);
  if (asking == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) DirectoryLock::HolderOf(directory.path());
  }
  int num_refused = 0;
  for (int i = 0; i < 5000; ++i) {
    const auto lock = DirectoryLock::Take(directory.path());
    if (!lock.ok()) ++num_refused;
    if (i == 0) CHECK(DirectoryLock::HolderOf(directory.path()) == "process " + std::to_string(::getpid()));
  }
  ::kill(asking, SIGKILL);
  ::waitpid(asking, nullptr, 0);
  CHECK(num_refused == 0);
  CHECK(DirectoryLock::HolderOf(directory.path()).empty());
}

TEST_CASE("A directory whose parent is missing is refused and named") {
  TemporaryDirectory parent;
  auto store = OpenStore(parent.path() + "/no/store");
  CHECK(store.status().code() == absl::StatusCode::kNotFound);
  CHECK(Mentions(store.status(), "/no/store"));
}

TEST_CASE("A damaged database is refused, named, and left as it is") {
  TemporaryDirectory directory;
  std::ofstream(directory.path() + "/tasks.db") << std::string(8192, 'x');
  auto store = OpenStore(directory.path());
  CHECK(store.status().code() == absl::StatusCode::kDataLoss);
  CHECK(Mentions(store.status(), directory.path()));
  CHECK(fs::file_size(directory.path() + "/tasks.db") == 8192);
}

TEST_CASE("A store written by a newer version is refused with both versions and the remedy") {
  TemporaryDirectory directory;
  REQUIRE(OpenStore(directory.path()).ok());
  {
    auto connection = SqliteConnection::Open(directory.path() + "/tasks.db");
    REQUIRE((*connection)->ExecuteScript("UPDATE schema SET version = 11, minimum_compatible_version = 10").ok());
  }
  auto store = OpenStore(directory.path());
  CHECK(store.status().code() == absl::StatusCode::kFailedPrecondition);
  for (const char* text : {"version 11", "version 10", "version 9", "newer build"}) {
    INFO(store.status().ToString());
    CHECK(Mentions(store.status(), text));
  }
}

TEST_CASE("A store written by a newer version that is still compatible opens") {
  TemporaryDirectory directory;
  REQUIRE(OpenStore(directory.path()).ok());
  {
    auto connection = SqliteConnection::Open(directory.path() + "/tasks.db");
    REQUIRE((*connection)->ExecuteScript("UPDATE schema SET version = 99").ok());
  }
  CHECK(OpenStore(directory.path()).ok());
}

TEST_CASE("What a server of 0.1 stored of refused contributions is overwritten when its store is opened") {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/tasks.db";
  constexpr char kMarker[] = "patient-4711: HIV positive";
  {
    auto store = OpenStore(directory.path());
    REQUIRE(store->tasks->BeginBatch().ok());
    REQUIRE(CreateRound(*store->tasks, "r", "spec").ok());
    REQUIRE(store->tasks->CommitBatch().ok());
  }
  const auto read = [&] {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  {
    auto connection = *SqliteConnection::Open(path);
    const std::string quote =
        std::string("CAST('contribution rejected: output ''w'': w[") + kMarker + "] is NaN' AS BLOB)";
    REQUIRE(connection
                ->ExecuteScript("UPDATE tasks SET last_error = " + quote +
                                ";"
                                "INSERT INTO attempts (task_key, number, worker, lease_time, end_time, outcome, error, "
                                "timings, bytes_up) SELECT task_key, 1, 'w', 1, 2, 2, " +
                                quote +
                                ", x'', 0 FROM tasks;"
                                "UPDATE tasks SET last_error = CAST('the computation failed' AS BLOB) "
                                "WHERE task_key = (SELECT min(task_key) FROM tasks);"
                                "ALTER TABLE rounds DROP COLUMN cancel_time;"
                                "ALTER TABLE round_texts DROP COLUMN task_digests;"
                                "DROP TABLE second_leases;"
                                "DROP TABLE carried_tasks;"
                                "UPDATE schema SET version = 5")
                .ok());
  }
  REQUIRE(read().find(kMarker) != std::string::npos);
  {
    auto store = OpenStore(directory.path());
    REQUIRE(store.ok());
    const TaskRecord first = *store->tasks->GetTaskState(TaskId{RoundId("r"), 0});
    CHECK(first.last_error == "the computation failed");
    const TaskRecord second = *store->tasks->GetTaskState(TaskId{RoundId("r"), 1});
    CHECK(second.last_error == "contribution rejected: by a server before 0.2; its worker was told why");
  }
  CHECK(read().find(kMarker) == std::string::npos);
  CHECK(read().find("contribution rejected") != std::string::npos);
}

TEST_CASE("Migrations run once each, in order, and a failing one leaves the data as it was") {
  auto connection = *SqliteConnection::Open(":memory:");
  Migration first{1, 1, "first", "CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (1)"};
  Migration second{2, 1, "second", "UPDATE a SET x = x + 1"};
  Migration broken{2, 1, "broken", "UPDATE a SET x = 9; nonsense"};
  auto count = [&] {
    int64_t x = 0;
    REQUIRE(connection->Execute("SELECT x FROM a", {}, [&](const SqlRow& row) { x = row.Int(0); }).ok());
    return x;
  };
  REQUIRE(Migrate(*connection, std::vector{first}).ok());
  CHECK_FALSE(Migrate(*connection, std::vector{first, broken}).ok());
  CHECK(count() == 1);
  REQUIRE(Migrate(*connection, std::vector{first, second}).ok());
  REQUIRE(Migrate(*connection, std::vector{first, second}).ok());
  CHECK(count() == 2);
  // A build that does not know a migration that it would have to know is kept out.
  const Migration third{3, 3, "third", "UPDATE a SET x = x + 1"};
  REQUIRE(Migrate(*connection, std::vector{first, second, third}).ok());
  CHECK(absl::IsFailedPrecondition(Migrate(*connection, std::vector{first, second})));
  CHECK(count() == 3);
}

TEST_CASE("On a full disk a batch is RESOURCE_EXHAUSTED, has not happened, and the next one can") {
  TemporaryDirectory directory;
  auto store = OpenStore(directory.path());
  REQUIRE(store.ok());
  TaskStore& tasks = *store->tasks;
  REQUIRE(tasks.BeginBatch().ok());
  REQUIRE(CreateRound(tasks, "r-before", "").ok());
  REQUIRE(tasks.CommitBatch().ok());

  // The kernel refuses to let a file grow past this, as it refuses on a full disk.
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit tiny{200'000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &tiny);
  REQUIRE(tasks.BeginBatch().ok());
  absl::Status refused = CreateRound(tasks, "r-large", std::string(1'000'000, 'x')).status();
  absl::Status committed = tasks.CommitBatch();
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old_handler);

  INFO(refused.ToString() << "; " << committed.ToString());
  CHECK(committed.code() == absl::StatusCode::kResourceExhausted);
  CHECK(Mentions(committed, directory.path()));
  CHECK(Mentions(committed, "the disk is full; free some space or move the store to a larger disk"));
  CHECK(tasks.GetRound(RoundId("r-large")).status().code() == absl::StatusCode::kNotFound);
  CHECK(tasks.GetRound(RoundId("r-before"))->tasks.queued == 3);
  REQUIRE(tasks.BeginBatch().ok());
  REQUIRE(CreateRound(tasks, "r-after", "").ok());
  REQUIRE(tasks.CommitBatch().ok());
  CHECK(tasks.GetRound(RoundId("r-after")).ok());
}

}  // namespace
}  // namespace sheaf
