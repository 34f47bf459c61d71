// Second leases: two attempts at one task, of which one counts.
#include "tests/conformance/store_fixture.h"

namespace sheaf {
namespace {

// Two minutes after the first lease of each of `num_tasks` tasks, which w1 holds.
std::vector<TaskRecord> HeldByW1(StoreFixture& f, int num_tasks = 1) {
  f.Saw("w1");
  f.Saw("w2");
  f.CreateRound({.num_tasks = num_tasks});
  auto params = f.LeaseParams("w1", num_tasks);
  params.expire_time = params.attempt_deadline_time = f.now + absl::Hours(1);
  std::vector<TaskRecord> leased = f.LeaseUpTo(params);
  f.now += absl::Minutes(2);
  return leased;
}

TaskStore::LeaseAgainParams AgainParams(StoreFixture& f, const std::string& worker, int count = 1) {
  TaskStore::LeaseAgainParams params{.round = f.round,
                                     .worker = WorkerName(worker),
                                     .poll_id = "poll again",
                                     .begun_by = f.now,
                                     .now = f.now,
                                     .expire_time = f.now + absl::Seconds(30),
                                     .attempt_deadline_time = f.now + absl::Minutes(10)};
  for (int i = 0; i < count; ++i) params.tokens.emplace_back(fmt::format("again-{}-{}", worker, i));
  return params;
}

std::vector<TaskRecord> LeaseAgain(StoreFixture& f, const TaskStore::LeaseAgainParams& params) {
  auto leased = f.Do([&](TaskStore& s) { return s.LeaseAgain(params); });
  REQUIRE(leased.ok());
  return *leased;
}
TaskRecord LeaseOneAgain(StoreFixture& f, const std::string& worker = "w2") {
  const std::vector<TaskRecord> leased = LeaseAgain(f, AgainParams(f, worker));
  REQUIRE(leased.size() == 1);
  return leased[0];
}

std::vector<AttemptOutcome> Outcomes(StoreFixture& f, int index = 0) {
  std::vector<AttemptOutcome> outcomes;
  for (const AttemptRecord& attempt : f.Attempts(index)) {
    CHECK(attempt.number == static_cast<int32_t>(outcomes.size()) + 1);
    outcomes.push_back(attempt.outcome);
  }
  return outcomes;
}
using Expected = std::vector<AttemptOutcome>;

STORE_TEST("A second lease is another worker's, has an attempt of its own, and brings what the submitter wrote") {
  const TaskRecord first = HeldByW1(f)[0];
  const TaskRecord second = LeaseOneAgain(f);
  CHECK(second.id == first.id);
  CHECK(second.worker == WorkerName("w2"));
  CHECK(second.lease_token == LeaseToken("again-w2-0"));
  CHECK(second.attempt == 2);
  CHECK(second.num_attempts == 2);
  CHECK(second.payload == "payload 0");
  CHECK(second.data_selector == "selector 0");
  CHECK(second.lease_time == f.now);
  CHECK(second.expire_time == f.now + absl::Seconds(30));
  CHECK(second.second_lease->worker == WorkerName("w1"));
  const TaskRecord task = f.Task(0);
  CHECK(task.worker == WorkerName("w1"));
  CHECK(task.lease_token == first.lease_token);
  CHECK(task.attempt == 1);
  CHECK(task.second_lease->lease_token == second.lease_token);
  CHECK(Outcomes(f) == Expected{AttemptOutcome::kRunning, AttemptOutcome::kRunning});
  CHECK(f.Round().tasks == TaskCounts{.leased = 1});
  CHECK(f.Worker("w2").num_leased == 1);
  for (const char* worker : {"w1", "w2"}) {
    const auto held = f.store().ListLeases("default", WorkerName(worker));
    REQUIRE(held->size() == 1);
    CHECK(held->front().worker == WorkerName(worker));
  }
  f.Reopen();
  CHECK(f.store().ListLeases("default", WorkerName("w2"))->front().lease_token == second.lease_token);
}

STORE_TEST("A task has two leases at most, and never two of one worker") {
  HeldByW1(f);
  CHECK(LeaseAgain(f, AgainParams(f, "w1")).empty());
  LeaseOneAgain(f, "w2");
  CHECK(LeaseAgain(f, AgainParams(f, "w2")).empty());
  CHECK(LeaseAgain(f, AgainParams(f, "w3")).empty());
  CHECK(f.Task(0).num_attempts == 2);
}

STORE_TEST(
    "Tasks are leased again longest held first, none that began too late, and no more candidates are looked at") {
  HeldByW1(f, 2);
  f.CreateRound({.id = "r-other"});
  auto params = AgainParams(f, "w2", 5);
  params.begun_by = f.now - absl::Minutes(3);
  CHECK(LeaseAgain(f, params).empty());
  CHECK(*f.store().FirstLeaseTime(f.round, absl::InfinitePast()) == f.now - absl::Minutes(2));
  CHECK(*f.store().FirstLeaseTime(f.round, f.now - absl::Minutes(2)) == absl::InfiniteFuture());
  params.begun_by = f.now;
  params.candidates_max = 1;
  auto leased = LeaseAgain(f, params);
  REQUIRE(leased.size() == 1);
  CHECK(leased[0].id.index == 0);
  CHECK(*f.store().FirstLeaseTime(f.round, absl::InfinitePast()) == f.now - absl::Minutes(2));
  // The one candidate is this worker's own.
  params = AgainParams(f, "w1", 5);
  params.candidates_max = 1;
  CHECK(LeaseAgain(f, params).empty());
  leased = LeaseAgain(f, AgainParams(f, "w3", 5));
  REQUIRE(leased.size() == 1);
  CHECK(leased[0].id.index == 1);
  CHECK(*f.store().FirstLeaseTime(f.round, absl::InfinitePast()) == absl::InfiniteFuture());
  CHECK(*f.store().FirstLeaseTime(RoundId("r-other"), absl::InfinitePast()) == absl::InfiniteFuture());
  CHECK(absl::IsNotFound(f.store().FirstLeaseTime(RoundId("r-none"), absl::InfinitePast()).status()));
}

STORE_TEST("Tasks that a worker may not take hide none that it may, however long they are held") {
  auto round = f.RoundParams({.num_tasks = 5});
  round.tasks[0].requirement = round.tasks[1].requirement = "gpu";
  round.tasks[3].requirement = "arm";
  REQUIRE(f.Do([&](TaskStore& s) { return s.CreateRound(round); }).ok());
  auto first = f.LeaseParams("w1", 1);
  first.fulfilled_requirements = {"arm", "gpu"};
  first.expire_time = first.attempt_deadline_time = f.now + absl::Hours(1);
  for (int i = 0; i < 5; ++i) {
    first.tokens = {LeaseToken(fmt::format("first-{}", i))};
    first.now = f.now;
    REQUIRE(f.LeaseUpTo(first).size() == 1);
    f.now += absl::Seconds(1);
  }
  const auto indexes = [&](const TaskStore::LeaseAgainParams& params) {
    std::vector<int32_t> found;
    for (const TaskRecord& task : LeaseAgain(f, params)) found.push_back(task.id.index);
    return found;
  };
  auto params = AgainParams(f, "w2", 5);
  params.candidates_max = 1;
  CHECK(indexes(params) == std::vector<int32_t>{2});
  params = AgainParams(f, "w3", 5);
  params.fulfilled_requirements = {"arm", "arm"};
  CHECK(indexes(params) == std::vector<int32_t>{3, 4});
  params = AgainParams(f, "w4", 5);
  params.fulfilled_requirements = {"gpu"};
  CHECK(indexes(params) == std::vector<int32_t>{0, 1});
}

STORE_TEST("The tasks of a worker are those of its second leases, too") {
  HeldByW1(f, 3);
  auto params = AgainParams(f, "w2");
  LeaseAgain(f, params);
  const auto indexes = [&](const std::string& worker) {
    std::vector<int32_t> found;
    const auto tasks = f.store().ListTasks({.worker = WorkerName(worker)});
    REQUIRE(tasks.ok());
    for (const TaskRecord& task : *tasks) found.push_back(task.id.index);
    return found;
  };
  CHECK(indexes("w1") == std::vector<int32_t>{0, 1, 2});
  CHECK(indexes("w2") == std::vector<int32_t>{0});
  CHECK(indexes("w3").empty());
  f.Reopen();
  CHECK(indexes("w2") == std::vector<int32_t>{0});
  REQUIRE(f.Do([&](TaskStore& s) {
             return s.MoveRound({.round = f.round,
                                 .from = RoundState::kCollecting,
                                 .to = RoundState::kCancelled,
                                 .now = f.now,
                                 .error = "enough"});
           }).ok());
  CHECK(indexes("w2").empty());
}

STORE_TEST("A second lease needs the requirement, counts against per_worker_max, and a round that collects") {
  f.CreateRound({.num_tasks = 2, .requirement = "gpu"});
  auto first = f.LeaseParams("w1", 2);
  first.fulfilled_requirements = {"gpu"};
  f.LeaseUpTo(first);
  CHECK(LeaseAgain(f, AgainParams(f, "w2", 2)).empty());
  auto params = AgainParams(f, "w2", 2);
  params.fulfilled_requirements = {"gpu"};
  params.per_worker_max = 1;
  REQUIRE(LeaseAgain(f, params).size() == 1);
  params.tokens = {LeaseToken("x")};
  CHECK(LeaseAgain(f, params).empty());
  params.worker = WorkerName();
  CHECK(absl::IsInvalidArgument(f.Do([&](TaskStore& s) { return s.LeaseAgain(params); }).status()));
  params.worker = WorkerName("w3");
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kCancelled).ok());
  CHECK(absl::IsFailedPrecondition(f.Do([&](TaskStore& s) { return s.LeaseAgain(params); }).status()));
}

