// What `sheaf store` finds, copies and brings up to date, on stores made and damaged by hand.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>

#include "base/checksum.h"
#include "storage/directory/backup.h"
#include "storage/directory/inspect.h"
#include "storage/directory/migrate.h"
#include "storage/directory/open.h"
#include "storage/directory/verify.h"
#include "storage/sql/migrator.h"
#include "storage/sqlite/sqlite_connection.h"
#include "tests/storage/temporary_directory.h"

namespace sheaf {
namespace {

namespace fs = std::filesystem;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

void Require(const absl::Status& status) {
  INFO(status.ToString());
  REQUIRE(status.ok());
}
template <typename T>
T Require(absl::StatusOr<T> value) {
  Require(value.status());
  return *std::move(value);
}

// Leases one task and hands in `bytes` for it, in a batch of its own.
void HandIn(Store& store, const RoundId& round, const std::string& bytes) {
  Require(store.tasks->BeginBatch());
  static int num_tokens = 0;
  const LeaseToken token("token-" + std::to_string(++num_tokens));
  const std::vector<TaskRecord> leased =
      Require(store.tasks->LeaseTasks({.round = round,
                                       .worker = WorkerName("w1"),
                                       .poll_id = "poll",
                                       .tokens = {token},
                                       .now = kNow,
                                       .expire_time = kNow + absl::Seconds(30),
                                       .attempt_deadline_time = kNow + absl::Hours(1)}));
  REQUIRE(leased.size() == 1);
  const SpoolRef payload = Require(store.payloads->AppendToSpool(round, bytes));
  Require(store.payloads->SyncSpools());
  Require(store.tasks->RecordContribution({.task = leased[0].id,
                                           .token = token,
                                           .digest = Sha256Hex(bytes),
                                           .size_bytes = static_cast<int64_t>(bytes.size()),
                                           .payload = payload,
                                           .now = kNow}));
  Require(store.tasks->CommitBatch());
}

// A live round with a broadcast, one contribution in its checkpoint, two in the spool and two tasks left; and one that
// succeeded.
class SampleStore {
 public:
  SampleStore() {
    {
      Store store = Require(OpenStore(path()));
      const std::string broadcast = Require(store.payloads->PutBlob("the broadcast"));
      Create(store, "r-live", broadcast, 5);
      HandIn(store, RoundId("r-live"), "in the checkpoint");
      const int64_t segment = Require(store.payloads->RollSpool(RoundId("r-live")));
      Require(store.payloads->PutCheckpoint(RoundId("r-live"), "c1", "merged"));
      Require(store.tasks->BeginBatch());
      Require(store.tasks->SaveCheckpoint({.round = RoundId("r-live"), .checkpoint = "c1", .sequence = 1}));
      Require(store.tasks->CommitBatch());
      Require(store.payloads->DeleteSpoolSegments(RoundId("r-live"), segment));
      HandIn(store, RoundId("r-live"), "pending, the first");
      HandIn(store, RoundId("r-live"), "pending, the second");

      Create(store, "r-done", "", 1);
      HandIn(store, RoundId("r-done"), "folded");
      Require(store.tasks->BeginBatch());
      Require(store.tasks->MoveRound(
          {.round = RoundId("r-done"), .from = RoundState::kCollecting, .to = RoundState::kSealing, .now = kNow}));
      const std::string aggregate = Require(store.payloads->PutBlob("the aggregate"));
      Require(store.tasks->MoveRound({.round = RoundId("r-done"),
                                      .from = RoundState::kSealing,
                                      .to = RoundState::kSucceeded,
                                      .now = kNow,
                                      .aggregate = "released",
                                      .aggregate_digest = aggregate}));
      Require(store.tasks->CommitBatch());
      Require(store.payloads->DeleteRound(RoundId("r-done")));
    }
  }

  std::string path() const { return parent_.path() + "/store"; }
  std::string beside(const std::string& name) const { return parent_.path() + "/" + name; }
  std::string scratch() {
    std::string made = beside("scratch-" + std::to_string(++num_scratches_));
    fs::create_directory(made);
    return made;
  }
  StoreReport Verify(const std::string& directory) { return Require(VerifyStore(directory, scratch())); }
  StoreReport Verify() { return Verify(path()); }

