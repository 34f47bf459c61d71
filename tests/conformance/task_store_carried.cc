// Tasks that go on in another round: one lease, one contribution, whatever round it counts in.
#include "storage/arguments.h"
#include "storage/carried_task.h"
#include "tests/conformance/store_fixture.h"

namespace sheaf {
namespace {

const RoundId kNext("r-two");
const RoundId kLast("r-three");

absl::StatusOr<std::vector<TaskRecord>> CarryOver(StoreFixture& f, const RoundId& from = RoundId("r-one"),
                                                  const RoundId& to = kNext, int32_t staleness_max = 3) {
  return f.Do([&](TaskStore& s) {
    return s.CarryOver({.from = from, .to = to, .staleness_max = staleness_max, .now = f.now});
  });
}

TaskRecord TaskOf(StoreFixture& f, const RoundId& round, int index) {
  const auto task = f.store().GetTask({round, index});
  REQUIRE(task.ok());
  return *task;
}
// By the name that a worker was given.
TaskId PlaceOf(StoreFixture& f, const TaskId& name) {
  const auto task = FindByName(f.store(), name);
  REQUIRE(task.ok());
  // What is in memory of those that are leased says the same.
  const bool is_carried = task->state == TaskState::kLeased && task->origin == name;
  CHECK(f.store().PlaceOf(name) == (is_carried ? std::optional(task->id) : std::nullopt));
  return task->id;
}
RoundRecord RoundOf(StoreFixture& f, const RoundId& round) { return *f.store().GetRound(round); }
std::vector<AttemptRecord> AttemptsOf(StoreFixture& f, const RoundId& round, int index) {
  return *f.store().ListAttempts({round, index});
}

// Two tasks of r-one that w1 and w2 hold, a third that waits; and r-two, which has one of its own.
std::vector<TaskRecord> TwoRun(StoreFixture& f, RoundState next = RoundState::kCollecting) {
  f.Saw("w1");
  f.Saw("w2");
  f.CreateRound({.num_tasks = 3, .requirement = ""});
  f.CreateRound({.id = "r-two", .requirement = "gpu", .state = next});
  std::vector<TaskRecord> leased = {f.Lease("w1"), f.Lease("w2")};
  f.now += absl::Seconds(5);
  return leased;
}

STORE_TEST("Tasks that are carried over go on behind the tasks of the other round, under the leases that they have") {
  const std::vector<TaskRecord> before = TwoRun(f);
  const auto carried = CarryOver(f);
  REQUIRE(carried.ok());
  REQUIRE(carried->size() == 2);
  for (int restart = 0; restart < 2; ++restart) {
    for (int i = 0; i < 2; ++i) {
      const TaskRecord task = TaskOf(f, kNext, 1 + i);
      CHECK(task.id == (*carried)[static_cast<size_t>(i)].id);
      const TaskRecord& was = before[static_cast<size_t>(i)];
      CHECK(task.state == TaskState::kLeased);
      CHECK(task.lease_token == was.lease_token);
      CHECK(task.worker == was.worker);
      CHECK(task.poll_id == was.poll_id);
      CHECK(task.lease_time == was.lease_time);
      CHECK(task.expire_time == was.expire_time);
      CHECK(task.attempt_deadline_time == was.attempt_deadline_time);
      CHECK(task.origin == was.id);
      CHECK(task.staleness == 1);
      CHECK(task.payload.empty());
      CHECK(task.requirement.empty());
      REQUIRE(AttemptsOf(f, kNext, 1 + i).size() == 1);
      CHECK(AttemptsOf(f, kNext, 1 + i)[0].outcome == AttemptOutcome::kRunning);
      CHECK(AttemptsOf(f, kNext, 1 + i)[0].lease_time == was.lease_time);
      const TaskRecord left = f.Task(i);
      CHECK(left.state == TaskState::kCancelled);
      CHECK(left.carried_to == task.id);
      CHECK(left.end_time == f.now);
      CHECK(!left.origin);
      REQUIRE(f.Attempts(i).size() == 1);
      CHECK(f.Attempts(i)[0].outcome == AttemptOutcome::kCancelled);
      CHECK(f.Attempts(i)[0].error == "carried over to round r-two");
    }
    CHECK(f.Round().tasks == TaskCounts{.queued = 1, .cancelled = 2});
    CHECK(RoundOf(f, kNext).tasks == TaskCounts{.queued = 1, .leased = 2});
    CHECK(f.Task(2).state == TaskState::kQueued);
    const auto held = f.store().ListLeases("default", WorkerName("w1"));
    REQUIRE(held->size() == 1);
    CHECK(held->front().id == TaskId{kNext, 1});
    // Requirements are of tasks that somebody may be given.
    CHECK(*f.store().ListRequirements(kNext) == std::vector<std::string>{"gpu"});
    CHECK(*f.store().CountQueued(kNext) == std::vector<int64_t>{1});
    f.Reopen();
  }
  CHECK(f.Worker("w1").num_leased == 1);
}

STORE_TEST("A task is found under the name that its worker was given, however often it was carried over") {
  const std::vector<TaskRecord> before = TwoRun(f);
  const auto place = [&](int index) { return PlaceOf(f, {f.round, index}); };
  CHECK(place(0) == TaskId{f.round, 0});
  REQUIRE(CarryOver(f).ok());
  CHECK(place(0) == TaskId{kNext, 1});
  CHECK(place(2) == TaskId{f.round, 2});
  f.CreateRound({.id = "r-three"});
  REQUIRE(f.Contribute(TaskOf(f, kNext, 2)).ok());
  REQUIRE(CarryOver(f, kNext, kLast)->size() == 1);
  for (int restart = 0; restart < 2; ++restart) {
    CHECK(place(0) == TaskId{kLast, 1});
    CHECK(PlaceOf(f, {kNext, 1}) == TaskId{kLast, 1});
    CHECK(TaskOf(f, kLast, 1).origin == TaskId{f.round, 0});
    CHECK(TaskOf(f, kLast, 1).staleness == 2);
    CHECK(place(1) == TaskId{kNext, 2});
    f.Reopen();
  }
  REQUIRE(f.Contribute(TaskOf(f, kLast, 1)).ok());
  f.Reopen();
  CHECK(place(0) == TaskId{kLast, 1});
  CHECK(absl::IsNotFound(FindByName(f.store(), {RoundId("r-none"), 0}).status()));
  CHECK(absl::IsNotFound(FindByName(f.store(), {f.round, 7}).status()));
}

STORE_TEST("A contribution counts once, in the round that its task is in, and says its staleness") {
  const std::vector<TaskRecord> before = TwoRun(f, RoundState::kAnnounced);
  REQUIRE(CarryOver(f).ok());
  CHECK(absl::IsFailedPrecondition(f.Contribute(before[0]).status()));
  TaskRecord task = TaskOf(f, kNext, 1);
  // Also while it is announced.
  const auto accepted = f.Contribute(task);
  REQUIRE(accepted.ok());
  CHECK(accepted->staleness == 1);
  CHECK(absl::IsFailedPrecondition(f.Contribute(task).status()));
  task = TaskOf(f, kNext, 1);
  CHECK(task.state == TaskState::kSucceeded);
  CHECK(task.lease_token == before[0].lease_token);
  CHECK(RoundOf(f, kNext).num_contributions == 1);
  CHECK(f.Round().num_contributions == 0);
  // Its own tasks bring nothing before it opens.
  auto params = f.LeaseParams("w3", 1, "r-two");
  params.fulfilled_requirements = {"gpu"};
  const TaskRecord own = f.LeaseUpTo(params)[0];
  CHECK(absl::IsFailedPrecondition(f.Contribute(own).status()));
  f.Reopen();
  const auto listed = f.store().ListContributions(kNext, 0, 10);
  REQUIRE(listed->size() == 1);
  CHECK(listed->front().staleness == 1);
  CHECK(listed->front().task == TaskId{kNext, 1});
  CHECK(f.Worker("w1").num_succeeded == 1);
}

STORE_TEST("A carried task is nobody else's: lost, failed or given back it is cancelled, and nobody can queue it") {
  TwoRun(f);
  REQUIRE(CarryOver(f).ok());
  const auto lost = f.End(TaskOf(f, kNext, 1), AttemptOutcome::kLost, TaskState::kQueued);
  REQUIRE(lost.ok());
  CHECK(lost->state == TaskState::kCancelled);
  CHECK(lost->end_time == f.now);
  CHECK(RoundOf(f, kNext).tasks == TaskCounts{.queued = 1, .leased = 1, .cancelled = 1});
  CHECK(RoundOf(f, kNext).num_lost_attempts == 1);
  CHECK(f.Worker("w1").num_lost == 1);
  f.Reopen();
  CHECK(TaskOf(f, kNext, 1).state == TaskState::kCancelled);
  const auto requeue = [&](int index) {
    return f.Do([&](TaskStore& s) { return s.RequeueTask({.task = {kNext, index}, .now = f.now}); }).status();
  };
  CHECK(absl::IsFailedPrecondition(requeue(1)));
  CHECK(requeue(2) == CannotRunAgain({kNext, 2}, {f.round, 1}));
  // No second lease either, and none is expected.
  CHECK(*f.store().FirstLeaseTime(kNext, absl::InfinitePast()) == absl::InfiniteFuture());
  const auto again = f.Do([&](TaskStore& s) {
    return s.LeaseAgain({.round = kNext,
                         .worker = WorkerName("w3"),
                         .tokens = {LeaseToken("again")},
                         .begun_by = f.now,
                         .now = f.now,
                         .expire_time = f.now + absl::Seconds(9),
                         .attempt_deadline_time = f.now + absl::Seconds(9)});
  });
  REQUIRE(again.ok());
  CHECK(again->empty());
}

// The first task of TwoRun, to w3 as well.
void LeaseFirstAgain(StoreFixture& f) {
  const TaskStore::LeaseAgainParams params{.round = f.round,
                                           .worker = WorkerName("w3"),
                                           .poll_id = "again",
                                           .tokens = {LeaseToken("again")},
                                           .begun_by = f.now,
                                           .candidates_max = 1,
                                           .now = f.now,
                                           .expire_time = f.now + absl::Seconds(9),
                                           .attempt_deadline_time = f.now + absl::Seconds(9)};
  REQUIRE(f.Do([&](TaskStore& s) { return s.LeaseAgain(params); })->size() == 1);
}

STORE_TEST("A second lease that was carried into an announced round survives a restart") {
  const std::vector<TaskRecord> before = TwoRun(f, RoundState::kAnnounced);
  LeaseFirstAgain(f);
  REQUIRE(CarryOver(f)->size() == 2);
  f.Reopen();
  const TaskRecord task = TaskOf(f, kNext, 1);
  CHECK(task.attempt == 1);
  CHECK(task.lease_token == before[0].lease_token);
  REQUIRE(task.second_lease);
  CHECK(task.second_lease->lease_token == LeaseToken("again"));
  CHECK(f.End(task, AttemptOutcome::kLost, TaskState::kQueued)->lease_token == LeaseToken("again"));
}

STORE_TEST("No more tasks are carried over than may be: the first ones") {
  const std::vector<TaskRecord> before = TwoRun(f);
  const auto carried = f.Do([&](TaskStore& s) {
    return s.CarryOver({.from = f.round, .to = kNext, .staleness_max = 1, .tasks_max = 1, .now = f.now});
  });
  REQUIRE(carried->size() == 1);
  CHECK(carried->front().lease_token == before[0].lease_token);
  CHECK(f.Task(1).state == TaskState::kLeased);
  CHECK(RoundOf(f, f.round).tasks.leased == 1);
  CHECK(RoundOf(f, kNext).tasks.leased == 1);
}

STORE_TEST("A second lease comes along, as attempt 2 of the carried task") {
  TwoRun(f);
  LeaseFirstAgain(f);
  REQUIRE(CarryOver(f).ok());
  for (int restart = 0; restart < 2; ++restart) {
    const TaskRecord task = TaskOf(f, kNext, 1);
    CHECK(task.attempt == 1);
    REQUIRE(task.second_lease);
    CHECK(task.second_lease->lease_token == LeaseToken("again"));
    CHECK(task.second_lease->attempt == 2);
    CHECK(AttemptsOf(f, kNext, 1).size() == 2);
    CHECK(f.Attempts(0).size() == 2);
    CHECK(f.Attempts(0)[1].outcome == AttemptOutcome::kCancelled);
    f.Reopen();
  }
  // The one that is lost leaves the other; the last one ends the task.
  TaskRecord task = TaskOf(f, kNext, 1);
  CHECK(f.End(task, AttemptOutcome::kLost, TaskState::kQueued)->state == TaskState::kLeased);
  f.CreateRound({.id = "r-three"});
  REQUIRE(CarryOver(f, kNext, kLast)->size() == 2);
  f.Reopen();
  task = TaskOf(f, kLast, 1);
  CHECK(task.lease_token == LeaseToken("again"));
  CHECK(task.attempt == 1);
  CHECK(task.num_attempts == 1);
  CHECK(!task.second_lease);
  REQUIRE(f.Contribute(task).ok());
  CHECK(f.Worker("w1").num_lost == 1);
}

STORE_TEST("Tasks that came through as many rounds as they may stay behind, and end with their round") {
  TwoRun(f);
  REQUIRE(CarryOver(f, f.round, kNext, 0)->empty());
  CHECK(f.Round().tasks.leased == 2);
  REQUIRE(CarryOver(f, f.round, kNext, 1)->size() == 2);
  f.CreateRound({.id = "r-three"});
  auto params = f.LeaseParams("w3", 1, "r-two");
  params.fulfilled_requirements = {"gpu"};
  REQUIRE(f.LeaseUpTo(params).size() == 1);
  const auto carried = CarryOver(f, kNext, kLast, 1);
  REQUIRE(carried->size() == 1);
  CHECK(carried->front().origin == TaskId{kNext, 0});
  CHECK(RoundOf(f, kNext).tasks == TaskCounts{.leased = 2, .cancelled = 1});
  f.round = kNext;
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kSealing).ok());
  CHECK(PlaceOf(f, {RoundId("r-one"), 0}) == TaskId{kNext, 1});
  CHECK(f.Task(1).state == TaskState::kCancelled);
  CHECK(!f.Task(1).carried_to);
  CHECK(f.Task(0).carried_to == TaskId{kLast, 1});
}

