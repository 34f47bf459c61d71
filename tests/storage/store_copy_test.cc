// A directory's store copied into a real PostgreSQL: everything arrives, whatever ends it is seen, and nothing is
// overwritten.
#include "storage/postgres/store_copy.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/checksum.h"
#include "base/random.h"
#include "storage/directory/migrate.h"
#include "storage/directory/open.h"
#include "storage/postgres/open.h"
#include "storage/postgres/postgres_migrations.h"
#include "storage/postgres/postgres_pool.h"
#include "storage/postgres/unfinished_copy.h"
#include "storage/sql/migrator.h"
#include "storage/sqlite/sqlite_connection.h"
#include "tests/conformance/store_fixture.h"
#include "tests/postgres/postgres_cluster.h"
#include "tests/storage/temporary_directory.h"

namespace sheaf {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

void Require(const absl::Status& status) {
  INFO(status.ToString());
  REQUIRE(status.ok());
}
template <typename T>
T Require(absl::StatusOr<T> value) {
  Require(value.status());
  return *std::move(value);
}

class DirectoryUnderTest final : public StoreUnderTest {
 public:
  explicit DirectoryUnderTest(const std::string& directory) : store_(Require(OpenStore(directory))) {}
  TaskStore& store() override { return *store_.tasks; }
  PayloadStore& payloads() { return *store_.payloads; }

 private:
  Store store_;
};

// Not of one period, so that a piece in a wrong place shows.
std::string Bytes(size_t size, uint64_t seed) {
  std::string bytes;
  SeededRandom random(seed);
  while (bytes.size() < size) bytes += random.Token(32);
  bytes.resize(size);
  return bytes;
}

constexpr size_t kLarge = (5 << 20) + 17;
const RoundId kLive("r-one");

// A store with something of everything, closed again.
class FullStore {
 public:
  FullStore() {
    DirectoryUnderTest* opened = nullptr;
    StoreFixture f({.name = "SQLite", .make = [&] {
                      auto made = std::make_unique<DirectoryUnderTest>(path());
                      opened = made.get();
                      return made;
                    }});
    PayloadStore& payloads = opened->payloads();
    FillTables(f);
    FillLiveRound(f, payloads);
    FillPayloads(payloads);
    now_ = f.now;
    dump_ = f.DumpNow();
  }

  std::string path() const { return parent_.path() + "/store"; }
  std::string beside(const std::string& name) const { return parent_.path() + "/" + name; }
  absl::Time now() const { return now_; }
  const std::string& dump() const { return dump_; }
  const std::string& broadcast() const { return broadcast_; }

  absl::StatusOr<StoreCopySummary> CopyTo(const std::string& conninfo) {
    const std::string scratch = beside("scratch-" + std::to_string(++num_scratches_));
    fs::create_directory(scratch);
    return CopyStoreToPostgres({.directory = path(), .conninfo = conninfo, .scratch = scratch});
  }

 private:
  // Rounds that have ended, one that is deleted task by task, workers, tokens, names of any bytes.
  static void FillTables(StoreFixture& f) {
    for (const std::string id : {"r-deleted", "r-done"}) {
      f.round = RoundId(id);
      f.CreateRound({.id = id, .num_tasks = 700, .job = std::string("zero\0byte", 9)});
      const std::vector<TaskRecord> tasks = f.LeaseUpTo(f.LeaseParams("w1", 3, id));
      REQUIRE(tasks.size() == 3);
      Require(f.Contribute(tasks[0]));
      Require(f.End(tasks[1], AttemptOutcome::kFailed, TaskState::kBuried));
      if (id == "r-done") CarryOver(f);
      Require(f.Move(RoundState::kCollecting, RoundState::kSealing));
      Require(f.Move(RoundState::kSealing, RoundState::kFailed));
      f.now += absl::Seconds(1);
    }
    // The first of them.
    Require(f.Do([&](TaskStore& s) {
      return s.DeleteEndedRounds({.ended_by = f.now - absl::Seconds(2), .keep_max = 100, .tasks_limit = 100});
    }));
    f.Saw("w1");
    f.Saw("w2", "others");
    Require(f.Do([&](TaskStore& s) {
      return s.SetWorkerDraining({.name = WorkerName("w2"), .population = "others", .is_draining = true});
    }));
    for (const char* const id : {"t-all", "t-two"}) {
      TokenRecord token{.id = TokenId(id),
                        .request_id = id,
                        .name = "name",
                        .hash = Sha256Hex(id),
                        .roles = 5,
                        .creator = "operator",
                        .create_time = f.now};
      if (token.id == TokenId("t-two")) token.populations = {"default", "others"};
      Require(f.Do([&](TaskStore& s) { return s.CreateToken(token); }));
    }
    f.round = kLive;
  }