STORE_TEST(
    "Of two attempts the first that is accepted counts, whichever it is; the other is cancelled and brings nothing") {
  std::vector<TaskRecord> first = HeldByW1(f, 2);
  const std::vector<TaskRecord> second = LeaseAgain(f, AgainParams(f, "w2", 2));
  REQUIRE(second.size() == 2);
  REQUIRE(f.Contribute(second[0]).ok());
  REQUIRE(f.Contribute(first[1]).ok());
  CHECK(absl::IsFailedPrecondition(f.Contribute(first[0]).status()));
  CHECK(absl::IsFailedPrecondition(f.Contribute(second[1]).status()));
  CHECK(absl::IsFailedPrecondition(f.Contribute(second[0]).status()));
  CHECK(absl::IsFailedPrecondition(f.End(first[0], AttemptOutcome::kLost, TaskState::kQueued).status()));
  CHECK(f.Round().num_contributions == 2);
  CHECK(f.Round().tasks == TaskCounts{.succeeded = 2});
  CHECK(f.Task(0).worker == WorkerName("w2"));
  CHECK(f.Task(0).lease_token == second[0].lease_token);
  CHECK_FALSE(f.Task(0).second_lease.has_value());
  CHECK(Outcomes(f, 0) == Expected{AttemptOutcome::kCancelled, AttemptOutcome::kSucceeded});
  CHECK(f.Attempts(0)[0].error == "another attempt at the task was accepted first");
  CHECK(Outcomes(f, 1) == Expected{AttemptOutcome::kSucceeded, AttemptOutcome::kCancelled});
  CHECK(f.store().ListLeases("default", WorkerName("w1"))->empty());
  CHECK(f.store().ListLeases("default", WorkerName("w2"))->empty());
  CHECK(f.store().ListContributions(f.round, 0, 10)->at(0).worker == WorkerName("w2"));
  f.Reopen();
  CHECK(Outcomes(f, 0) == Expected{AttemptOutcome::kCancelled, AttemptOutcome::kSucceeded});
  CHECK(f.store().ListLeases("default", WorkerName("w1"))->empty());
}