STORE_TEST("Carried tasks count for what a worker may hold in their new round") {
  TwoRun(f);
  f.CreateRound({.id = "r-three", .num_tasks = 2});
  auto params = f.LeaseParams("w1", 2, "r-three");
  params.per_worker_max = 1;
  params.tokens.clear();
  CHECK(f.LeaseUpTo(params).empty());
  REQUIRE(CarryOver(f, f.round, kLast).ok());
  params.tokens = {LeaseToken("a"), LeaseToken("b")};
  CHECK(f.LeaseUpTo(params).empty());
  REQUIRE(f.End(TaskOf(f, kLast, 2), AttemptOutcome::kReleased, TaskState::kQueued)->state == TaskState::kCancelled);
  CHECK(f.LeaseUpTo(params).size() == 1);
}

STORE_TEST("A crash that forgets contributions cancels carried tasks, and queues the others") {
  TwoRun(f);
  REQUIRE(CarryOver(f).ok());
  auto params = f.LeaseParams("w3", 1, "r-two");
  params.fulfilled_requirements = {"gpu"};
  REQUIRE(f.Contribute(f.LeaseUpTo(params)[0], 0).ok());
  REQUIRE(f.Contribute(TaskOf(f, kNext, 1), 0).ok());
  const auto forgotten = f.Do([&](TaskStore& s) { return s.ForgetContributionsAfterCheckpoint(kNext, f.now); });
  REQUIRE(*forgotten == 2);
  for (int restart = 0; restart < 2; ++restart) {
    CHECK(RoundOf(f, kNext).tasks == TaskCounts{.queued = 1, .leased = 1, .cancelled = 1});
    CHECK(TaskOf(f, kNext, 0).state == TaskState::kQueued);
    CHECK(TaskOf(f, kNext, 1).state == TaskState::kCancelled);
    CHECK(AttemptsOf(f, kNext, 1)[0].error == kForgottenContribution);
    f.Reopen();
  }
}

