// What only a payload store that several servers share can do wrong: bytes that one deletes under another, machines
// that keep what is gone, databases that go away.
#include "storage/postgres/postgres_payload_store.h"

#include <fmt/format.h>
#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "base/checksum.h"
#include "storage/postgres/postgres_heartbeat.h"
#include "storage/postgres/postgres_migrations.h"
#include "storage/postgres/postgres_task_store.h"
#include "tests/postgres/postgres_cluster.h"
#include "tests/storage/temporary_directory.h"

namespace sheaf {
namespace {

using Code = absl::StatusCode;
namespace fs = std::filesystem;

// A server of a database, with a directory of its own.
struct Server {
  explicit Server(PostgresDatabase& database, int64_t fetched_bytes_max = int64_t{1} << 30) {
    const PostgresConnection::Options options = {.conninfo = database.conninfo(), .timeout = absl::Seconds(10)};
    const auto connection = PostgresConnection::Open(options);
    REQUIRE(connection.ok());
    REQUIRE(MakePostgresSchema(**connection).ok());
    auto opened = PostgresPayloadStore::Open(options, files,
                                             {.directory = directory.path(), .fetched_bytes_max = fetched_bytes_max});
    REQUIRE(opened.ok());
    store = *std::move(opened);
  }
  int64_t num_files() const {
    return std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator());
  }

  TemporaryDirectory directory;
  PosixFileSystem files;
  std::unique_ptr<PostgresPayloadStore> store;
};

std::string WholeOf(const BlobView& view) {
  const absl::StatusOr<std::string> bytes = view.Read(0, view.size_bytes());
  REQUIRE(bytes.ok());
  return *bytes;
}

int64_t NumPieces(PostgresDatabase& database) {
  return std::stoll(database.Run("SELECT count(*) FROM content_pieces"));
}

// Of several megabytes, no two alike.
std::string ManyBytes(size_t size, uint32_t seed) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes;
}

TEST_CASE("The chunks of an upload may go to any server, and any of them finishes it") {
  PostgresDatabase database;
  Server one(database);
  Server two(database);
  const UploadId upload("u");
  const std::string bytes = ManyBytes(3'000'000, 1);
  REQUIRE(one.store->StartUpload(upload, 3'000'000, Sha256Hex(bytes)).ok());
  CHECK(*one.store->WriteChunk(upload, 0, bytes.substr(0, 1'000'000)) == 1'000'000);
  CHECK(two.store->GetUpload(upload)->committed_bytes == 1'000'000);
  // What comes twice, and half of it new.
  CHECK(*two.store->WriteChunk(upload, 500'000, bytes.substr(500'000, 1'500'000)) == 2'000'000);
  CHECK(one.store->WriteChunk(upload, 2'500'000, "gap").status().code() == Code::kOutOfRange);
  CHECK(*one.store->WriteChunk(upload, 2'000'000, bytes.substr(2'000'000)) == 3'000'000);
  REQUIRE(two.store->FinishUpload(upload).ok());
  CHECK(WholeOf(**one.store->OpenUpload(upload)) == bytes);
  REQUIRE(one.store->MoveUploadToBlob(upload).ok());
  CHECK(WholeOf(**two.store->OpenBlob(Sha256Hex(bytes))) == bytes);
}

TEST_CASE("A server hashes nothing of an upload that another has deleted, and that was begun anew") {
  PostgresDatabase database;
  Server one(database);
  Server two(database);
  const UploadId upload("u");
  const std::string bytes = ManyBytes(2'000'000, 3);
  const std::string digest = Sha256Hex(bytes);
  const std::string wrong(1'000'000, 'x');
  REQUIRE(one.store->StartUpload(upload, 2'000'000, digest).ok());
  REQUIRE(one.store->WriteChunk(upload, 0, bytes.substr(0, 1'000'000)).ok());
  REQUIRE(two.store->WriteChunk(upload, 1'000'000, wrong).ok());
  CHECK(two.store->FinishUpload(upload).code() == Code::kDataLoss);
  // The first has hashed the right beginning of the one before.
  REQUIRE(one.store->StartUpload(upload, 2'000'000, digest).ok());
  REQUIRE(two.store->WriteChunk(upload, 0, wrong).ok());
  REQUIRE(one.store->WriteChunk(upload, 1'000'000, bytes.substr(1'000'000)).ok());
  CHECK(one.store->FinishUpload(upload).code() == Code::kDataLoss);
  CHECK(one.store->GetUpload(upload).status().code() == Code::kNotFound);
}