  void Execute(const std::string& sql) {
    Require(Require(SqliteConnection::Open(path() + "/tasks.db"))->ExecuteScript(sql));
  }
  std::string SpoolFile() const { return fs::directory_iterator(path() + "/spools/r-live")->path().string(); }

 private:
  static void Create(Store& store, const std::string& id, const std::string& broadcast, size_t num_tasks) {
    Require(store.tasks->BeginBatch());
    Require(store.tasks->CreateRound({.round = {.id = RoundId(id),
                                                .request_id = id,
                                                .create_time = kNow,
                                                .deadline_time = kNow + absl::Hours(1),
                                                .broadcast_digest = broadcast},
                                      .tasks = std::vector<TaskStore::NewTask>(num_tasks)}));
    Require(store.tasks->CommitBatch());
  }

  TemporaryDirectory parent_;
  int num_scratches_ = 0;
};

std::string Violations(const StoreReport& report) {
  std::string all;
  for (const Law& law : report.laws) {
    for (const std::string& violation : law.violations) all += law.name + ": " + violation + "\n";
  }
  return all;
}

void FlipBit(const std::string& path, int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 4));
}

TEST_CASE("A store that was closed in order holds every law, with its sums") {
  SampleStore sample;
  const StoreReport report = sample.Verify();
  INFO(Violations(report));
  CHECK(report.holds());
  CHECK(report.notes.empty());
  std::map<std::string, std::string> sums;
  for (const Law& law : report.laws) {
    CHECK(law.num_checked > 0);
    if (!law.sums.empty()) sums[law.name] = law.sums;
  }
  CHECK(sums["assigned = succeeded + failed + cancelled + buried + live"] == "6 = 4 + 0 + 0 + 0 + 2");
  CHECK(sums["accepted = folded + pending"] == "4 = 2 + 2");
}