STORE_TEST("A round that is announced forgets contributions, too, and stays announced") {
  TwoRun(f, RoundState::kAnnounced);
  REQUIRE(CarryOver(f).ok());
  REQUIRE(f.Contribute(TaskOf(f, kNext, 1), 0).ok());
  REQUIRE(*f.Do([&](TaskStore& s) { return s.ForgetContributionsAfterCheckpoint(kNext, f.now); }) == 1);
  f.Reopen();
  CHECK(RoundOf(f, kNext).state == RoundState::kAnnounced);
  CHECK(RoundOf(f, kNext).num_contributions == 0);
  CHECK(TaskOf(f, kNext, 1).state == TaskState::kCancelled);
}

STORE_TEST("A batch that fails carries nothing over") {
  const std::vector<TaskRecord> before = TwoRun(f);
  const std::string was = f.DumpNow();
  REQUIRE(f.store().BeginBatch().ok());
  REQUIRE(f.store().CarryOver({.from = f.round, .to = kNext, .staleness_max = 1, .now = f.now})->size() == 2);
  REQUIRE(
      f.store()
          .RecordContribution(
              {.task = {kNext, 1}, .token = before[0].lease_token, .digest = "digest", .progress = "p", .now = f.now})
          .ok());
  CHECK(PlaceOf(f, {f.round, 1}) == TaskId{kNext, 2});
  f.store().RollbackBatch();
  CHECK(f.DumpNow() == was);
  CHECK(PlaceOf(f, {f.round, 0}) == TaskId{f.round, 0});
  REQUIRE(f.Contribute(before[0]).ok());
}