STORE_TEST("When one of two attempts ends without a contribution its task stays leased, and the limits count it") {
  const TaskRecord first = HeldByW1(f)[0];
  TaskRecord second = LeaseOneAgain(f);
  auto left = f.End(first, AttemptOutcome::kLost, TaskState::kBuried);
  REQUIRE(left.ok());
  CHECK(left->state == TaskState::kLeased);
  CHECK(left->lease_token == second.lease_token);
  CHECK(left->num_lost == 1);
  CHECK_FALSE(left->second_lease.has_value());
  CHECK(f.Round().tasks == TaskCounts{.leased = 1});
  CHECK(f.Round().num_lost_attempts == 1);
  CHECK(f.Worker("w1").num_lost == 1);
  CHECK(absl::IsFailedPrecondition(f.Contribute(first).status()));
  f.Reopen();
  CHECK(f.Task(0).num_lost == 1);
  CHECK(f.Task(0).attempt == 2);
  // It has lost as many as it may.
  auto params = AgainParams(f, "w3");
  params.lost_max = 1;
  CHECK(LeaseAgain(f, params).empty());
  // Another second one, and now that one ends.
  const TaskRecord third = LeaseOneAgain(f, "w3");
  CHECK(third.attempt == 3);
  REQUIRE(f.End(third, AttemptOutcome::kFailed, TaskState::kFailed)->state == TaskState::kLeased);
  f.Reopen();
  CHECK(f.Task(0).num_failed == 1);
  CHECK(f.Task(0).attempt == 2);
  CHECK(f.Task(0).num_attempts == 3);
  CHECK(Outcomes(f) == Expected{AttemptOutcome::kLost, AttemptOutcome::kRunning, AttemptOutcome::kFailed});
  REQUIRE(f.End(second, AttemptOutcome::kReleased, TaskState::kQueued)->state == TaskState::kQueued);
  f.Reopen();
  CHECK(Outcomes(f) == Expected{AttemptOutcome::kLost, AttemptOutcome::kReleased, AttemptOutcome::kFailed});
  CHECK(f.Lease("w1").attempt == 4);
}