TEST_CASE("Every kind of damage to a store is found, and named") {
  struct Damage {
    std::string name;
    std::function<void(SampleStore&)> make;
    std::vector<std::string> said;
  };
  const std::vector<Damage> damages = {
      {"a spool segment deleted",
       [](SampleStore& s) { fs::remove(s.SpoolFile()); },
       {"contribution 2 of round r-live", "contribution 3 of round r-live", "no segment"}},
      {"a bit of the spool flipped",
       [](SampleStore& s) { FlipBit(s.SpoolFile(), 25); },
       {"contribution 3 of round r-live", "spools/r-live/2.log do not match their checksum"}},
      {"the spool cut short",
       [](SampleStore& s) { fs::resize_file(s.SpoolFile(), 20); },
       {"contribution 3 of round r-live"}},
      {"another contribution under the accepted one's record",
       [](SampleStore& s) { s.Execute("UPDATE contributions SET digest = hex(zeroblob(32)) WHERE sequence = 3"); },
       {"contribution 3 of round r-live: its bytes in the spool are not those that were accepted"}},
      {"a checkpoint deleted",
       [](SampleStore& s) { fs::remove(s.path() + "/checkpoints/r-live/c1.ckpt"); },
       {"round r-live has no checkpoint c1"}},
      {"a bit of a checkpoint flipped",
       [](SampleStore& s) { FlipBit(s.path() + "/checkpoints/r-live/c1.ckpt", 27); },
       {"checkpoints/r-live/c1.ckpt does not match its checksum"}},
      {"a broadcast deleted",
       [](SampleStore& s) { fs::remove(s.path() + "/blobs/" + Sha256Hex("the broadcast")); },
       {"the broadcast of round r-live", "there is no blob"}},
      {"a bit of an aggregate flipped",
       [](SampleStore& s) { FlipBit(s.path() + "/blobs/" + Sha256Hex("the aggregate"), 3); },
       {"the aggregate of round r-done", "do not have the digest"}},
      {"an orphan in a spool",
       [](SampleStore& s) { std::ofstream(s.path() + "/spools/r-live/1.log") << "somebody's values"; },
       {"no payload is an orphan", "spools/r-live/1.log"}},
      {"the spool of a round that nobody knows",
       [](SampleStore& s) {
         fs::create_directory(s.path() + "/spools/r-gone");
         std::ofstream(s.path() + "/spools/r-gone/1.log") << "somebody's values";
       },
       {"no payload is an orphan", "spools/r-gone/1.log"}},
      {"an old checkpoint left",
       [](SampleStore& s) { std::ofstream(s.path() + "/checkpoints/r-live/c0.ckpt") << "x"; },
       {"no payload is an orphan", "checkpoints/r-live/c0.ckpt"}},
      {"a count of tasks changed",
       [](SampleStore& s) { s.Execute("UPDATE rounds SET num_queued = 3 WHERE id = 'r-live'"); },
       {"round r-live says that 3 of its tasks are queued; 2 are"}},
      {"a task lost",
       [](SampleStore& s) { s.Execute("DELETE FROM tasks WHERE task_key & 4294967295 = 3"); },
       {"round r-live says that 2 of its tasks are queued; 1 are", "was given tasks 0 to 4; it has 4 of them"}},
      {"a task's state changed",
       [](SampleStore& s) {
         s.Execute(
             "UPDATE tasks SET state = 1, worker = NULL, lease_token = '' WHERE task_key & 4294967295 = 0 AND "
             "round_key = (SELECT round_key FROM rounds WHERE id = 'r-live')");
       },
       {"task r-live/0 has not succeeded, and has 1 contributions"}},
      {"a contribution lost",
       [](SampleStore& s) { s.Execute("DELETE FROM contributions WHERE sequence = 2"); },
       {"round r-live says that 3 contributions were accepted", "task r-live/1 SUCCEEDED, and has 0 contributions"}},
      {"a contribution counted twice",
       [](SampleStore& s) {
         s.Execute(
             "INSERT INTO contributions SELECT round_key, 4, task_key, worker, lease_token, digest, size_bytes, "
             "num_clients, spool_segment, spool_offset, spool_length, spool_crc, accept_time FROM contributions "
             "WHERE sequence = 3");
       },
       {"task r-live/2 SUCCEEDED, and has 2 contributions"}},
      {"a number of clients changed",
       [](SampleStore& s) {
         s.Execute("UPDATE contributions SET num_clients = 7 WHERE sequence = 1 AND round_key = 1");
       },
       {"round r-live says that it combines 3 clients"}},
      {"a lease token changed",
       [](SampleStore& s) { s.Execute("UPDATE contributions SET lease_token = 'forged' WHERE sequence = 2"); },
       {"task r-live/1 SUCCEEDED under another lease"}},
      {"an attempt lost",
       [](SampleStore& s) { s.Execute("DELETE FROM attempts WHERE task_key & 4294967295 = 1"); },
       {"task r-live/1 was leased 1 times; 0 attempts ended and 0 runs"}},
      {"the first of two attempts lost",
       [](SampleStore& s) {
         s.Execute("UPDATE attempts SET number = 2 WHERE task_key & 4294967295 = 1");
         s.Execute("UPDATE tasks SET num_attempts = 2 WHERE task_key & 4294967295 = 1");
       },
       {"task r-live/1 was leased 2 times; 1 attempts ended and 0 runs"}},
      {"a round's row lost",
       [](SampleStore& s) { s.Execute("DELETE FROM rounds WHERE id = 'r-done'"); },
       {"1 rows of tasks belong to nothing", "1 rows of round_texts belong to nothing"}},
      {"a bit of the database flipped",
       [](SampleStore& s) { FlipBit(s.path() + "/tasks.db", 5000); },
       {"page 2 of", "/store/tasks.db does not match its checksum"}},
      {"the database cut short",
       [](SampleStore& s) { fs::resize_file(s.path() + "/tasks.db", fs::file_size(s.path() + "/tasks.db") - 100); },
       {"/store/tasks.db"}},
  };
  for (const Damage& damage : damages) {
    SampleStore sample;
    damage.make(sample);
    const StoreReport report = sample.Verify();
    const std::string violations = Violations(report);
    INFO(damage.name << "\n" << violations);
    CHECK_FALSE(report.holds());
    for (const std::string& text : damage.said) CHECK(violations.find(text) != std::string::npos);
  }
}