TEST_CASE("A server that is told to stop reads and writes no more, and drops what others have deleted before") {
  PostgresDatabase database;
  Server one(database);
  Server two(database);
  const std::string kept = *one.store->PutBlob("kept");
  const std::string deleted = *one.store->PutBlob("deleted");
  REQUIRE(two.store->OpenBlob(kept).ok());
  REQUIRE(two.store->OpenBlob(deleted).ok());
  REQUIRE(one.store->DeleteBlob(deleted).ok());
  CHECK(two.num_files() == 2);
  REQUIRE(two.store->DropDeleted().ok());
  CHECK(two.num_files() == 1);
  REQUIRE(one.store->StartUpload(UploadId("u"), 4, Sha256Hex("more")).ok());
  two.store->Stop();
  CHECK(two.store->OpenBlob(kept).status().code() == Code::kUnavailable);
  CHECK(two.store->WriteChunk(UploadId("u"), 0, "more").status().code() == Code::kUnavailable);
  CHECK(one.store->WriteChunk(UploadId("u"), 0, "more").ok());
}

TEST_CASE("Two servers that take chunks of one upload at the same time lose none and double none") {
  PostgresDatabase database;
  Server one(database);
  Server two(database);
  const UploadId upload("u");
  constexpr int64_t kChunk = 10'000;
  const std::string bytes = ManyBytes(60 * kChunk, 2);
  REQUIRE(one.store->StartUpload(upload, 60 * kChunk, Sha256Hex(bytes)).ok());
  const auto send = [&](PayloadStore& store) {
    int64_t place = 0;
    while (place < 60 * kChunk) {
      const auto committed = store.WriteChunk(upload, place, bytes.substr(static_cast<size_t>(place), kChunk));
      if (!committed.ok()) return committed.status();
      place = *committed;
    }
    return absl::OkStatus();
  };
  absl::Status second;
  std::thread other([&] { second = send(*two.store); });
  const absl::Status first = send(*one.store);
  other.join();
  CHECK(first.ok());
  CHECK(second.ok());
  REQUIRE(one.store->FinishUpload(upload).ok());
  CHECK(WholeOf(**two.store->OpenUpload(upload)) == bytes);
  CHECK(NumPieces(database) == 60);
}

TEST_CASE("A blob that one server deletes is gone for all, also for one that has fetched it") {
  PostgresDatabase database;
  Server one(database);
  Server two(database);
  const std::string digest = *one.store->PutBlob("bytes");
  const auto view = *two.store->OpenBlob(digest);
  CHECK(two.num_files() == 1);
  REQUIRE(one.store->DeleteBlob(digest).ok());
  CHECK(two.store->OpenBlob(digest).status().code() == Code::kNotFound);
  CHECK_FALSE(two.store->HasBlob(digest));
  CHECK(WholeOf(*view) == "bytes");
  CHECK(NumPieces(database) == 0);
}

TEST_CASE("The bytes of a deleted blob go where what remains of it is dropped, or when a next server cleans up") {
  PostgresDatabase database;
  Server server(database);
  const std::string digest = *server.store->PutBlob(std::string(5 << 20, 'x'));
  CHECK(NumPieces(database) == 5);
  auto remains = *server.store->DeleteBlob(digest);
  CHECK(NumPieces(database) == 5);
  // Another may put it meanwhile.
  CHECK(*server.store->PutBlob(std::string(5 << 20, 'x')) == digest);
  CHECK(NumPieces(database) == 10);
  remains.reset();
  CHECK(NumPieces(database) == 5);
  CHECK((*server.store->OpenBlob(digest))->size_bytes() == 5 << 20);

  database.Run("DELETE FROM blobs");
  CHECK(NumPieces(database) == 5);
  Server next(database);
  // Before it serves it has no time for that.
  CHECK(NumPieces(database) == 5);
  const UploadId upload("u");
  REQUIRE(next.store->StartUpload(upload, 9, Sha256Hex("of an upload")).ok());
  REQUIRE(next.store->WriteChunk(upload, 0, "of an").ok());
  CHECK(next.store->DeleteStaleUploads(absl::UnixEpoch(), absl::Hours(1)) == 0);
  CHECK(NumPieces(database) == 1);
}

TEST_CASE("A connection that broke while nobody used it is made anew, and no call fails for it") {
  PostgresDatabase database;
  Server server(database);
  REQUIRE(server.store->WarmUp().ok());
  const std::string others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
  CHECK(database.Run("SELECT count(*) " + others) == "1");
  database.Run("SELECT pg_terminate_backend(pid, 5000) " + others);
  const absl::StatusOr<std::string> digest = server.store->PutBlob("bytes");
  INFO(digest.status().ToString());
  REQUIRE(digest.ok());
  database.Run("SELECT pg_terminate_backend(pid, 5000) " + others);
  CHECK(server.store->HasBlob(*digest));
}