STORE_TEST("A round that was deleted forgets what became of its tasks, but of those that still run") {
  TwoRun(f);
  f.CreateRound({.id = "r-three"});
  REQUIRE(CarryOver(f)->size() == 2);
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kCancelled).ok());
  f.now += absl::Hours(1);
  REQUIRE(f.Contribute(TaskOf(f, kNext, 2)).ok());
  const auto deleted = f.Do([&](TaskStore& s) { return s.DeleteEndedRounds({.ended_by = f.now, .keep_max = 0}); });
  REQUIRE(deleted->rounds == std::vector<RoundId>{f.round});
  f.Reopen();
  CHECK(PlaceOf(f, {f.round, 0}) == TaskId{kNext, 1});
  CHECK(absl::IsNotFound(FindByName(f.store(), {f.round, 1}).status()));
  CHECK(TaskOf(f, kNext, 1).origin == TaskId{f.round, 0});
  // The other way round: what became of it is not there any more.
  REQUIRE(CarryOver(f, kNext, kLast)->size() == 1);
  f.round = kLast;
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kCancelled).ok());
  f.now += absl::Hours(1);
  REQUIRE(f.Do([&](TaskStore& s) { return s.DeleteEndedRounds({.ended_by = f.now, .keep_max = 0}); })->rounds ==
          std::vector<RoundId>{kLast});
  CHECK(!TaskOf(f, kNext, 1).carried_to);
  CHECK(PlaceOf(f, {kNext, 1}) == TaskId{kNext, 1});
}