TEST_CASE("Verifying and inspecting change nothing in a store, and work beside whoever uses it") {
  SampleStore sample;
  const auto list = [&] {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(sample.path())) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      files[entry.path().string()] = Sha256Hex(std::string(std::istreambuf_iterator<char>(file), {}));
    }
    return files;
  };
  const auto before = list();
  CHECK(sample.Verify().holds());
  const StoreSummary summary = Require(InspectStore(sample.path(), sample.scratch()));
  CHECK(list() == before);
  CHECK(summary.holder.empty());
  CHECK(summary.log_bytes == 0);
  CHECK(summary.schema_version == SqliteMigrations().back().version);
  const auto number = [](const std::vector<StoreSummary::Count>& counts, const std::string& state) {
    for (const StoreSummary::Count& count : counts) {
      if (count.state == state) return count.number;
    }
    return int64_t{-1};
  };
  CHECK(number(summary.rounds, "COLLECTING") == 1);
  CHECK(number(summary.rounds, "SUCCEEDED") == 1);
  CHECK(number(summary.tasks, "SUCCEEDED") == 4);
  CHECK(number(summary.tasks, "QUEUED") == 2);
  for (const StoreSummary::Files& files : summary.files) {
    if (files.kind == "spools") CHECK(files.num_files == 1);
    if (files.kind == "blobs") CHECK(files.num_files == 2);
  }

  Store store = Require(OpenStore(sample.path()));
  HandIn(store, RoundId("r-live"), "one more");
  CHECK(sample.Verify().holds());
  CHECK(Require(InspectStore(sample.path(), sample.scratch())).holder.rfind("process ", 0) == 0);
}

TEST_CASE("While a store is held its server deletes nothing, and catches up afterwards") {
  SampleStore sample;
  const std::string spool = sample.SpoolFile();
  const std::string checkpoint = sample.path() + "/checkpoints/r-live/c1.ckpt";
  const std::string blob = Sha256Hex("the aggregate");
  Store store = Require(OpenStore(sample.path()));
  std::unique_ptr<StoreHold> hold = Require(StoreHold::Take(sample.path()));
  Require(store.payloads->DeleteRound(RoundId("r-live")));
  Require(store.payloads->DeleteBlob(blob));
  Require(store.payloads->SyncSpools());
  // To the server they are gone.
  CHECK(Require(store.payloads->ListRounds()).empty());
  CHECK_FALSE(store.payloads->HasBlob(blob));
  CHECK(absl::IsNotFound(store.payloads->OpenBlob(blob).status()));
  CHECK(fs::exists(spool));
  CHECK(fs::exists(checkpoint));
  CHECK(fs::exists(sample.path() + "/blobs/" + blob));
  SECTION("they go when the hold does") {
    hold.reset();
    Require(store.payloads->SyncSpools());
    CHECK_FALSE(fs::exists(spool));
    CHECK_FALSE(fs::exists(fs::path(checkpoint).parent_path()));
    CHECK_FALSE(fs::exists(sample.path() + "/blobs/" + blob));
  }
  SECTION("a blob that is stored again stays") {
    CHECK(Require(store.payloads->PutBlob("the aggregate")) == blob);
    CHECK(store.payloads->HasBlob(blob));
    hold.reset();
    Require(store.payloads->SyncSpools());
    CHECK(store.payloads->HasBlob(blob));
    CHECK(fs::exists(sample.path() + "/blobs/" + blob));
  }
}

TEST_CASE("The log is not written back while a store is held, and is when it is closed afterwards") {
  SampleStore sample;
  const std::string database = sample.path() + "/tasks.db";
  std::optional<Store> store = Require(OpenStore(sample.path()));
  const auto work = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      Require(store->tasks->BeginBatch());
      Require(store->tasks->CreateRound({.round = {.id = RoundId("r-" + std::to_string(i)),
                                                   .request_id = std::to_string(i),
                                                   .spec = std::string(400'000, 'x')},
                                         .tasks = std::vector<TaskStore::NewTask>(3)}));
      Require(store->tasks->CommitBatch());
    }
  };
  const auto size = fs::file_size(database);
  std::unique_ptr<StoreHold> hold = Require(StoreHold::Take(sample.path()));
  // More than the 4000 pages after which it would be.
  work(0, 60);
  CHECK(fs::file_size(database) == size);
  CHECK(fs::file_size(database + "-wal") > 4000 * 4096);
  SECTION("held until the end") {
    store.reset();
    CHECK(fs::file_size(database) == size);
    CHECK(fs::exists(database + "-wal"));
    hold.reset();
    CHECK(sample.Verify().holds());
    CHECK(Require(OpenStore(sample.path())).tasks->GetRound(RoundId("r-59")).ok());
  }
  SECTION("released before") {
    hold.reset();
    work(60, 62);
    CHECK(fs::file_size(database) > size);
    store.reset();
    CHECK_FALSE(fs::exists(database + "-wal"));
  }
}