STORE_TEST("Each of two leases is renewed, and expires, for itself") {
  const TaskRecord first = HeldByW1(f)[0];
  const TaskRecord second = LeaseOneAgain(f);
  const auto renewed = f.Do([&](TaskStore& s) {
    return s.RenewLease(
        {.task = second.id, .token = second.lease_token, .progress = 7, .expire_time = f.now + absl::Minutes(5)});
  });
  REQUIRE(renewed.ok());
  CHECK(renewed->worker == WorkerName("w2"));
  CHECK(renewed->progress == 7);
  CHECK(renewed->expire_time == f.now + absl::Minutes(5));
  CHECK(f.Task(0).progress == 0);
  CHECK(f.Task(0).expire_time == first.expire_time);
  f.Reopen();
  CHECK(f.Task(0).second_lease->progress == 7);
  CHECK(*f.store().NextDueTime(f.now) == f.now + absl::Minutes(5));
  auto expired = f.store().ListExpired(f.now + absl::Minutes(5), 10);
  REQUIRE(expired->size() == 1);
  CHECK(expired->front().lease_token == second.lease_token);
  expired = f.store().ListExpired(f.now + absl::Hours(2), 10);
  REQUIRE(expired->size() == 2);
  CHECK(expired->back().lease_token == first.lease_token);
  CHECK(*f.Do([&](TaskStore& s) {
    return s.LimitTimes({.round = f.round,
                         .now = f.now,
                         .deadline_time_max = absl::InfiniteFuture(),
                         .expire_time_max = f.now + absl::Minutes(1),
                         .attempt_deadline_time_max = f.now + absl::Minutes(1),
                         .available_time_max = absl::InfiniteFuture()});
  }));
  f.Reopen();
  CHECK(f.Task(0).second_lease->expire_time == f.now + absl::Minutes(1));
  CHECK(f.Task(0).expire_time == f.now + absl::Minutes(1));
}