TEST_CASE("A blob that was put twice is stored once") {
  PostgresDatabase database;
  Server one(database);
  Server two(database);
  CHECK(*one.store->PutBlob("bytes") == *two.store->PutBlob("bytes"));
  CHECK(NumPieces(database) == 1);
}

TEST_CASE("What a client contributed leaves no file on the server's machine") {
  PostgresDatabase database;
  Server server(database);
  const UploadId upload("u");
  REQUIRE(server.store->StartUpload(upload, 5, Sha256Hex("hello")).ok());
  REQUIRE(server.store->WriteChunk(upload, 0, "hello").ok());
  REQUIRE(server.store->FinishUpload(upload).ok());
  const auto view = *server.store->OpenUpload(upload);
  CHECK(WholeOf(*view) == "hello");
  CHECK(server.num_files() == 0);
}

TEST_CASE("A segment keeps its bytes when the upload that it was is deleted, at whatever moment") {
  PostgresDatabase database;
  Server one(database);
  Server two(database);
  const RoundId round("r");
  for (int i = 0; i < 20; ++i) {
    const UploadId upload(fmt::format("u{}", i));
    const std::string bytes = fmt::format("large {}", i);
    REQUIRE(one.store->StartUpload(upload, static_cast<int64_t>(bytes.size()), Sha256Hex(bytes)).ok());
    REQUIRE(one.store->WriteChunk(upload, 0, bytes).ok());
    REQUIRE(one.store->FinishUpload(upload).ok());
    // Its client cancels it on another server.
    absl::Status deleted;
    std::thread other([&] { deleted = two.store->DeleteUpload(upload); });
    const absl::StatusOr<SpoolRef> ref = one.store->AddUploadToSpool(upload, round);
    other.join();
    CHECK(deleted.ok());
    if (ref.ok()) {
      CHECK(*one.store->ReadFromSpool(round, *ref) == bytes);
    } else {
      CHECK(ref.status().code() == Code::kNotFound);
    }
  }
  REQUIRE(one.store->DeleteRound(round).ok());
  CHECK(NumPieces(database) == 0);
}

TEST_CASE("Of what is fetched the oldest goes when it is too much, and a damaged file is fetched again") {
  PostgresDatabase database;
  Server server(database, /*fetched_bytes_max=*/250);
  std::vector<std::string> digests;
  for (const char letter : {'a', 'b', 'c'}) digests.push_back(*server.store->PutBlob(std::string(100, letter)));
  const auto has_file = [&](int blob) { return fs::exists(server.directory.path() + "/" + digests[blob]); };
  REQUIRE(server.store->OpenBlob(digests[0]).ok());
  REQUIRE(server.store->OpenBlob(digests[1]).ok());
  REQUIRE(server.store->OpenBlob(digests[0]).ok());
  REQUIRE(server.store->OpenBlob(digests[2]).ok());
  CHECK(has_file(0));
  CHECK_FALSE(has_file(1));
  CHECK(has_file(2));
  CHECK(WholeOf(**server.store->OpenBlob(digests[1])) == std::string(100, 'b'));

  Server other(database);
  std::ofstream(other.directory.path() + "/" + digests[0]) << "not these bytes";
  CHECK(WholeOf(**other.store->OpenBlob(digests[0])) == std::string(100, 'a'));
}

TEST_CASE("Bytes that somebody changed in the database are DATA_LOSS, and named") {
  PostgresDatabase database;
  Server server(database);
  const std::string digest = *server.store->PutBlob("bytes");
  REQUIRE(server.store->PutCheckpoint(RoundId("r"), "c", "state").ok());
  const SpoolRef ref = *server.store->AppendToSpool(RoundId("r"), "record");
  REQUIRE(server.store->SyncSpools().ok());
  database.Run("UPDATE content_pieces SET bytes = set_byte(bytes, 0, 0)");
  database.Run("UPDATE spool_pieces SET bytes = set_byte(bytes, 0, 0)");
  const absl::Status blob = server.store->OpenBlob(digest).status();
  CHECK(blob.code() == Code::kDataLoss);
  CHECK_THAT(std::string(blob.message()), Catch::Contains(digest));
  CHECK(server.store->ReadCheckpoint(RoundId("r"), "c").status().code() == Code::kDataLoss);
  CHECK(server.store->ReadFromSpool(RoundId("r"), ref).status().code() == Code::kDataLoss);
  database.Run("DELETE FROM content_pieces");
  CHECK(server.store->OpenBlob(digest).status().code() == Code::kDataLoss);
}

