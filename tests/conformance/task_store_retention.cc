// Deleting what has ended.
#include <set>

#include "storage/arguments.h"
#include "tests/conformance/store_fixture.h"

namespace sheaf {
namespace {

using DeletedRounds = TaskStore::DeletedRounds;

// Creates a round that ends a second after the one before.
void CreateAndEnd(StoreFixture& f, const std::string& id, int num_tasks, bool succeeds,
                  const std::string& population = "default") {
  f.CreateRound({.id = id, .num_tasks = num_tasks, .population = population});
  for (const TaskRecord& task : f.LeaseUpTo(f.LeaseParams("w1", num_tasks, id))) REQUIRE(f.Contribute(task).ok());
  f.now += absl::Seconds(1);
  const auto move = [&](RoundState from, RoundState to) {
    REQUIRE(f.Do([&](TaskStore& s) {
               return s.MoveRound({.round = RoundId(id),
                                   .from = from,
                                   .to = to,
                                   .now = f.now,
                                   .error = succeeds ? "" : "why",
                                   .aggregate = succeeds ? "an aggregate" : "",
                                   .aggregate_digest = succeeds ? "aggregate of " + id : ""});
             }).ok());
  };
  if (!succeeds) return move(RoundState::kCollecting, RoundState::kFailed);
  move(RoundState::kCollecting, RoundState::kSealing);
  move(RoundState::kSealing, RoundState::kSucceeded);
}

// Everything that is due, in as many calls as it takes.
std::vector<std::string> DeleteAll(StoreFixture& f, const TaskStore::DeleteEndedRoundsParams& params) {
  std::vector<std::string> rounds;
  for (int calls = 0; calls < 100; ++calls) {
    const auto deleted = f.Do([&](TaskStore& s) { return s.DeleteEndedRounds(params); });
    REQUIRE(deleted.ok());
    for (const RoundId& id : deleted->rounds) rounds.push_back(id.value());
    if (deleted->is_done) return rounds;
  }
  FAIL("it never ends");
  return rounds;
}

STORE_TEST("Of the rounds that have ended those go first whose population has most of them") {
  CreateAndEnd(f, "r-b1", 1, true, "b");
  CreateAndEnd(f, "r-c1", 1, true, "c");
  for (int i = 0; i < 6; ++i) CreateAndEnd(f, "r-a" + std::to_string(i), 1, true, "a");
  CreateAndEnd(f, "r-c2", 1, true, "c");
  CreateAndEnd(f, "r-c3", 1, true, "c");
  using Ids = std::vector<std::string>;
  CHECK(DeleteAll(f, {.keep_max = 10, .tasks_limit = 100}).empty());
  // Six of a, one of b, three of c: three of a, one of b and three of c are seven.
  CHECK(DeleteAll(f, {.keep_max = 7, .tasks_limit = 2}) == Ids{"r-a0", "r-a1", "r-a2"});
  CHECK(DeleteAll(f, {.keep_max = 5, .tasks_limit = 100}) == Ids{"r-c1", "r-a3"});
  // More populations than may be kept: what ended last stays.
  CHECK(DeleteAll(f, {.keep_max = 5, .tasks_limit = 100}).empty());
  // Whose time has come goes wherever it is.
  CHECK(DeleteAll(f, {.ended_by = f.now - absl::Seconds(9), .keep_max = 5, .tasks_limit = 100}) == Ids{"r-b1"});
  CHECK(DeleteAll(f, {.keep_max = 1, .tasks_limit = 1}) == Ids{"r-a4", "r-a5", "r-c2"});
  CHECK(DeleteAll(f, {.keep_max = 0, .tasks_limit = 1}) == Ids{"r-c3"});
}

TEST_CASE("What ended populations keep is shared evenly, and what one does not need is the others'") {
  CHECK(KeptMax({6, 1, 3}, 10) > 6);
  CHECK(KeptMax({6, 1, 3}, 9) == 5);
  CHECK(KeptMax({6, 1, 3}, 7) == 3);
  CHECK(KeptMax({6, 1, 3}, 6) == 2);
  CHECK(KeptMax({6, 1, 3}, 2) == 0);
  CHECK(KeptMax({5}, 3) == 3);
  CHECK(KeptMax({}, 0) > 0);
}

STORE_TEST("Of the rounds that have ended those with the oldest end go, until as many are left as shall be kept") {
  for (const char* id : {"r-c", "r-a", "r-d", "r-b"}) CreateAndEnd(f, id, 2, std::string(id) != "r-a");
  f.CreateRound({.id = "r-live", .num_tasks = 2});
  const auto deleted = f.Do([&](TaskStore& s) { return s.DeleteEndedRounds({.keep_max = 1, .tasks_limit = 100}); });
  REQUIRE(deleted.ok());
  CHECK(deleted->rounds == std::vector{RoundId("r-c"), RoundId("r-a"), RoundId("r-d")});
  CHECK(deleted->aggregate_digests == std::vector<std::string>{"aggregate of r-c", "aggregate of r-d"});
  for (const char* id : {"r-c", "r-a", "r-d"}) {
    CHECK(f.store().GetRound(RoundId(id)).status().code() == absl::StatusCode::kNotFound);
    CHECK(f.store().GetTask({RoundId(id), 0}).status().code() == absl::StatusCode::kNotFound);
    CHECK(f.store().ListContributions(RoundId(id), 0, 10).status().code() == absl::StatusCode::kNotFound);
    CHECK(*f.store().GetBlobUse("aggregate of " + std::string(id)) == TaskStore::BlobUse::kNone);
  }
  CHECK(f.store().ListRounds({})->size() == 2);
  CHECK(f.store().ListTasks({})->size() == 4);
  CHECK(f.store().GetRound(RoundId("r-b")).ok());
  CHECK(*f.store().GetBlobUse("aggregate of r-b") == TaskStore::BlobUse::kCurrent);
  const std::string left = f.DumpNow();
  f.Reopen();
  CHECK(f.DumpNow() == left);
}

STORE_TEST("Rounds that ended long ago go, however few there are; one that has not ended never does") {
  CreateAndEnd(f, "r-old", 1, true);
  const absl::Time ended = f.now;
  CreateAndEnd(f, "r-new", 1, true);
  f.CreateRound({.id = "r-live"});
  CHECK(DeleteAll(f, {.ended_by = ended - absl::Nanoseconds(1), .keep_max = 10}).empty());
  CHECK(DeleteAll(f, {.ended_by = ended, .keep_max = 10}) == std::vector<std::string>{"r-old"});
  CHECK(DeleteAll(f, {.ended_by = absl::InfiniteFuture(), .keep_max = 10}) == std::vector<std::string>{"r-new"});
  CHECK(f.store().GetRound(RoundId("r-live")).ok());
}

STORE_TEST("What is deleted in parts is not seen again, and its names may be used again meanwhile") {
  for (const char* id : {"r-1", "r-2", "r-3"}) CreateAndEnd(f, id, 5, true);
  const TaskStore::DeleteEndedRoundsParams params = {.keep_max = 0, .tasks_limit = 2};
  std::set<RoundId> gone;
  bool is_done = false;
  for (int calls = 0; !is_done; ++calls) {
    REQUIRE(calls < 20);
    const auto deleted = f.Do([&](TaskStore& s) { return s.DeleteEndedRounds(params); });
    REQUIRE(deleted.ok());
    is_done = deleted->is_done;
    for (const RoundId& id : deleted->rounds) {
      CHECK(gone.insert(id).second);
      // The same id and request: another round, whose tasks are not the old ones.
      CHECK(f.CreateRound({.id = id.value(), .num_tasks = 1}).tasks == TaskCounts{.queued = 1});
    }
    for (const RoundId& id : gone) {
      CHECK(f.store().ListTasks({.round = id})->size() == 1);
      CHECK(f.store().ListAttempts({id, 0})->empty());
      CHECK(f.store().ListContributions(id, 0, 10)->empty());
    }
    f.Reopen();
  }
  CHECK(gone.size() == 3);
}

STORE_TEST("Deleting is undone with its batch") {
  CreateAndEnd(f, "r-one", 3, true);
  f.Saw("w1");
  const std::string before = f.DumpNow();
  REQUIRE(f.store().BeginBatch().ok());
  REQUIRE(f.store().DeleteEndedRounds({.keep_max = 0, .tasks_limit = 100})->rounds.size() == 1);
  REQUIRE(*f.store().DeleteWorkers({.seen_before = f.now + absl::Seconds(1)}) == 1);
  f.store().RollbackBatch();
  CHECK(f.DumpNow() == before);
  CHECK_FALSE(f.Do([&](TaskStore& s) {
                 return s.CreateRound(f.RoundParams({.id = "r-x", .request_id = "request-r-one"}));
               })->created);
}

STORE_TEST("Workers not seen for long are forgotten, unless they hold a task") {
  f.CreateRound({});
  for (const char* name : {"holds", "idle"}) f.Saw(name);
  f.Lease("holds");
  f.now += absl::Hours(1);
  f.Saw("new");
  CHECK(*f.Do([&](TaskStore& s) { return s.DeleteWorkers({.seen_before = f.now, .keep_max = 10}); }) == 1);
  CHECK(f.store().GetWorker("default", WorkerName("idle")).status().code() == absl::StatusCode::kNotFound);
  CHECK(f.Worker("holds").num_leased == 1);
  f.Worker("new");
  f.Saw("idle");
  CHECK(f.Worker("idle").first_seen_time == f.now);
}

STORE_TEST("Of too many workers those go that were not seen for the longest, unless they hold a task") {
  f.CreateRound({});
  for (const char* name : {"holds", "first", "second", "third", "fourth"}) {
    f.now += absl::Hours(1);
    f.Saw(name);
  }
  f.Lease("holds");
  f.Saw("first");
  f.Reopen();
  const auto remove = [&](int64_t limit) {
    return *f.Do([&](TaskStore& s) { return s.DeleteWorkers({.keep_max = 2, .limit = limit}); });
  };
  CHECK(remove(1) == 0);  // Which is the one that holds a task.
  CHECK(remove(2) == 1);
  CHECK(f.store().GetWorker("default", WorkerName("second")).status().code() == absl::StatusCode::kNotFound);
  CHECK(remove(100) == 1);
  CHECK(f.store().GetWorker("default", WorkerName("third")).status().code() == absl::StatusCode::kNotFound);
  CHECK(remove(100) == 0);
  for (const char* name : {"holds", "first", "fourth"}) f.Worker(name);
}

STORE_TEST("A population with too many workers pushes out its own, and not those of others that called before") {
  for (const char* name : {"old", "older"}) {
    f.Saw(name, "small");
    f.now += absl::Hours(1);
  }
  for (int i = 0; i < 10; ++i) {
    f.now += absl::Seconds(1);
    f.Saw(fmt::format("invented-{}", i), "crowd");
  }
  for (int i = 0; i < 3; ++i) f.Saw(fmt::format("w{}", i), "middle");
  f.Reopen();
  int64_t num_deleted = 0;
  int64_t deleted = 0;
  do {
    deleted = *f.Do([&](TaskStore& s) { return s.DeleteWorkers({.keep_max = 8, .limit = 3}); });
    num_deleted += deleted;
  } while (deleted > 0);
  CHECK(num_deleted == 7);
  CHECK(f.store().ListWorkers({.population = "small"})->size() == 2);
  CHECK(f.store().ListWorkers({.population = "middle"})->size() == 3);
  const auto crowd = f.store().ListWorkers({.population = "crowd"});
  REQUIRE(crowd->size() == 3);
  CHECK(crowd->front().name == WorkerName("invented-7"));
}

}  // namespace
}  // namespace sheaf