TEST_CASE("A backup is a store with the same content, and makes one again") {
  SampleStore sample;
  // Also of a store that is in use.
  std::optional<Store> store;
  if (GENERATE(false, true)) {
    store = Require(OpenStore(sample.path()));
    HandIn(*store, RoundId("r-live"), "one more");
  }
  const BackupSummary made = Require(BackUpStore({.store = sample.path(), .to = sample.beside("backup"), .now = kNow}));
  CHECK(made.num_live_rounds == 1);
  CHECK(made.num_pending == (store ? 3 : 2));
  CHECK(made.time == "2027-01-15T08:00:00Z");
  CHECK(sample.Verify(sample.beside("backup")).holds());
  if (store) {
    // What happens afterwards does not show in it.
    HandIn(*store, RoundId("r-live"), "after the backup");
    store.reset();
  }
  Require(RestoreStore({.backup = sample.beside("backup"), .to = sample.beside("restored")}));
  const StoreReport report = sample.Verify(sample.beside("restored"));
  INFO(Violations(report));
  CHECK(report.holds());
  Store restored = Require(OpenStore(sample.beside("restored")));
  const RoundRecord round = Require(restored.tasks->GetRound(RoundId("r-live")));
  CHECK(round.num_contributions == 1 + made.num_pending);
  for (const ContributionRecord& record : Require(restored.tasks->ListContributions(round.id, 1, 10))) {
    CHECK(Sha256Hex(Require(restored.payloads->ReadFromSpool(round.id, record.payload))) == record.digest);
  }
  CHECK(Require(restored.payloads->ReadCheckpoint(round.id, "c1")) == "merged");
}

TEST_CASE("A backup, and the store that it becomes again, are for their owner alone") {
  const mode_t before = ::umask(022);
  SampleStore sample;
  Require(BackUpStore({.store = sample.path(), .to = sample.beside("backup"), .now = kNow}).status());
  Require(RestoreStore({.backup = sample.beside("backup"), .to = sample.beside("restored")}).status());
  ::umask(before);
  constexpr fs::perms kOthers = fs::perms::group_all | fs::perms::others_all;
  for (const char* name : {"backup", "restored"}) {
    const std::string directory = sample.beside(name);
    CHECK((fs::status(directory).permissions() & kOthers) == fs::perms::none);
    int num_files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      INFO(entry.path());
      CHECK((entry.status().permissions() & kOthers) == fs::perms::none);
      if (entry.is_regular_file()) ++num_files;
    }
    CHECK(num_files >= 4);
  }
}

TEST_CASE("Backup and restore overwrite nothing, and leave nothing when they fail") {
  SampleStore sample;
  const auto code_of = [](const auto& result) { return result.status().code(); };
  fs::create_directory(sample.beside("full"));
  std::ofstream(sample.beside("full") + "/mine") << "mine";
  const auto refused = BackUpStore({.store = sample.path(), .to = sample.beside("full"), .now = kNow});
  CHECK(code_of(refused) == absl::StatusCode::kFailedPrecondition);
  CHECK(refused.status().message().find(sample.beside("full")) != std::string::npos);
  CHECK(fs::exists(sample.beside("full") + "/mine"));
  CHECK(code_of(BackUpStore({.store = sample.beside("nowhere"), .to = sample.beside("b"), .now = kNow})) ==
        absl::StatusCode::kNotFound);
  CHECK_FALSE(fs::exists(sample.beside("b")));
  CHECK_FALSE(fs::exists(sample.beside("b.unfinished")));

  // A damaged store makes no backup.
  FlipBit(sample.SpoolFile(), 25);
  CHECK(code_of(BackUpStore({.store = sample.path(), .to = sample.beside("b"), .now = kNow})) ==
        absl::StatusCode::kDataLoss);
  CHECK_FALSE(fs::exists(sample.beside("b")));
  CHECK_FALSE(fs::exists(sample.beside("b.unfinished")));
  FlipBit(sample.SpoolFile(), 25);
  fs::create_directory(sample.beside("b"));
  Require(BackUpStore({.store = sample.path(), .to = sample.beside("b"), .now = kNow}));

  // A store in use is not restored over.
  {
    const Store store = Require(OpenStore(sample.path()));
    const auto in_use = RestoreStore({.backup = sample.beside("b"), .to = sample.path()});
    CHECK(code_of(in_use) == absl::StatusCode::kFailedPrecondition);
    CHECK(in_use.status().message().find("process ") != std::string::npos);
  }
  CHECK(code_of(RestoreStore({.backup = sample.path(), .to = sample.beside("r")})) == absl::StatusCode::kNotFound);
  const std::string changed = GENERATE("tasks.db", "spools/r-live/2.log", "checkpoints/r-live/c1.ckpt");
  FlipBit(sample.beside("b") + "/" + changed, 26);
  const auto damaged = RestoreStore({.backup = sample.beside("b"), .to = sample.beside("r")});
  INFO(damaged.status().ToString());
  CHECK(code_of(damaged) == absl::StatusCode::kDataLoss);
  CHECK(damaged.status().message().find(changed) != std::string::npos);
  fs::remove(sample.beside("b") + "/" + changed);
  CHECK(code_of(RestoreStore({.backup = sample.beside("b"), .to = sample.beside("r")})) == absl::StatusCode::kDataLoss);
  CHECK_FALSE(fs::exists(sample.beside("r")));
  CHECK_FALSE(fs::exists(sample.beside("r.unfinished")));
}