TEST_CASE("What a database that went away did not take is lost, and said; then everything goes on") {
  PostgresCluster cluster;
  PostgresDatabase database(cluster);
  Server server(database);
  const RoundId round("r");
  const SpoolRef kept = *server.store->AppendToSpool(round, "kept");
  REQUIRE(server.store->SyncSpools().ok());
  const UploadId upload("u");
  REQUIRE(server.store->StartUpload(upload, 6, Sha256Hex("abcdef")).ok());
  REQUIRE(server.store->WriteChunk(upload, 0, "abc").ok());
  const SpoolRef lost = *server.store->AppendToSpool(round, "lost");

  cluster.Stop("immediate");
  CHECK(server.store->SyncSpools().code() == Code::kUnavailable);
  CHECK(server.store->WriteChunk(upload, 3, "def").status().code() == Code::kUnavailable);
  CHECK(server.store->OpenBlob(Sha256Hex("none")).status().code() == Code::kUnavailable);
  CHECK(server.store->PutBlob("bytes").status().code() == Code::kUnavailable);
  cluster.Start();

  CHECK(*server.store->ReadFromSpool(round, kept) == "kept");
  CHECK(server.store->ReadFromSpool(round, lost).status().code() == Code::kDataLoss);
  const SpoolRef next = *server.store->AppendToSpool(round, "next");
  REQUIRE(server.store->SyncSpools().ok());
  CHECK(*server.store->ReadFromSpool(round, next) == "next");
  // A crash of the database takes the end of an upload that is not finished.
  const int64_t committed = server.store->StartUpload(upload, 6, Sha256Hex("abcdef"))->committed_bytes;
  CHECK((committed == 0 || committed == 3));
  CHECK(*server.store->WriteChunk(upload, committed, std::string("abcdef").substr(static_cast<size_t>(committed))) ==
        6);
  REQUIRE(server.store->FinishUpload(upload).ok());
  CHECK(WholeOf(**server.store->OpenUpload(upload)) == "abcdef");
}

// --- Owners --------------------------------------------------------------------------------------

// A server whose turn has come, also if another one lives.
struct OwningServer : Server {
  OwningServer(PostgresDatabase& database, const std::string& name) : Server(database) {
    auto opened = PostgresTaskStore::Open(
        {.connection = {.conninfo = database.conninfo(), .timeout = absl::Seconds(10)},
         .owner = {.server = name, .address = name + ":7433", .takeover_after = absl::ZeroDuration()}});
    REQUIRE(opened.ok());
    tasks = *std::move(opened);
    store->JoinBatches(tasks->session());
  }
  absl::Status WriteCheckpoint(const RoundId& round, const std::string& name, std::string_view bytes) {
    return store->WriteCheckpoint(round, name, [&](const ByteSink& take) { return take(bytes); });
  }
  SpoolRef Append(const RoundId& round, std::string_view bytes) {
    REQUIRE(tasks->tasks().BeginBatch().ok());
    const absl::StatusOr<SpoolRef> ref = store->AppendToSpool(round, bytes);
    REQUIRE(ref.ok());
    REQUIRE(tasks->tasks().CommitBatch().ok());
    return *ref;
  }

  std::unique_ptr<PostgresTaskStore> tasks;
};

TEST_CASE("A server that was taken over, and goes on, deletes and overwrites nothing of the store") {
  PostgresDatabase database;
  const RoundId round("r");
  OwningServer old(database, "old");
  const SpoolRef first = old.Append(round, "first");
  REQUIRE(old.WriteCheckpoint(round, "c1", "of the old one").ok());
  const std::string blob = *old.store->PutBlob("a broadcast");

  OwningServer next(database, "next");
  const SpoolRef second = next.Append(round, "second");
  REQUIRE(next.WriteCheckpoint(round, "c2", "of the next one").ok());
  REQUIRE(next.store->DeleteCheckpointsExcept(round, "c2").ok());

  CHECK(old.WriteCheckpoint(round, "c2", "of the old one").code() == Code::kAborted);
  CHECK(old.WriteCheckpoint(round, "c3", "of the old one").code() == Code::kAborted);
  CHECK(old.store->DeleteCheckpointsExcept(round, "c1").code() == Code::kAborted);
  CHECK(old.store->DeleteSpoolSegments(round, second.segment).code() == Code::kAborted);
  CHECK(old.store->DeleteRound(round).code() == Code::kAborted);
  CHECK(old.store->DeleteBlob(blob).status().code() == Code::kAborted);

  CHECK(*next.store->ReadFromSpool(round, first) == "first");
  CHECK(*next.store->ReadFromSpool(round, second) == "second");
  CHECK(*next.store->ReadCheckpoint(round, "c2") == "of the next one");
  CHECK(next.store->ReadCheckpoint(round, "c3").status().code() == Code::kNotFound);
  CHECK(WholeOf(**next.store->OpenBlob(blob)) == "a broadcast");
  // What they wrote in vain has left no bytes.
  CHECK(NumPieces(database) == 2);

  REQUIRE(next.store->DeleteBlob(blob).ok());
  REQUIRE(next.store->DeleteRound(round).ok());
  CHECK(next.store->ListRounds()->empty());
}

