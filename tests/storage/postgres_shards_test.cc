// Goal: a database that is divided into shards. Each population is in one of them, whoever places it; each shard is a
// whole store with an owner of its own; and a blob goes from one to another as it is.
#include "storage/postgres/postgres_shards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/random.h"
#include "storage/postgres/open.h"
#include "storage/postgres/postgres_migrations.h"
#include "storage/postgres/postgres_task_store.h"
#include "tests/postgres/postgres_cluster.h"
#include "tests/storage/temporary_directory.h"
#include "tests/wait_until.h"

namespace sheaf {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);
const std::string kUnknownDigest(64, 'e');

template <typename T>
T Ok(absl::StatusOr<T> value) {
  INFO(value.status().ToString());
  REQUIRE(value.ok());
  return *std::move(value);
}

void RequireOk(const absl::Status& status) {
  INFO(status.ToString());
  REQUIRE(status.ok());
}

// A database whose first shard is there, and has no owner.
class ShardedDatabase {
 public:
  // `home_schema` is an identifier in SQL; empty: where the database looks first.
  explicit ShardedDatabase(const std::string& home_schema = "",
                           std::span<const Migration> migrations = PostgresMigrations())
      : home_schema_(home_schema) {
    // What a power cut leaves is no part of it, and schemas are many files.
    database_.Run("ALTER SYSTEM SET fsync = off");
    database_.Run("SELECT pg_reload_conf()");
    if (!home_schema.empty()) database_.Run("CREATE SCHEMA " + home_schema);
    Migrate(migrations);
  }

  void Migrate(std::span<const Migration> migrations) {
    const auto store =
        Ok(PostgresTaskStore::Open({.connection = options(), .owner = {.server = "maker"}, .migrations = migrations}));
    RequireOk(store->Release());
  }

  PostgresDatabase* operator->() { return &database_; }
  PostgresConnection::Options options() const { return {.conninfo = database_.conninfo(), .schema = home_schema_}; }
  std::unique_ptr<PostgresShards> Open(const std::string& server = "server-1",
                                       absl::Duration takeover_after = absl::Hours(1)) const {
    return Ok(PostgresShards::Open(options(), server, takeover_after));
  }
  absl::StatusOr<PostgresStore> TryOpenStore(const PostgresShards& shards, Shard shard, const std::string& server) {
    return OpenPostgresStore({.conninfo = database_.conninfo(),
                              .schema = shard == kHomeShard ? home_schema_ : shards.SchemaOf(shard),
                              .directory = fmt::format("{}/{}-{}", directory_.path(), server, shard),
                              .server = server,
                              .address = server + ":7433",
                              .peer = {.address = server + ":7434", .certificate = "pem", .secret = "secret"},
                              .takeover_after = absl::Hours(1)},
                             random_);
  }
  PostgresStore OpenStore(const PostgresShards& shards, Shard shard, const std::string& server = "server-1") {
    return Ok(TryOpenStore(shards, shard, server));
  }

 private:
  PostgresDatabase database_;
  const std::string home_schema_;
  const TemporaryDirectory directory_;
  SystemRandom random_;
};

// Where each of `count` populations is placed, in their order.
std::vector<Shard> PlaceMany(PostgresShards& shards, int count, const std::string& name = "phones") {
  std::vector<Shard> placed;
  for (int i = 0; i < count; ++i) placed.push_back(Ok(shards.Place(fmt::format("{}-{}", name, i))));
  return placed;
}

