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
  REQUIRE(f.store().DeleteWorkers(*f.store().ListWorkerAges({}))->size() == 1);
  f.store().RollbackBatch();
  CHECK(f.DumpNow() == before);
  CHECK_FALSE(f.Do([&](TaskStore& s) {
                 return s.CreateRound(f.RoundParams({.id = "r-x", .request_id = "request-r-one"}));
               })->created);
}

// "name of population" each.
std::vector<std::string> Names(const absl::StatusOr<std::vector<TaskStore::WorkerAge>>& workers) {
  REQUIRE(workers.ok());
  std::vector<std::string> names;
  for (const auto& worker : *workers) names.push_back(fmt::format("{} of {}", worker.name, worker.population));
  return names;
}
using Workers = std::vector<std::string>;

STORE_TEST("Workers of all populations are looked at page by page, by name, with when each was last seen") {
  for (const char* population : {"b", "a", "c"}) f.Saw("w2", population);
  f.Saw("w1", "b");
  f.now += absl::Hours(1);
  f.Saw("w2", "a");
  f.Reopen();
  f.Saw("w3", "a");
  const auto all = f.store().ListWorkerAges({});
  CHECK(Names(all) == Workers{"w1 of b", "w2 of a", "w2 of b", "w2 of c", "w3 of a"});
  CHECK(all->at(1).last_seen_time == f.now);
  CHECK(all->at(2).last_seen_time == f.now - absl::Hours(1));
  TaskStore::ListWorkerAgesParams page{.limit = 2};
  Workers pages;
  while (true) {
    const auto workers = f.store().ListWorkerAges(page);
    for (const std::string& name : Names(workers)) pages.push_back(name);
    if (workers->size() < 2) break;
    page.after = workers->back().name;
    page.after_population = workers->back().population;
  }
  CHECK(pages == Names(all));
  CHECK(Names(f.store().ListWorkerAges({.limit = 0})).empty());
}

STORE_TEST("A worker is forgotten unless it was seen since it was looked at, or holds a task") {
  f.CreateRound({});
  for (const char* name : {"called", "holds", "idle", "other"}) f.Saw(name);
  f.Saw("idle", "elsewhere");
  f.Lease("holds");
  std::vector<TaskStore::WorkerAge> looked_at = *f.store().ListWorkerAges({.limit = 4});
  REQUIRE(Names(looked_at) == Workers{"called of default", "holds of default", "idle of default", "idle of elsewhere"});
  looked_at.pop_back();
  f.now += absl::Hours(1);
  f.Saw("called");
  const auto deleted = f.Do([&](TaskStore& s) { return s.DeleteWorkers(looked_at); });
  CHECK(Names(deleted) == Workers{"idle of default"});
  CHECK(f.Worker("holds").num_leased == 1);
  const Workers left = {"called of default", "holds of default", "idle of elsewhere", "other of default"};
  CHECK(Names(f.store().ListWorkerAges({})) == left);
  f.Reopen();
  CHECK(Names(f.store().ListWorkerAges({})) == left);
  CHECK(f.Do([&](TaskStore& s) { return s.DeleteWorkers(looked_at); })->empty());
  f.Saw("idle");
  CHECK(f.Worker("idle").first_seen_time == f.now);
}

STORE_TEST("A worker that calls in the batch in which it is looked at stays, and one may be forgotten and call again") {
  for (const char* name : {"called", "idle"}) f.Saw(name);
  f.now += absl::Hours(1);
  const auto say = [&](const char* name) {
    REQUIRE(f.store().SawWorker({.name = WorkerName(name), .population = "default", .now = f.now}).ok());
  };
  for (const bool is_kept : {false, true}) {
    const std::string before = f.DumpNow();
    REQUIRE(f.store().BeginBatch().ok());
    const auto looked_at = f.store().ListWorkerAges({});
    say("called");
    CHECK(Names(f.store().DeleteWorkers(*looked_at)) == Workers{"idle of default"});
    say("idle");
    say("new");
    CHECK(f.store().ListWorkerAges({})->size() == 3);
    if (is_kept) {
      REQUIRE(f.store().CommitBatch().ok());
    } else {
      f.store().RollbackBatch();
      CHECK(f.DumpNow() == before);
      CHECK(*f.store().ListWorkerAges({}) == *looked_at);
    }
  }
  f.Reopen();
  CHECK(f.Worker("idle").first_seen_time == f.now);
  CHECK(f.Worker("called").first_seen_time == f.now - absl::Hours(1));
}

}  // namespace
}  // namespace sheaf