TEST_CASE("A checkpoint that is being written when another server takes over is none") {
  PostgresDatabase database;
  const RoundId round("r");
  OwningServer old(database, "old");
  std::optional<OwningServer> next;
  const absl::Status written = old.store->WriteCheckpoint(round, "c9", [&](const ByteSink& take) {
    absl::Status status = take(ManyBytes(3'000'000, 7));
    next.emplace(database, "next");
    REQUIRE(next->WriteCheckpoint(round, "c9", "of the next one").ok());
    status.Update(take("the rest"));
    return status;
  });
  CHECK(written.code() == Code::kAborted);
  CHECK(*next->store->ReadCheckpoint(round, "c9") == "of the next one");
}

TEST_CASE("While a blob is being deleted nobody takes over") {
  PostgresDatabase database;
  OwningServer owner(database, "owner");
  const auto connection = PostgresConnection::Open({.conninfo = database.conninfo()});
  REQUIRE(connection.ok());
  REQUIRE((*connection)->Run({.sql = "-- begin\nBEGIN"}).ok());
  REQUIRE((*connection)->Run(owner.tasks->session().tenure().Hold()).ok());
  std::atomic<bool> is_committed = false;
  absl::Status committed;
  std::thread deletion([&] {
    ::poll(nullptr, 0, 700);
    is_committed = true;
    committed = (*connection)->Run({.sql = "-- commit\nCOMMIT"});
  });
  const OwningServer next(database, "next");
  CHECK(is_committed);
  deletion.join();
  CHECK(committed.ok());
}

TEST_CASE("The next process of the same server shuts the one before out, too") {
  PostgresDatabase database;
  const RoundId round("r");
  OwningServer before(database, "server");
  // Then its epoch begins anew.
  const bool stopped_well = GENERATE(false, true);
  CAPTURE(stopped_well);
  if (stopped_well) REQUIRE(before.tasks->Release().ok());
  OwningServer after(database, "server");
  REQUIRE(after.WriteCheckpoint(round, "c1", "of the next process").ok());
  CHECK(before.store->DeleteRound(round).code() == Code::kAborted);
  CHECK(*after.store->ReadCheckpoint(round, "c1") == "of the next process");
}

TEST_CASE("An owner whose connection broke is the owner that it was") {
  PostgresDatabase database;
  const RoundId round("r");
  OwningServer server(database, "server");
  REQUIRE(server.WriteCheckpoint(round, "c1", "one").ok());
  database.Run(fmt::format("SELECT pg_terminate_backend({}, 5000)", server.tasks->connection().backend_pid()));
  // This finds it broken, or makes it anew.
  if (server.tasks->tasks().BeginBatch().ok()) server.tasks->tasks().CommitBatch().IgnoreError();
  server.Append(round, "bytes");
  CHECK(server.WriteCheckpoint(round, "c2", "two").ok());
  CHECK(server.store->DeleteCheckpointsExcept(round, "c2").ok());
}

TEST_CASE("Nobody takes over from an owner that is heard to live while it commits nothing") {
  PostgresDatabase database;
  const PostgresConnection::Options connection = {.conninfo = database.conninfo(), .timeout = absl::Seconds(10)};
  const auto try_to_take = [&] {
    return PostgresTaskStore::Open(
        {.connection = connection,
         .owner = {.server = "next", .address = "next:7433", .takeover_after = absl::Milliseconds(1'500)}});
  };
  OwningServer owner(database, "owner");
  {
    const PostgresHeartbeat heartbeat(connection, owner.tasks->session().tenure(), absl::Milliseconds(100));
    ::poll(nullptr, 0, 2'500);
    CHECK(try_to_take().status().code() == Code::kFailedPrecondition);
  }
  ::poll(nullptr, 0, 2'000);
  CHECK(try_to_take().ok());
}

}  // namespace
}  // namespace sheaf