// "phones-0 in 0, phones-1 in 1", in the order of their names.
std::string Newly(const PostgresShards::View& view) {
  std::map<std::string, Shard> placed;
  for (const PostgresShards::Placed& one : view.placed) placed[one.population] = one.shard;
  std::vector<std::string> texts;
  for (const auto& [population, shard] : placed) texts.push_back(fmt::format("{} in {}", population, shard));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// "0: server-1, 1: nobody".
std::string Owners(const PostgresShards::View& view) {
  std::vector<std::string> texts;
  for (const PostgresShards::ShardView& shard : view.shards) {
    texts.push_back(fmt::format("{}: {}", shard.shard, shard.owner ? shard.owner->server : "nobody"));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

TaskStore::CreateRoundParams ARound(const std::string& id, const std::string& population, int num_tasks = 1) {
  TaskStore::CreateRoundParams params;
  params.round = {.id = RoundId(id),
                  .population = population,
                  .request_id = "request-" + id,
                  .spec = "spec",
                  .state = RoundState::kCollecting,
                  .create_time = kNow,
                  .deadline_time = kNow + absl::Hours(1)};
  for (int i = 0; i < num_tasks; ++i) params.tasks.push_back({.payload = fmt::format("payload {}", i)});
  return params;
}

absl::Status Create(TaskStore& store, const TaskStore::CreateRoundParams& round) {
  if (absl::Status status = store.BeginBatch(); !status.ok()) return status;
  if (const auto created = store.CreateRound(round); !created.ok()) {
    store.RollbackBatch();
    return created.status();
  }
  return store.CommitBatch();
}

// --- Placing -------------------------------------------------------------------------------------

TEST_CASE("A population is placed where there are fewest, and every server finds it there from then on") {
  ShardedDatabase database;
  const auto first = database.Open("server-1");
  const auto second = database.Open("server-2");
  CHECK(Newly(Ok(first->Look())).empty());
  CHECK(PlaceMany(*first, 3) == std::vector<Shard>{0, 1, 2});
  CHECK(PlaceMany(*second, 5) == std::vector<Shard>{0, 1, 2, 3, 4});
  CHECK(PlaceMany(*first, 5) == std::vector<Shard>{0, 1, 2, 3, 4});

  // What is new to each of them, and once.
  const std::string all = "phones-0 in 0, phones-1 in 1, phones-2 in 2, phones-3 in 3, phones-4 in 4";
  CHECK(Newly(Ok(first->Look())) == all);
  CHECK(Newly(Ok(first->Look())).empty());
  CHECK(Newly(Ok(second->Look())) == all);
  CHECK(Ok(second->Place("tablets")) == 5);
  CHECK(Newly(Ok(first->Look())) == "tablets in 5");
  CHECK(Newly(Ok(second->Look())) == "tablets in 5");
  CHECK(Newly(Ok(database.Open("server-3")->Look())) == all + ", tablets in 5");
  CHECK(Owners(Ok(first->Look())) == "0: nobody, 1: nobody, 2: nobody, 3: nobody, 4: nobody, 5: nobody");

  // The next ones fill up.
  database->Run("DELETE FROM populations WHERE shard = 2");
  for (int shard = 6; shard < kNumShards; ++shard) {
    database->Run(fmt::format("INSERT INTO populations VALUES ('full-{0}', {0}, -{0})", shard));
  }
  CHECK(PlaceMany(*first, 3, "watches") == std::vector<Shard>{2, 0, 1});
}

TEST_CASE("A population's name may be any text") {
  ShardedDatabase database;
  const auto shards = database.Open();
  const std::vector<std::string> names = {
      "", "default", "it's \"so\"; --", std::string("a\0b", 3), "H\xc3\xa4user", "\xff\xfe"};
  std::map<std::string, Shard> placed;
  for (const std::string& name : names) placed[name] = Ok(shards->Place(name));
  for (const std::string& name : names) CHECK(Ok(database.Open()->Place(name)) == placed[name]);
  const PostgresShards::View view = Ok(shards->Look());
  CHECK(view.placed.size() == names.size());
  for (const PostgresShards::Placed& one : view.placed) CHECK(placed.at(one.population) == one.shard);
}

TEST_CASE("Servers that place populations at the same time agree where each of them is") {
  ShardedDatabase database;
  constexpr int kThreads = 8;
  constexpr int kShared = 4;
  constexpr int kOwn = 2;
  std::vector<std::unique_ptr<PostgresShards>> servers;
  for (int i = 0; i < 2; ++i) servers.push_back(database.Open(fmt::format("server-{}", i)));
  std::vector<std::map<std::string, absl::StatusOr<Shard>>> answers(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      PostgresShards& server = *servers[static_cast<size_t>(thread) % 2];
      std::vector<std::string> names;
      for (int i = 0; i < kShared; ++i) names.push_back(fmt::format("shared-{}", (i + thread) % kShared));
      for (int i = 0; i < kOwn; ++i) names.push_back(fmt::format("own-{}-{}", thread, i));
      for (const std::string& name : names) answers[static_cast<size_t>(thread)].emplace(name, server.Place(name));
    });
  }
  for (std::thread& thread : threads) thread.join();

  std::map<std::string, Shard> seen;
  for (const PostgresShards::Placed& one : Ok(servers[0]->Look()).placed) seen[one.population] = one.shard;
  CHECK(seen.size() == kShared + kThreads * kOwn);
  for (const auto& of_thread : answers) {
    for (const auto& [name, shard] : of_thread) {
      INFO(name << ": " << shard.status().ToString());
      REQUIRE(shard.ok());
      CHECK(seen.at(name) == *shard);
    }
  }
  // Twenty of them in sixteen.
  std::map<Shard, int> num_in;
  for (const auto& [name, shard] : seen) ++num_in[shard];
  CHECK(num_in.size() == kNumShards);
  for (const auto& [shard, count] : num_in) CHECK(count <= 2);
}

TEST_CASE("A population that has rounds already stays in the first shard") {
  ShardedDatabase database;
  const auto shards = database.Open();
  PostgresStore home = database.OpenStore(*shards, kHomeShard);
  RequireOk(Create(home.task_store(), ARound("r-old", "old")));
  CHECK(PlaceMany(*shards, 2) == std::vector<Shard>{0, 1});
  CHECK(Ok(shards->Place("old")) == kHomeShard);
  // It counts among those of its shard.
  CHECK(Ok(shards->Place("young")) == 2);
  CHECK(Newly(Ok(shards->Look())) == "old in 0, phones-0 in 0, phones-1 in 1, young in 2");
}

TEST_CASE("Who may make no schema has all populations in the first shard") {
  ShardedDatabase database;
  database->Run("CREATE ROLE limited LOGIN");
  database->Run("GRANT USAGE ON SCHEMA public TO limited");
  database->Run("GRANT ALL ON ALL TABLES IN SCHEMA public TO limited");
  PostgresConnection::Options limited = database.options();
  limited.conninfo += " user=limited";
  const auto shards = Ok(PostgresShards::Open(limited, "server-1", absl::Hours(1)));
  CHECK(PlaceMany(*shards, 3) == std::vector<Shard>{0, 0, 0});
  // What was placed stays, also when they may.
  CHECK(PlaceMany(*database.Open("server-2"), 4) == std::vector<Shard>{0, 0, 0, 1});
  CHECK(Newly(Ok(database.Open("server-3")->Look())) == "phones-0 in 0, phones-1 in 0, phones-2 in 0, phones-3 in 1");
  CHECK(database->Run("SELECT count(*) FROM pg_namespace WHERE nspname LIKE '%shard%'") == "1");
  database->Run("DROP OWNED BY limited");
  database->Run("DROP ROLE limited");
}

TEST_CASE("A connection that broke is made again, whether somebody looks or places") {
  ShardedDatabase database;
  const auto shards = database.Open();
  CHECK(PlaceMany(*shards, 2) == std::vector<Shard>{0, 1});
  Ok(shards->Look());
  for (const bool looks : {true, false}) {
    INFO((looks ? "looks" : "places"));
    database->Run(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid()");
    // The first may find that it is broken.
    const auto ask = [&] { return looks ? shards->Look().status() : shards->Place("phones-1").status(); };
    const absl::Status first = ask();
    CHECK((first.ok() || absl::IsUnavailable(first)));
    RequireOk(ask());
  }
  CHECK(PlaceMany(*shards, 3) == std::vector<Shard>{0, 1, 2});
  shards->Look().status().IgnoreError();
  CHECK(PlaceMany(*shards, 4) == std::vector<Shard>{0, 1, 2, 3});
  CHECK(Newly(Ok(shards->Look())).ends_with("phones-3 in 3"));
}

TEST_CASE("What was placed is told by the next look, also where one has failed in between") {
  ShardedDatabase database;
  const auto shards = database.Open();
  Ok(shards->Look());
  CHECK(PlaceMany(*shards, 2) == std::vector<Shard>{0, 1});
  // It has read where populations are by then.
  database->Run("ALTER TABLE servers RENAME TO hidden");
  CHECK_FALSE(shards->Look().ok());
  database->Run("ALTER TABLE hidden RENAME TO servers");
  CHECK(Newly(Ok(shards->Look())) == "phones-0 in 0, phones-1 in 1");
}

// --- Owners --------------------------------------------------------------------------------------

TEST_CASE("Two shards are two stores: each has its own rounds, and may have another owner") {
  ShardedDatabase database;
  const auto shards = database.Open("server-1");
  CHECK(PlaceMany(*shards, 3) == std::vector<Shard>{0, 1, 2});
  PostgresStore home = database.OpenStore(*shards, 0, "server-1");
  PostgresStore second = database.OpenStore(*shards, 1, "server-2");
  PostgresStore third = database.OpenStore(*shards, 2, "server-1");
  // The same id, and the same request.
  RequireOk(Create(home.task_store(), ARound("r-same", "phones-0", 3)));
  RequireOk(Create(second.task_store(), ARound("r-same", "phones-1", 5)));
  CHECK(Ok(home.task_store().GetRound(RoundId("r-same"))).population == "phones-0");
  CHECK(Ok(home.task_store().GetRound(RoundId("r-same"))).tasks.queued == 3);
  CHECK(Ok(second.task_store().GetRound(RoundId("r-same"))).population == "phones-1");
  CHECK(Ok(second.task_store().GetRound(RoundId("r-same"))).tasks.queued == 5);
  CHECK(absl::IsNotFound(third.task_store().GetRound(RoundId("r-same")).status()));

  const PostgresShards::View view = Ok(shards->Look());
  CHECK(Owners(view) == "0: server-1, 1: server-2, 2: server-1");
  REQUIRE(view.shards[1].owner);
  CHECK(view.shards[1].owner->peer ==
        PeerAddress{.address = "server-2:7434", .certificate = "pem", .secret = "secret"});
  CHECK(database.TryOpenStore(*shards, 1, "server-1").status().code() == absl::StatusCode::kFailedPrecondition);

  // Whoever gives one back keeps the other.
  RequireOk(third.tasks->Release());
  CHECK(Owners(Ok(shards->Look())) == "0: server-1, 1: server-2, 2: nobody");
  RequireOk(Create(home.task_store(), ARound("r-more", "phones-0")));
  PostgresStore taken = database.OpenStore(*shards, 2, "server-3");
  CHECK(Owners(Ok(shards->Look())) == "0: server-1, 1: server-2, 2: server-3");
  CHECK(absl::IsAborted(Create(third.task_store(), ARound("r-late", "phones-2"))));
}

TEST_CASE("An owner of whom nothing was heard for long is none") {
  ShardedDatabase database;
  const auto shards = database.Open("server-1", absl::Minutes(10));
  CHECK(PlaceMany(*shards, 2) == std::vector<Shard>{0, 1});
  PostgresStore home = database.OpenStore(*shards, 0, "server-1");
  PostgresStore second = database.OpenStore(*shards, 1, "server-2");
  CHECK(Owners(Ok(shards->Look())) == "0: server-1, 1: server-2");
  const std::string schema = shards->SchemaOf(1);
  database->Run(fmt::format("UPDATE {}.owners SET heartbeat_time = heartbeat_time - interval '1 hour'", schema));
  // The server lives, as it says itself.
  CHECK(Owners(Ok(shards->Look())) == "0: server-1, 1: server-2");
  database->Run(fmt::format("UPDATE {}.servers SET heartbeat_time = heartbeat_time - interval '1 hour'", schema));
  CHECK(Owners(Ok(shards->Look())) == "0: server-1, 1: nobody");
  // It is heard of again.
  RequireOk(Create(second.task_store(), ARound("r-1", "phones-1")));
  CHECK(Owners(Ok(shards->Look())) == "0: server-1, 1: server-2");
}

TEST_CASE("The servers that take shards are those that look, and live") {
  ShardedDatabase database;
  const auto first = database.Open("server-1");
  PostgresStore home = database.OpenStore(*first, 0, "server-1");
  // Whoever is not among the servers yet takes no part.
  const auto second = database.Open("server-2");
  CHECK(Ok(second->Look()).servers.empty());
  CHECK(Ok(first->Look()).servers == std::vector<std::string>{"server-1"});
  database->Run(
      "INSERT INTO servers SELECT 'server-2', 7, clock_timestamp(), clock_timestamp(), version, address, peer_address, "
      "peer_certificate, peer_secret, 6 FROM servers");
  CHECK(Ok(first->Look()).servers == std::vector<std::string>{"server-1"});
  CHECK(Ok(second->Look()).servers == std::vector<std::string>{"server-1", "server-2"});
  CHECK(Ok(first->Look()).servers == std::vector<std::string>{"server-1", "server-2"});
  // It has started again, as one of an older version.
  database->Run("UPDATE servers SET epoch = 8 WHERE id = 'server-2'");
  CHECK(Ok(first->Look()).servers == std::vector<std::string>{"server-1"});
  CHECK(Ok(second->Look()).servers == std::vector<std::string>{"server-1", "server-2"});
  database->Run("UPDATE servers SET heartbeat_time = heartbeat_time - interval '1 day' WHERE id = 'server-2'");
  CHECK(Ok(second->Look()).servers == std::vector<std::string>{"server-1"});
  // An owner that commits need say nothing else.
  database->Run("UPDATE servers SET heartbeat_time = heartbeat_time - interval '1 day'");
  CHECK(Ok(first->Look()).servers == std::vector<std::string>{"server-1"});
}

TEST_CASE("A server that was taken out of service takes no shards, until it is taken back, also when it starts again") {
  ShardedDatabase database;
  const auto first = database.Open("server-1");
  const auto second = database.Open("server-2");
  PostgresStore home = database.OpenStore(*first, 0, "server-1");
  database->Run(
      "INSERT INTO servers SELECT 'server-2', 7, clock_timestamp(), clock_timestamp(), version, address, peer_address, "
      "peer_certificate, peer_secret, 6 FROM servers");
  const auto set_draining = [&](const std::string& server, bool is_draining) -> absl::StatusOr<ServerRecord> {
    RequireOk(home.task_store().BeginBatch());
    auto set = home.task_store().SetServerDraining({.server = server, .is_draining = is_draining});
    RequireOk(home.task_store().CommitBatch());
    return set;
  };
  const auto look = [&](PostgresShards& shards) {
    const PostgresShards::View view = Ok(shards.Look());
    return fmt::format("{}{}", fmt::join(view.servers, ", "), view.is_draining ? "; draining" : "");
  };
  CHECK(look(*first) == "server-1");
  CHECK(look(*second) == "server-1, server-2");
  CHECK(absl::IsNotFound(set_draining("server-3", true).status()));
  CHECK(absl::IsNotFound(set_draining("server-3", false).status()));
  CHECK_FALSE(Ok(set_draining("server-2", false)).is_draining);
  CHECK(look(*second) == "server-1, server-2");
  for (int again = 0; again < 2; ++again) {
    const ServerRecord drained = Ok(set_draining("server-2", true));
    CHECK(drained.name == "server-2");
    CHECK(drained.is_draining);
    CHECK(look(*first) == "server-1");
    CHECK(look(*second) == "server-1; draining");
  }
  // It has ended, and another process has its name.
  database->Run("DELETE FROM servers WHERE id = 'server-2'");
  CHECK(look(*second) == "server-1; draining");
  database->Run(
      "INSERT INTO servers SELECT 'server-2', 1, clock_timestamp(), clock_timestamp(), version, address, peer_address, "
      "peer_certificate, peer_secret, 1 FROM servers");
  CHECK(look(*first) == "server-1");
  const auto listed = Ok(home.task_store().ListServers({}));
  REQUIRE(listed.size() == 2);
  CHECK_FALSE(listed[0].is_draining);
  CHECK(listed[1].is_draining);
  CHECK(Ok(set_draining("server-1", true)).is_owner);
  CHECK(look(*first) == "; draining");
  CHECK_FALSE(Ok(set_draining("server-2", false)).is_draining);
  CHECK(look(*second) == "server-2");
  CHECK(look(*first) == "server-2; draining");
}

// --- Blobs ---------------------------------------------------------------------------------------

std::string ManyBytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  return bytes;
}

std::string Read(PayloadStore& payloads, const std::string& digest) {
  const auto blob = Ok(payloads.OpenBlob(digest));
  const ByteRange all = {.offset = 0, .length = blob->size_bytes()};
  std::string bytes;
  RequireOk(blob->Append({&all, 1}, bytes));
  return bytes;
}

TEST_CASE("A blob is copied into another shard with all its bytes, and each of the two lives and goes for itself") {
  ShardedDatabase database;
  const auto shards = database.Open();
  CHECK(PlaceMany(*shards, 3) == std::vector<Shard>{0, 1, 2});
  PostgresStore home = database.OpenStore(*shards, 0);
  PostgresStore second = database.OpenStore(*shards, 1);
  PostgresStore third = database.OpenStore(*shards, 2);
  // More than are copied at a time.
  const std::string bytes = ManyBytes((9 << 20) + 17);
  const std::string digest = Ok(home.payloads->PutBlob(bytes));
  // Keys of contents are each shard's own: these are taken there.
  const std::string other = Ok(second.payloads->PutBlob("something else"));
  const auto num_pieces = [&](Shard shard) {
    return database->Run(
        fmt::format("SELECT count(*) FROM {}content_pieces", shard == kHomeShard ? "" : shards->SchemaOf(shard) + "."));
  };
  CHECK(Ok(shards->FindBlob(digest)) == std::vector<Shard>{0});
  CHECK(Ok(shards->FindBlob(other)) == std::vector<Shard>{1});
  CHECK(Ok(shards->FindBlob(kUnknownDigest)).empty());

  RequireOk(shards->CopyBlob(digest, 0, 1));
  CHECK(Ok(shards->FindBlob(digest)) == std::vector<Shard>{0, 1});
  CHECK(std::stoi(num_pieces(1)) == std::stoi(num_pieces(0)) + 1);
  CHECK(Read(*second.payloads, digest) == bytes);
  CHECK(Read(*second.payloads, other) == "something else");
  CHECK(Ok(second.payloads->GetBlobSize(digest)) == static_cast<int64_t>(bytes.size()));
  // One that is there already is as good.
  RequireOk(shards->CopyBlob(digest, 0, 1));
  CHECK(std::stoi(num_pieces(1)) == std::stoi(num_pieces(0)) + 1);
  // From a shard that is not the first, into one that is not the first, and back.
  RequireOk(shards->CopyBlob(digest, 1, 2));
  RequireOk(shards->CopyBlob(other, 1, 0));
  CHECK(Ok(shards->FindBlob(digest)) == std::vector<Shard>{0, 1, 2});
  CHECK(Ok(shards->FindBlob(other)) == std::vector<Shard>{0, 1});

  Ok(home.payloads->DeleteBlob(digest));
  CHECK(Ok(shards->FindBlob(digest)) == std::vector<Shard>{1, 2});
  // What belongs to nothing goes with the first look for stale uploads; this belongs to a blob.
  CHECK(second.payloads->DeleteStaleUploads(kNow, absl::Hours(1)) == 0);
  CHECK(third.payloads->DeleteStaleUploads(kNow, absl::Hours(1)) == 0);
  CHECK(Read(*second.payloads, digest) == bytes);
  Ok(second.payloads->DeleteBlob(digest));
  CHECK(Read(*third.payloads, digest) == bytes);
  CHECK(num_pieces(1) == "1");
  RequireOk(shards->CopyBlob(digest, 2, 0));
  CHECK(Read(*home.payloads, digest) == bytes);
}

TEST_CASE("An empty blob is copied, too, and to copy one that has gone is NOT_FOUND") {
  ShardedDatabase database;
  const auto shards = database.Open();
  CHECK(PlaceMany(*shards, 2) == std::vector<Shard>{0, 1});
  PostgresStore home = database.OpenStore(*shards, 0);
  PostgresStore second = database.OpenStore(*shards, 1);
  const std::string empty = Ok(home.payloads->PutBlob(""));
  RequireOk(shards->CopyBlob(empty, 0, 1));
  CHECK(Read(*second.payloads, empty).empty());
  const std::string digest = Ok(home.payloads->PutBlob("bytes"));
  Ok(home.payloads->DeleteBlob(digest));
  CHECK(absl::IsNotFound(shards->CopyBlob(digest, 0, 1)));
  CHECK(absl::IsNotFound(shards->CopyBlob(kUnknownDigest, 1, 0)));
  // The connection serves the next.
  CHECK(Ok(shards->FindBlob(empty)) == std::vector<Shard>{0, 1});
  CHECK(Ok(shards->FindBlob(digest)).empty());
}

TEST_CASE("Several servers copy the same blob at the same time, and it is there once") {
  ShardedDatabase database;
  const auto first = database.Open("server-1");
  CHECK(PlaceMany(*first, 2) == std::vector<Shard>{0, 1});
  const auto second = database.Open("server-2");
  Ok(second->Look());
  PostgresStore home = database.OpenStore(*first, 0);
  PostgresStore there = database.OpenStore(*first, 1);
  const std::string bytes = ManyBytes(3 << 20);
  const std::string digest = Ok(home.payloads->PutBlob(bytes));
  std::vector<absl::Status> copied(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < copied.size(); ++i) {
    threads.emplace_back([&, i] { copied[i] = (i % 2 == 0 ? *first : *second).CopyBlob(digest, 0, 1); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : copied) RequireOk(status);
  CHECK(Read(*there.payloads, digest) == bytes);
  const std::string pieces = "SELECT count(*) FROM ";
  CHECK(database->Run(pieces + first->SchemaOf(1) + ".content_pieces") == database->Run(pieces + "content_pieces"));
}

TEST_CASE("Blobs go from every shard into every other one, for as long as a server lives") {
  ShardedDatabase database;
  const auto shards = database.Open();
  PlaceMany(*shards, kNumShards);
  // One that only that shard has.
  const auto digest_of = [](Shard shard) { return fmt::format("{:064x}", shard); };
  for (Shard shard = 0; shard < kNumShards; ++shard) {
    const std::string schema = shard == kHomeShard ? "" : shards->SchemaOf(shard) + ".";
    database->Run(fmt::format("INSERT INTO {}blobs VALUES ('{}', 0, 1000)", schema, digest_of(shard)));
  }
  // A CHECK ends the process that it is in.
  const pid_t child = ::fork();
  if (child == 0) {
    const auto own = PostgresShards::Open(database.options(), "server-1", absl::Hours(1));
    bool is_right =
        own.ok() && (*own)->Look().ok() && (*own)->Place("tablets").ok() && (*own)->FindBlob(kUnknownDigest).ok();
    for (Shard from = 0; is_right && from < kNumShards; ++from) {
      for (Shard to = 0; is_right && to < kNumShards; ++to) {
        is_right = from == to || (*own)->CopyBlob(digest_of(from), from, to).ok();
      }
    }
    ::_exit(is_right ? 0 : 1);
  }
  int ended = 0;
  REQUIRE(::waitpid(child, &ended, 0) == child);
  CHECK(WIFEXITED(ended));
  CHECK((WIFEXITED(ended) ? WEXITSTATUS(ended) : -WTERMSIG(ended)) == 0);
}

TEST_CASE("A server that has never owned a shard moves its bytes all the same") {
  ShardedDatabase database;
  const auto shards = database.Open();
  CHECK(PlaceMany(*shards, 2) == std::vector<Shard>{0, 1});
  PostgresStore owned = database.OpenStore(*shards, 1);
  const std::string digest = Ok(owned.payloads->PutBlob("bytes"));
  // The server's own, which is there; what is of a shard is not.
  const TemporaryDirectory directory;
  PostgresConnection::Options of_shard = database.options();
  of_shard.schema = shards->SchemaOf(1);
  const auto payloads = Ok(OpenWaitingPayloads(of_shard, directory.path() + "/shard-1"));
  CHECK(Read(*payloads, digest) == "bytes");
}

// --- Schemas -------------------------------------------------------------------------------------

// Of builds before shards.
std::span<const Migration> OlderMigrations() {
  const std::span<const Migration> all = PostgresMigrations();
  const auto end = std::find_if(all.begin(), all.end(), [](const Migration& each) { return each.version > 9; });
  return all.first(static_cast<size_t>(end - all.begin()));
}

TEST_CASE("While the database has an older schema there is the first shard alone, and nobody takes part") {
  ShardedDatabase database("", OlderMigrations());
  REQUIRE(database->Run("SELECT version FROM schema") == "9");
  const auto shards = database.Open("server-1");
  const PostgresShards::View before = Ok(shards->Look());
  CHECK(Owners(before) == "0: nobody");
  CHECK(before.servers.empty());
  CHECK(before.placed.empty());
  CHECK(Ok(shards->FindBlob(kUnknownDigest)).empty());

  // A server of this build has its turn.
  PostgresStore home = database.OpenStore(*shards, kHomeShard, "server-1");
  const PostgresShards::View after = Ok(shards->Look());
  CHECK(Owners(after) == "0: server-1");
  CHECK(after.servers == std::vector<std::string>{"server-1"});
  CHECK(PlaceMany(*shards, 2) == std::vector<Shard>{0, 1});
  CHECK(Newly(Ok(shards->Look())) == "phones-0 in 0, phones-1 in 1");
}

TEST_CASE("While the database has an older schema all populations are in the first shard") {
  ShardedDatabase database("", OlderMigrations());
  const auto shards = database.Open("server-1");
  Ok(shards->Look());
  // Its owner is a server before 0.2, and creates the round.
  CHECK(Ok(shards->Place("phones")) == kHomeShard);
  CHECK(Ok(shards->Place("tablets")) == kHomeShard);
}

TEST_CASE("A store may be in a schema of any name") {
  const std::string name = GENERATE(as<std::string>(), "sheaf", "Capital Letters", "a \"quoted\" one", "o'brien");
  INFO(name);
  std::string identifier = "\"";
  for (const char character : name) identifier += character == '"' ? std::string("\"\"") : std::string(1, character);
  ShardedDatabase database(identifier + "\"");
  const auto shards = database.Open();
  CHECK(PlaceMany(*shards, 2) == std::vector<Shard>{0, 1});
  PostgresStore home = database.OpenStore(*shards, 0, "server-1");
  PostgresStore second = database.OpenStore(*shards, 1, "server-2");
  CHECK(Owners(Ok(shards->Look())) == "0: server-1, 1: server-2");
  CHECK(database->Run("SELECT string_agg(nspname, '|' ORDER BY length(nspname)) FROM pg_namespace "
                      "WHERE nspname !~ '^pg_' AND nspname NOT IN ('public', 'information_schema')") ==
        name + "|" + name + "_shard_1");
  RequireOk(Create(second.task_store(), ARound("r1-x", "phones-1")));
  const std::string digest = Ok(home.payloads->PutBlob("bytes"));
  CHECK(Ok(shards->FindBlob(digest)) == std::vector<Shard>{0});
  RequireOk(shards->CopyBlob(digest, 0, 1));
  CHECK(Read(*second.payloads, digest) == "bytes");
  RequireOk(shards->CopyBlob(Ok(second.payloads->PutBlob("others")), 1, 0));
  CHECK(Read(*home.payloads, Sha256Hex("others")) == "others");
}

TEST_CASE("Shards of a store whose schema has a long name are not in one schema") {
  // The database cuts names after 63 bytes.
  const std::string name(58, 'x');
  ShardedDatabase database(name);
  const auto shards = database.Open();
  CHECK(PlaceMany(*shards, 3) == std::vector<Shard>{0, 1, 2});
  PostgresStore second = database.OpenStore(*shards, 1, "server-1");
  const auto third = database.TryOpenStore(*shards, 2, "server-2");
  INFO(third.status().ToString());
  CHECK(third.ok());
  CHECK(database->Run(
            "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'xxx%' OR nspname LIKE 'sheaf_%_shard_%'") == "3");
}

}  // namespace
}  // namespace sheaf