TEST_CASE("A manifest that is cut, changed or points elsewhere is none") {
  SampleStore sample;
  Require(BackUpStore({.store = sample.path(), .to = sample.beside("b"), .now = kNow}));
  const std::string path = sample.beside("b") + "/MANIFEST";
  std::ifstream file(path);
  const std::string whole(std::istreambuf_iterator<char>(file), {});
  const std::string digest(64, '0');
  for (const std::string& text :
       {std::string(), whole.substr(0, whole.size() / 2), whole.substr(0, whole.rfind('#')),
        "# sheaf backup, now, schema version 5\n" + digest + "  ../../etc/passwd\n# end: 1 files\n",
        "# sheaf backup, now, schema version 5\n" + digest + "  /etc/passwd\n# end: 1 files\n"}) {
    std::ofstream(path, std::ios::trunc) << text;
    const auto restored = RestoreStore({.backup = sample.beside("b"), .to = sample.beside("r")});
    INFO(text << restored.status().ToString());
    CHECK(restored.status().code() == absl::StatusCode::kDataLoss);
    CHECK_FALSE(fs::exists(sample.beside("r")));
  }
}

TEST_CASE("An older store is brought up to date on purpose; a newer one is refused; one in use waits") {
  TemporaryDirectory parent;
  const std::string directory = parent.path() + "/old";
  fs::create_directory(directory);
  int num_scratches = 0;
  const auto migrate = [&](bool is_dry_run) {
    const std::string scratch = parent.path() + "/scratch-" + std::to_string(++num_scratches);
    fs::create_directory(scratch);
    return MigrateStore({.directory = directory, .scratch = scratch, .is_dry_run = is_dry_run});
  };
  CHECK(migrate(false).status().code() == absl::StatusCode::kNotFound);
  CHECK(fs::is_empty(directory));
  {
    const auto connection = Require(SqliteConnection::Open(directory + "/tasks.db"));
    Require(Migrate(*connection, SqliteMigrations().first(2)));
  }
  const int newest = SqliteMigrations().back().version;
  for (int i = 0; i < 2; ++i) {
    const StoreMigration would = Require(migrate(true));
    CHECK(would.from == 2);
    CHECK(would.to == newest);
    CHECK(would.steps.size() == SqliteMigrations().size() - 2);
  }
  const StoreMigration did = Require(migrate(false));
  CHECK(did.from == 2);
  CHECK(did.steps.front() == "leases_without_indexes");
  CHECK(Require(migrate(false)).steps.empty());
  {
    const Store store = Require(OpenStore(directory));
    const auto in_use = migrate(false);
    CHECK(in_use.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(in_use.status().message().find("process ") != std::string::npos);
    CHECK(migrate(true).ok());
  }
  {
    const auto connection = Require(SqliteConnection::Open(directory + "/tasks.db"));
    Require(connection->ExecuteScript("UPDATE schema SET version = 99, minimum_compatible_version = 98"));
  }
  const auto newer = migrate(false);
  INFO(newer.status().ToString());
  CHECK(newer.status().code() == absl::StatusCode::kFailedPrecondition);
  for (const char* text : {"/old/tasks.db", "version 99", "version 98", "newer build"}) {
    CHECK(newer.status().message().find(text) != std::string::npos);
  }
}

}  // namespace
}  // namespace sheaf