  // What still runs of r-done, into a round that is cancelled then.
  static void CarryOver(StoreFixture& f) {
    f.CreateRound({.id = "r-next"});
    const auto carried = Require(f.Do([&](TaskStore& s) {
      return s.CarryOver({.from = f.round, .to = RoundId("r-next"), .staleness_max = 1, .now = f.now});
    }));
    REQUIRE(carried.size() == 1);
    Require(f.Do([&](TaskStore& s) {
      return s.MoveRound(
          {.round = RoundId("r-next"), .from = RoundState::kCollecting, .to = RoundState::kCancelled, .now = f.now});
    }));
  }

  void HandIn(StoreFixture& f, const SpoolRef& payload, const std::string& bytes) {
    const TaskRecord task = f.Lease("w1");
    Require(f.Do([&](TaskStore& s) {
      return s.RecordContribution({.task = task.id,
                                   .token = task.lease_token,
                                   .digest = Sha256Hex(bytes),
                                   .size_bytes = static_cast<int64_t>(bytes.size()),
                                   .payload = payload,
                                   .now = f.now});
    }));
  }

  // A checkpoint, contributions of all sorts behind it, tasks in every state that a live round has.
  void FillLiveRound(StoreFixture& f, PayloadStore& payloads) {
    broadcast_ = Require(payloads.PutBlob(Bytes(kLarge, 1)));
    f.CreateRound({.id = kLive.value(), .num_tasks = 20, .broadcast = broadcast_});
    const auto append = [&](const std::string& bytes) {
      const SpoolRef ref = Require(payloads.AppendToSpool(kLive, bytes));
      Require(payloads.SyncSpools());
      return ref;
    };
    HandIn(f, append("in the checkpoint"), "in the checkpoint");
    const int64_t covered = Require(payloads.RollSpool(kLive));
    Require(payloads.PutCheckpoint(kLive, "c1", Bytes(kLarge, 2)));
    Require(f.Do([&](TaskStore& s) { return s.SaveCheckpoint({.round = kLive, .checkpoint = "c1", .sequence = 1}); }));
    Require(payloads.DeleteSpoolSegments(kLive, covered));
    HandIn(f, append("the first"), "the first");
    // What a batch that failed leaves behind.
    append("never accepted");
    HandIn(f, append("the second"), "the second");
    HandIn(f, append(""), "");
    // Larger than a piece, and several in one.
    for (const size_t size : {3'000'000, 300'000, 400'000, 500'000})
      HandIn(f, append(Bytes(size, size)), Bytes(size, size));
    const std::string uploaded = Bytes(kLarge, 3);
    Upload(payloads, "u-segment", uploaded, uploaded.size());
    Require(payloads.FinishUpload(UploadId("u-segment")));
    const SpoolRef segment = Require(payloads.AddUploadToSpool(UploadId("u-segment"), kLive));
    Require(payloads.SyncSpools());
    HandIn(f, segment, uploaded);
    HandIn(f, append("behind the upload"), "behind the upload");

    const std::vector<TaskRecord> leased = f.LeaseUpTo(f.LeaseParams("w1", 5));
    Require(f.End(leased[0], AttemptOutcome::kFailed, TaskState::kQueued, absl::Minutes(1)));
    Require(f.End(leased[1], AttemptOutcome::kLost, TaskState::kQueued));
    Require(f.End(leased[2], AttemptOutcome::kFailed, TaskState::kFailed));
    // The others by two workers each.
    const auto again = f.Do([&](TaskStore& s) {
      return s.LeaseAgain({.round = kLive,
                           .worker = WorkerName("w2"),
                           .poll_id = "again",
                           .tokens = {LeaseToken("again-1"), LeaseToken("again-2")},
                           .begun_by = f.now,
                           .now = f.now,
                           .expire_time = f.now + absl::Hours(1),
                           .attempt_deadline_time = f.now + absl::Hours(1)});
    });
    REQUIRE(Require(again).size() == 2);
  }

  static void Upload(PayloadStore& payloads, const std::string& id, const std::string& bytes, size_t sent) {
    const UploadId upload(id);
    Require(payloads.StartUpload(upload, static_cast<int64_t>(bytes.size()), Sha256Hex(bytes)));
    Require(payloads.WriteChunk(upload, 0, std::string_view(bytes).substr(0, sent)));
  }

  static void FillPayloads(PayloadStore& payloads) {
    Require(payloads.PutBlob(""));
    Require(payloads.PutBlob("one that no round names yet"));
    Upload(payloads, "half/of it", Bytes(kLarge, 4), kLarge / 2);
    Upload(payloads, "finished", Bytes(kLarge, 5), kLarge);
    Require(payloads.FinishUpload(UploadId("finished")));
    Upload(payloads, "begun", "nothing came yet", 0);
    // Of a round that is not there any more.
    Require(payloads.AppendToSpool(RoundId("r-gone"), "an orphan"));
    Require(payloads.PutCheckpoint(RoundId("r-gone"), "c1", "an orphan"));
  }

  TemporaryDirectory parent_;
  absl::Time now_;
  std::string dump_;
  std::string broadcast_;
  int num_scratches_ = 0;
};

PostgresStore OpenCopy(const std::string& conninfo, const std::string& directory) {
  SeededRandom random(7);
  return Require(OpenPostgresStore({.conninfo = conninfo, .directory = directory, .address = "here"}, random));
}

std::string WholeOf(const BlobView& view) { return Require(view.Read(0, view.size_bytes())); }

TEST_CASE("A store that is copied into PostgreSQL is there row by row and payload by payload, and goes on") {
  FullStore full;
  PostgresDatabase database;
  const StoreCopySummary copied = Require(full.CopyTo(database.conninfo()));
  CHECK(copied.num_live_rounds == 1);
  CHECK(copied.payloads.blobs.number == 3);
  CHECK(copied.payloads.uploads.number == 4);
  CHECK(copied.payloads.contributions.number == 9);
  CHECK(copied.payloads.checkpoints.number == 1);
  CHECK(copied.payloads.num_uploads_left == 0);
  std::set<std::string> tables;
  for (const CopiedTable& table : copied.tables) {
    INFO(table.name);
    tables.insert(table.name);
    CHECK(table.num_rows > 0);
    CHECK(database.Run("SELECT count(*) FROM " + table.name) == std::to_string(table.num_rows));
  }
  CHECK(tables == std::set<std::string>{"attempts", "carried_tasks", "contributions", "deleted_rounds",
                                        "round_requirements", "round_texts", "rounds", "second_leases", "task_inputs",
                                        "tasks", "token_populations", "tokens", "workers"});

  // Nobody has it, and nobody waits for anybody.
  PostgresStore store = OpenCopy(database.conninfo(), full.beside("server"));
  TaskStore& tasks = store.task_store();
  PayloadStore& payloads = *store.payloads;
  CHECK(Dump(tasks, full.now()) == full.dump());
  CHECK(database.Run("SELECT count(*) FROM servers") == "1");

  // What was accepted is read as it was handed in.
  const std::vector<ContributionRecord> pending = Require(tasks.ListContributions(kLive, 1, 100));
  REQUIRE(pending.size() == 9);
  for (const ContributionRecord& record : pending) {
    CHECK(Sha256Hex(Require(payloads.ReadFromSpool(kLive, record.payload))) == record.digest);
  }
  CHECK(Require(payloads.ReadCheckpoint(kLive, "c1")) == Bytes(kLarge, 2));
  CHECK(Require(payloads.ListRounds()) == std::vector<RoundId>{kLive});
  CHECK(Require(payloads.ListBlobs()).size() == 3);
  CHECK(WholeOf(*Require(payloads.OpenBlob(full.broadcast()))) == Bytes(kLarge, 1));
  CHECK(database.Run("SELECT count(*) FROM spool_pieces WHERE position('never accepted'::bytea IN bytes) > 0") == "0");

  // Uploads go on where they were.
  const UploadId half("half/of it");
  const std::string bytes = Bytes(kLarge, 4);
  CHECK(Require(payloads.GetUpload(half)).committed_bytes == kLarge / 2);
  CHECK(Require(payloads.WriteChunk(half, kLarge / 2, bytes.substr(kLarge / 2))) == kLarge);
  Require(payloads.FinishUpload(half));
  Require(payloads.MoveUploadToBlob(half));
  CHECK(WholeOf(*Require(payloads.OpenBlob(Sha256Hex(bytes)))) == bytes);
  CHECK(Require(payloads.GetUpload(UploadId("begun"))).committed_bytes == 0);
  CHECK(WholeOf(*Require(payloads.OpenUpload(UploadId("finished")))) == Bytes(kLarge, 5));

  // And so do rounds: new segments lie behind the old ones, new keys behind the old.
  CHECK(Require(payloads.AppendToSpool(kLive, "the next")).segment > pending.back().payload.segment);
  Require(tasks.BeginBatch());
  Require(tasks.CreateRound({.round = {.id = RoundId("r-new"),
                                       .request_id = "new",
                                       .create_time = full.now(),
                                       .deadline_time = full.now() + absl::Hours(1)},
                             .tasks = std::vector<TaskStore::NewTask>(3)}));
  Require(tasks.CommitBatch());
  CHECK(database.Run("SELECT count(*) FROM rounds r WHERE EXISTS (SELECT FROM deleted_rounds d WHERE d.round_key = "
                     "r.round_key)") == "0");
  // The directory is as it was.
  CHECK(Dump(*Require(OpenStore(full.path())).tasks, full.now()) == full.dump());
}

TEST_CASE("A store that is copied again and again has the same digests, whatever the engine") {
  FullStore full;
  std::map<std::string, std::string> first;
  for (int i = 0; i < 2; ++i) {
    PostgresDatabase database;
    for (const CopiedTable& table : Require(full.CopyTo(database.conninfo())).tables) {
      const auto [known, is_new] = first.emplace(table.name, table.digest);
      CHECK(known->second == table.digest);
    }
  }
}

TEST_CASE("A row that is not what was copied is named") {
  FullStore full;
  UsedDatabase database;
  const auto from = Require(SqliteConnection::Open(full.path() + "/tasks.db"));
  const auto to = Require(PostgresConnection::Open({.conninfo = database->conninfo()}));
  Require(MakePostgresSchema(*to));
  const auto verify = [&](const std::string& table) {
    return Require(TableCopy::Open(*from, *to, table)).Verify().status();
  };
  for (const std::string& table : Require(TableCopy::ListTables(*from))) {
    TableCopy copy = Require(TableCopy::Open(*from, *to, table));
    Require(RunTransaction(*to, [&] { return copy.Write(); }));
    Require(copy.Verify());
  }
  struct Change {
    std::string table;
    std::string sql;
    std::string said;
  };
  const std::vector<Change> changes = {
      {"workers", "UPDATE workers SET num_leased = num_leased + 1 WHERE name = 'w2'", "row w2, others"},
      {"tasks", "UPDATE tasks SET delayed_until = NULL WHERE delayed_until IS NOT NULL", "row 1717986"},
      {"round_texts", "UPDATE round_texts SET spec = spec || '\\x00' WHERE round_key = 3", "row 3 "},
      {"token_populations", "DELETE FROM token_populations WHERE population = 'default'", "row t-two, default"},
      {"attempts", "DELETE FROM attempts WHERE ctid = (SELECT max(ctid) FROM attempts)", "table attempts"},
      {"deleted_rounds", "INSERT INTO deleted_rounds VALUES (99)", "rows behind"},
  };
  for (const Change& change : changes) {
    Require(verify(change.table));
    CHECK(database->Run(change.sql + " RETURNING 1") == "1");
    const absl::Status found = verify(change.table);
    CHECK(found.code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(found.message()), Contains(change.said) && Contains(change.table));
  }
}

TEST_CASE("A copy that was given up leaves an empty database that no server takes, and the next one starts anew") {
  FullStore full;
  PostgresDatabase database;
  SeededRandom random(7);
  const auto serve = [&] {
    return OpenPostgresStore({.conninfo = database.conninfo(), .directory = full.beside("server"), .address = "here"},
                             random)
        .status();
  };
  // Each file that is needed is missing once: the copy ends in the middle.
  const std::vector<std::string> needed = {"blobs/" + full.broadcast(), "checkpoints/r-one/c1.ckpt",
                                           "spools/r-one/2.log"};
  for (const std::string& name : needed) {
    const std::string path = full.path() + "/" + name;
    INFO(path);
    fs::rename(path, full.beside("away"));
    const absl::Status failed = full.CopyTo(database.conninfo()).status();
    INFO(failed.ToString());
    CHECK(failed.code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(failed.message()), Contains(full.path()));
    fs::rename(full.beside("away"), path);
    // Or has a bit that is another.
    const auto size = static_cast<std::streamoff>(fs::file_size(path));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(size - 3);
    const int byte = file.get();
    const auto put = [&](int value) {
      file.seekp(size - 3);
      file.put(static_cast<char>(value));
      file.flush();
    };
    put(byte ^ 4);
    const absl::Status damaged = full.CopyTo(database.conninfo()).status();
    INFO(damaged.ToString());
    CHECK(damaged.code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(damaged.message()), Contains(name));
    put(byte);

    const absl::Status refused = serve();
    CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
    CHECK_THAT(std::string(refused.message()),
               Contains("unfinished copy of " + full.path()) && Contains("sheaf store copy"));
    CHECK(database.Run("SELECT count(*) FROM rounds") == "0");
    CHECK(database.Run("SELECT count(*) FROM content_pieces") == "0");
  }
  // One whose connection breaks: at the last of its tables, and the first.
  database.Run(
      "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN\n"
      "PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$");
  for (const std::string table : {"spool_uploads", "attempts"}) {
    database.Run("CREATE TRIGGER die BEFORE INSERT ON " + table + " EXECUTE FUNCTION die()");
    CHECK(full.CopyTo(database.conninfo()).status().code() == absl::StatusCode::kUnavailable);
    database.Run("DROP TRIGGER die ON " + table);
    CHECK(serve().code() == absl::StatusCode::kFailedPrecondition);
  }
  Require(full.CopyTo(database.conninfo()));
  PostgresStore store = OpenCopy(database.conninfo(), full.beside("server"));
  CHECK(Dump(store.task_store(), full.now()) == full.dump());
}

TEST_CASE("A copy overwrites nothing, and takes no store from anybody") {
  FullStore full;
  PostgresDatabase database;
  const auto refused = [&](const std::string& said) {
    const absl::Status status = full.CopyTo(database.conninfo()).status();
    INFO(status.ToString());
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK_THAT(std::string(status.message()), Contains(said));
    // Nothing of it is in the database.
    CHECK(database.Run("SELECT count(*) FROM servers WHERE id = 'store-copy'") == "0");
    CHECK(database.Run("SELECT count(*) FROM unfinished_copies") == "0");
  };
  {
    // One that serves an empty database, and then one that has served it.
    PostgresStore other = OpenCopy(database.conninfo(), full.beside("other"));
    const absl::Status served = full.CopyTo(database.conninfo()).status();
    CHECK(served.code() == absl::StatusCode::kFailedPrecondition);
    CHECK_THAT(std::string(served.message()), Contains("owns the store"));
    Require(other.payloads->PutBlob("somebody's"));
    refused("rows in blobs, content_pieces");
    Require(other.payloads->DeleteBlob(Sha256Hex("somebody's")));
    Require(other.tasks->Release());
  }
  {
    const Store opened = Require(OpenStore(full.path()));
    refused("works on the store in " + full.path() + ": stop it first");
  }
  {
    const auto connection = Require(SqliteConnection::Open(full.path() + "/tasks.db"));
    Require(connection->ExecuteScript("UPDATE schema SET version = 6, minimum_compatible_version = 5"));
  }
  refused("`sheaf store migrate " + full.path() + "` first");
  {
    const auto connection = Require(SqliteConnection::Open(full.path() + "/tasks.db"));
    Require(connection->ExecuteScript("UPDATE schema SET version = 99"));
  }
  refused("the newer build");
  {
    const auto connection = Require(SqliteConnection::Open(full.path() + "/tasks.db"));
    Require(connection->ExecuteScript("UPDATE schema SET version = 9, minimum_compatible_version = 9"));
  }
  CHECK(full.CopyTo("postgresql://sheaf:hunter2@db/sheaf").status().code() == absl::StatusCode::kInvalidArgument);
  Require(full.CopyTo(database.conninfo()));
  const absl::Status again = full.CopyTo(database.conninfo()).status();
  CHECK(again.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(again.message()), Contains("rows in attempts, carried_tasks, contributions"));
  PostgresStore store = OpenCopy(database.conninfo(), full.beside("server"));
  CHECK(Dump(store.task_store(), full.now()) == full.dump());
}

}  // namespace
}  // namespace sheaf