STORE_TEST("Tasks are carried from a round that collects into another of its population that has not stopped") {
  TwoRun(f);
  f.CreateRound({.id = "r-foreign", .population = "other"});
  f.CreateRound({.id = "r-announced", .state = RoundState::kAnnounced});
  CHECK(absl::IsInvalidArgument(CarryOver(f, f.round, f.round).status()));
  CHECK(absl::IsInvalidArgument(CarryOver(f, f.round, RoundId("r-foreign")).status()));
  CHECK(absl::IsInvalidArgument(CarryOver(f, f.round, kNext, -1).status()));
  CHECK(absl::IsNotFound(CarryOver(f, f.round, RoundId("r-none")).status()));
  CHECK(absl::IsNotFound(CarryOver(f, RoundId("r-none"), kNext).status()));
  CHECK(absl::IsFailedPrecondition(CarryOver(f, RoundId("r-announced"), kNext).status()));
  const std::string was = f.DumpNow();
  CHECK(CarryOver(f, kNext, f.round)->empty());
  CHECK(f.DumpNow() == was);
  f.round = kNext;
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kCancelled).ok());
  CHECK(absl::IsFailedPrecondition(CarryOver(f, RoundId("r-one"), kNext).status()));
}

}  // namespace
}  // namespace sheaf