STORE_TEST("An operator who requeues a task of two leases takes it from both workers") {
  const TaskRecord first = HeldByW1(f)[0];
  const TaskRecord second = LeaseOneAgain(f);
  REQUIRE(f.Do([&](TaskStore& s) { return s.RequeueTask({.task = first.id, .now = f.now}); })->state ==
          TaskState::kQueued);
  f.Reopen();
  CHECK(Outcomes(f) == Expected{AttemptOutcome::kCancelled, AttemptOutcome::kCancelled});
  CHECK(absl::IsFailedPrecondition(f.Contribute(first).status()));
  CHECK(absl::IsFailedPrecondition(f.Contribute(second).status()));
  CHECK(f.store().ListLeases("default", WorkerName("w2"))->empty());
  CHECK(f.Lease("w2").attempt == 3);
  CHECK(f.Round().tasks == TaskCounts{.leased = 1});
}

STORE_TEST("A round that stops collecting ends both attempts of a task") {
  HeldByW1(f, 2);
  LeaseOneAgain(f);
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kCancelled).ok());
  f.Reopen();
  CHECK(Outcomes(f, 0) == Expected{AttemptOutcome::kCancelled, AttemptOutcome::kCancelled});
  CHECK(f.Attempts(0)[1].end_time == f.now);
  CHECK(f.Task(0).state == TaskState::kCancelled);
  CHECK_FALSE(f.Task(0).second_lease.has_value());
  CHECK(f.store().ListLeases("default", WorkerName("w1"))->empty());
  CHECK(f.store().ListLeases("default", WorkerName("w2"))->empty());
  CHECK(*f.store().NextDueTime(f.now) == absl::InfiniteFuture());
}

STORE_TEST("What a crash forgets is the attempt that was accepted, also where another is the newest") {
  std::vector<TaskRecord> first = HeldByW1(f, 3);
  REQUIRE(LeaseAgain(f, AgainParams(f, "w2", 2)).size() == 2);
  REQUIRE(f.Contribute(first[0]).ok());
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kSealing).ok());
  const auto forgotten =
      f.Do([&](TaskStore& s) { return s.ForgetContributionsAfterCheckpoint(f.round, f.now + absl::Seconds(1)); });
  REQUIRE(forgotten.ok());
  CHECK(*forgotten == 1);
  f.Reopen();
  CHECK(f.Task(0).state == TaskState::kQueued);
  CHECK(Outcomes(f, 0) == Expected{AttemptOutcome::kCancelled, AttemptOutcome::kCancelled});
  CHECK(f.Attempts(0)[0].error ==
        "its contribution was accepted, but the server stopped before a checkpoint contained it");
  CHECK(Outcomes(f, 1) == Expected{AttemptOutcome::kCancelled, AttemptOutcome::kCancelled});
  CHECK(f.Round().tasks == TaskCounts{.queued = 1, .cancelled = 2});
}

STORE_TEST("A batch that is rolled back leaves no second lease, and takes none away") {
  const TaskRecord first = HeldByW1(f)[0];
  const std::string before = f.DumpNow();
  REQUIRE(f.store().BeginBatch().ok());
  REQUIRE(f.store().LeaseAgain(AgainParams(f, "w2"))->size() == 1);
  f.store().RollbackBatch();
  CHECK(f.DumpNow() == before);
  CHECK(*f.store().FirstLeaseTime(f.round, absl::InfinitePast()) == first.lease_time);
  const TaskRecord second = LeaseOneAgain(f);
  const std::string with_two = f.DumpNow();
  REQUIRE(f.store().BeginBatch().ok());
  REQUIRE(f.store()
              .EndAttempt({.task = first.id,
                           .token = first.lease_token,
                           .outcome = AttemptOutcome::kLost,
                           .to = TaskState::kQueued,
                           .now = f.now})
              .ok());
  f.store().RollbackBatch();
  CHECK(f.DumpNow() == with_two);
  REQUIRE(f.Contribute(second).ok());
}

}  // namespace
}  // namespace sheaf
