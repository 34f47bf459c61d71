// Leases, contributions, and looking at tasks.
#include "tests/conformance/store_fixture.h"

namespace sheaf {
namespace {

STORE_TEST("A lease names its holder, poll, token and times, and opens an attempt") {
  f.CreateRound({.num_tasks = 2});
  TaskRecord task = f.Lease("w1");
  CHECK(task.id == TaskId{f.round, 0});
  CHECK(task.state == TaskState::kLeased);
  CHECK(task.worker == WorkerName("w1"));
  CHECK(task.lease_token == LeaseToken("token-1"));
  CHECK(task.poll_id == "poll");
  CHECK(task.payload == "payload 0");
  CHECK(task.lease_time == f.now);
  CHECK(task.expire_time == f.now + absl::Seconds(30));
  CHECK(task.num_attempts == 1);
  CHECK(Describe(f.Task(0)) == Describe(task));
  REQUIRE(f.Attempts(0).size() == 1);
  CHECK(f.Attempts(0)[0].number == 1);
  CHECK(f.Attempts(0)[0].outcome == AttemptOutcome::kRunning);
  CHECK(f.Attempts(0)[0].end_time == absl::InfiniteFuture());
}

STORE_TEST("Tasks are leased lowest index first, each to one worker, until none is left") {
  f.CreateRound({.num_tasks = 3});
  CHECK(f.LeaseUpTo(f.LeaseParams("w1", 2))[1].id.index == 1);
  auto rest = f.LeaseUpTo(f.LeaseParams("w2", 5));
  REQUIRE(rest.size() == 1);
  CHECK(rest[0].id.index == 2);
  CHECK(f.LeaseUpTo(f.LeaseParams("w3", 5)).empty());
  CHECK(f.Round().tasks == TaskCounts{.leased = 3});
}

STORE_TEST("A task is leased only to workers that fulfil its requirement") {
  auto params = f.RoundParams({.num_tasks = 3});
  params.tasks[0].requirement = "gpu";
  params.tasks[1].requirement = "big";
  REQUIRE(f.Do([&](TaskStore& s) { return s.CreateRound(params); }).ok());
  CHECK(*f.store().ListRequirements(f.round) == std::vector<std::string>{"", "big", "gpu"});
  auto plain = f.LeaseParams("w1", 3);
  auto leased = f.LeaseUpTo(plain);
  REQUIRE(leased.size() == 1);
  CHECK(leased[0].id.index == 2);
  auto able = f.LeaseParams("w2", 3);
  able.fulfilled_requirements = {"other", "gpu", "big"};
  leased = f.LeaseUpTo(able);
  REQUIRE(leased.size() == 2);
  CHECK(leased[0].requirement == "gpu");
  CHECK(leased[1].requirement == "big");
}

STORE_TEST("A worker never takes more tasks of a round than it may, held and completed together") {
  f.CreateRound({.num_tasks = 5});
  auto params = f.LeaseParams("w1", 3);
  params.per_worker_max = 2;
  auto leased = f.LeaseUpTo(params);
  REQUIRE(leased.size() == 2);
  REQUIRE(f.Contribute(leased[0]).ok());
  CHECK(f.LeaseUpTo(params).empty());
  REQUIRE(f.End(leased[1], AttemptOutcome::kReleased, TaskState::kQueued).ok());
  params.tokens = {LeaseToken("x"), LeaseToken("y")};
  CHECK(f.LeaseUpTo(params).size() == 1);
  // A task that an operator took back is nobody's.
  const TaskRecord taken_back = f.store().ListLeases("default", WorkerName("w1"))->front();
  REQUIRE(f.Do([&](TaskStore& s) { return s.RequeueTask({.task = taken_back.id, .now = f.now}); }).ok());
  params.tokens = {LeaseToken("t"), LeaseToken("u")};
  CHECK(f.LeaseUpTo(params).size() == 1);
  params.worker = WorkerName("w2");
  params.tokens = {LeaseToken("v"), LeaseToken("w")};
  CHECK(f.LeaseUpTo(params).size() == 2);
}

STORE_TEST("A lease never outlasts its attempt") {
  f.CreateRound({});
  auto params = f.LeaseParams("w1");
  params.attempt_deadline_time = f.now + absl::Seconds(20);
  TaskRecord task = f.LeaseUpTo(params)[0];
  CHECK(task.expire_time == f.now + absl::Seconds(20));
}

STORE_TEST("Progress renews a lease up to the attempt's deadline; standing still does not") {
  f.CreateRound({});
  TaskRecord task = f.Lease("w1");
  auto renew = [&](int64_t progress, absl::Duration by) {
    return f.Do([&](TaskStore& s) {
      return s.RenewLease(
          {.task = task.id, .token = task.lease_token, .progress = progress, .expire_time = f.now + by});
    });
  };
  CHECK(renew(5, absl::Minutes(1))->expire_time == f.now + absl::Minutes(1));
  CHECK(renew(5, absl::Minutes(2))->expire_time == f.now + absl::Minutes(1));
  CHECK(renew(4, absl::Minutes(2))->progress == 5);
  CHECK(renew(6, absl::Hours(2))->expire_time == f.now + absl::Minutes(10));
  CHECK(f.Task(0).progress == 6);
  CHECK(f.store().ListExpired(f.now + absl::Minutes(9), 10)->empty());
  CHECK(f.store().ListExpired(f.now + absl::Minutes(10), 10)->size() == 1);
}

STORE_TEST("A lease ends at the same time whoever is asked, however small the unit of time") {
  f.now += absl::Nanoseconds(1) / 4;
  f.CreateRound({});
  const TaskRecord held = f.Lease("w1");
  const auto agree = [&](int64_t progress, absl::Duration later) {
    const auto renewed = f.Do([&](TaskStore& s) {
      return s.RenewLease(
          {.task = held.id, .token = held.lease_token, .progress = progress, .expire_time = f.now + later});
    });
    REQUIRE(renewed.ok());
    CHECK(f.Task(0).expire_time == renewed->expire_time);
    CHECK(f.store().ListLeases("default", WorkerName("w1"))->at(0).expire_time == renewed->expire_time);
  };
  agree(0, absl::Hours(1));
  agree(5, absl::Minutes(1));
}

STORE_TEST("A lease that expired is listed, ended as lost, and handed to the next worker") {
  f.Saw("w1");
  f.CreateRound({});
  TaskRecord lost = f.Lease("w1");
  CHECK(f.store().ListExpired(f.now + absl::Seconds(29), 10)->empty());
  f.now += absl::Seconds(30);
  auto expired = *f.store().ListExpired(f.now, 10);
  REQUIRE(expired.size() == 1);
  CHECK(expired[0].payload.empty());
  auto queued = f.End(expired[0], AttemptOutcome::kLost, TaskState::kQueued);
  REQUIRE(queued.ok());
  CHECK(queued->state == TaskState::kQueued);
  CHECK(queued->num_lost == 1);
  CHECK(queued->num_failed == 0);
  CHECK(queued->last_error == "it broke");
  CHECK(queued->worker.empty());
  TaskRecord second = f.Lease("w2");
  CHECK(second.num_attempts == 2);
  CHECK(f.Contribute(lost).status().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(f.Contribute(second).ok());
  auto attempts = f.Attempts(0);
  REQUIRE(attempts.size() == 2);
  CHECK(attempts[0].outcome == AttemptOutcome::kLost);
  CHECK(attempts[0].worker == WorkerName("w1"));
  CHECK(attempts[0].error == "it broke");
  CHECK(attempts[1].outcome == AttemptOutcome::kSucceeded);
  CHECK(f.Round().num_lost_attempts == 1);
  CHECK(f.Worker("w1").num_lost == 1);
}

STORE_TEST("Expired leases come earliest first and no more than asked for") {
  f.CreateRound({.num_tasks = 3});
  for (int seconds : {50, 40, 60}) {
    auto params = f.LeaseParams("w1");
    params.expire_time = f.now + absl::Seconds(seconds);
    f.LeaseUpTo(params);
  }
  auto expired = *f.store().ListExpired(f.now + absl::Hours(1), 2);
  REQUIRE(expired.size() == 2);
  CHECK(expired[0].id.index == 1);
  CHECK(expired[1].id.index == 0);
}

STORE_TEST("Of a task's many attempts the newest are kept, the one that runs included") {
  f.CreateRound({});
  for (int i = 0; i < kAttemptsKept + 4; ++i) {
    REQUIRE(f.End(f.Lease("w1"), AttemptOutcome::kReleased, TaskState::kQueued).ok());
  }
  const auto check = [&](int32_t oldest, int32_t newest) {
    const std::vector<AttemptRecord> attempts = f.Attempts(0);
    REQUIRE(attempts.size() == kAttemptsKept);
    CHECK(attempts.front().number == oldest);
    CHECK(attempts.back().number == newest);
  };
  check(5, kAttemptsKept + 4);
  f.Lease("w1");
  check(6, kAttemptsKept + 5);
  CHECK(f.store().GetTask({f.round, 0})->num_attempts == kAttemptsKept + 5);
}

STORE_TEST("Lost and failed attempts are counted apart, released and cancelled ones not at all") {
  f.Saw("w1");
  f.CreateRound({});
  for (auto outcome : {AttemptOutcome::kFailed, AttemptOutcome::kLost, AttemptOutcome::kFailed,
                       AttemptOutcome::kReleased, AttemptOutcome::kCancelled}) {
    REQUIRE(f.End(f.Lease("w1"), outcome, TaskState::kQueued).ok());
  }
  TaskRecord task = f.Task(0);
  CHECK(task.num_attempts == 5);
  CHECK(task.num_failed == 2);
  CHECK(task.num_lost == 1);
  CHECK(f.Round().num_failed_attempts == 2);
  CHECK(f.Round().num_lost_attempts == 1);
  WorkerRecord worker = f.Worker("w1");
  CHECK(worker.num_leased == 5);
  CHECK(worker.num_failed == 2);
  CHECK(worker.num_lost == 1);
  CHECK(worker.num_succeeded == 0);
}

STORE_TEST("A task that waits out its backoff is not leased before its time") {
  f.CreateRound({});
  REQUIRE(f.End(f.Lease("w1"), AttemptOutcome::kFailed, TaskState::kQueued, absl::Seconds(10)).ok());
  CHECK(f.LeaseUpTo(f.LeaseParams("w1")).empty());
  CHECK(f.store().DescribeQueue("default", f.now)->num_delayed == 1);
  CHECK(*f.store().NextDueTime(f.now) == f.now + absl::Seconds(10));
  f.now += absl::Seconds(10);
  CHECK(f.store().DescribeQueue("default", f.now)->num_delayed == 0);
  f.Lease("w1");
}

STORE_TEST("A failed or buried task stays until an operator requeues it, with its limits counted afresh") {
  f.CreateRound({.num_tasks = 2});
  REQUIRE(f.End(f.Lease("w1"), AttemptOutcome::kFailed, TaskState::kBuried).ok());
  REQUIRE(f.End(f.Lease("w1"), AttemptOutcome::kFailed, TaskState::kFailed).ok());
  CHECK(f.Round().tasks == TaskCounts{.failed = 1, .buried = 1});
  CHECK(f.Task(0).end_time == f.now);
  CHECK(f.LeaseUpTo(f.LeaseParams("w1", 2)).empty());
  for (int index : {0, 1}) {
    auto task = f.Do([&](TaskStore& s) { return s.RequeueTask({.task = {f.round, index}, .now = f.now}); });
    REQUIRE(task.ok());
    CHECK(task->state == TaskState::kQueued);
    CHECK(task->num_failed == 0);
    CHECK(task->num_attempts == 1);
    CHECK(task->last_error == "it broke");
    CHECK(task->end_time == absl::InfiniteFuture());
  }
  CHECK(f.LeaseUpTo(f.LeaseParams("w1", 2)).size() == 2);
  CHECK(f.Task(0).num_attempts == 2);
}

STORE_TEST("Requeuing a leased task takes it from its worker") {
  f.CreateRound({});
  TaskRecord held = f.Lease("w1");
  REQUIRE(f.Do([&](TaskStore& s) { return s.RequeueTask({.task = held.id, .now = f.now}); }).ok());
  CHECK(f.Attempts(0)[0].outcome == AttemptOutcome::kCancelled);
  CHECK(f.Contribute(held).status().code() == absl::StatusCode::kFailedPrecondition);
  f.Lease("w2");
}

STORE_TEST("Requeuing a delayed task makes it available at once") {
  f.CreateRound({});
  REQUIRE(f.End(f.Lease("w1"), AttemptOutcome::kLost, TaskState::kQueued, absl::Hours(1)).ok());
  int64_t version = f.Round().version;
  REQUIRE(f.Do([&](TaskStore& s) { return s.RequeueTask({.task = {f.round, 0}, .now = f.now}); }).ok());
  CHECK(f.Round().version == version);
  f.Lease("w1");
}

STORE_TEST("After a clock was set back nothing of a round lies further ahead than it can") {
  f.CreateRound({.num_tasks = 3});
  TaskRecord held = f.Lease("w1");
  TaskRecord failed = f.Lease("w1");
  REQUIRE(f.End(failed, AttemptOutcome::kFailed, TaskState::kQueued, absl::Seconds(40)).ok());
  auto limit = [&] {
    return f.Do([&](TaskStore& s) {
      return s.LimitTimes({.round = f.round,
                           .now = f.now,
                           .deadline_time_max = f.now + absl::Hours(1),
                           .expire_time_max = f.now + absl::Seconds(30),
                           .attempt_deadline_time_max = f.now + absl::Minutes(10),
                           .available_time_max = f.now + absl::Minutes(1)});
    });
  };
  std::string before = f.DumpNow();
  CHECK(*limit() == false);
  CHECK(f.DumpNow() == before);

  f.now -= absl::Hours(1);
  f.Reopen();
  const int64_t version = f.Round().version;
  CHECK(*limit() == true);
  f.Reopen();
  CHECK(f.Round().version > version);
  CHECK(f.Round().deadline_time == f.now + absl::Hours(1));
  CHECK(f.Task(0).expire_time == f.now + absl::Seconds(30));
  CHECK(f.Task(0).attempt_deadline_time == f.now + absl::Minutes(10));
  CHECK(f.Task(0).lease_token == held.lease_token);
  CHECK(f.Task(1).available_time == f.now);
  CHECK(f.Task(2).available_time == f.now);
  CHECK(*f.store().NextDueTime(f.now) == f.now + absl::Seconds(30));
  CHECK(f.store().ListExpired(f.now + absl::Seconds(30), 10)->size() == 1);
  CHECK(f.LeaseUpTo(f.LeaseParams("w2", 3)).size() == 2);
  CHECK(f.Contribute(held).ok());
  CHECK(*limit() == false);

  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kSealing).ok());
  CHECK(limit().status().code() == absl::StatusCode::kFailedPrecondition);
}

STORE_TEST("A task that succeeded, or whose round has stopped, cannot be requeued") {
  f.CreateRound({.num_tasks = 2});
  REQUIRE(f.Contribute(f.Lease("w1")).ok());
  auto requeue = [&](int index) {
    return f.Do([&](TaskStore& s) { return s.RequeueTask({.task = {f.round, index}, .now = f.now}); }).status().code();
  };
  CHECK(requeue(0) == absl::StatusCode::kFailedPrecondition);
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kSealing).ok());
  CHECK(requeue(1) == absl::StatusCode::kFailedPrecondition);
}

STORE_TEST("An accepted contribution ends its task and takes the round's next sequence number") {
  f.Saw("w1");
  f.CreateRound({.num_tasks = 2});
  TaskRecord first = f.Lease("w1");
  TaskRecord second = f.Lease("w2");
  f.now += absl::Seconds(1);
  auto accepted = f.Contribute(second);
  REQUIRE(accepted.ok());
  CHECK(accepted->sequence == 1);
  CHECK(accepted->worker == WorkerName("w2"));
  CHECK(f.Contribute(first, 9)->sequence == 2);
  TaskRecord task = f.Task(1);
  CHECK(task.state == TaskState::kSucceeded);
  CHECK(task.worker == WorkerName("w2"));
  CHECK(task.lease_token == second.lease_token);
  CHECK(task.end_time == f.now);
  RoundRecord round = f.Round();
  CHECK(round.num_contributions == 2);
  CHECK(round.num_clients == 4);
  CHECK(round.bytes_up == 200);
  CHECK(round.progress == "progress");
  CHECK(round.tasks == TaskCounts{.succeeded = 2});
  CHECK(f.Worker("w1").num_succeeded == 1);
  AttemptRecord attempt = f.Attempts(1)[0];
  CHECK(attempt.timings == "timings");
  CHECK(attempt.bytes_up == 100);
  auto listed = *f.store().ListContributions(f.round, 1, 10);
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].payload == SpoolRef{.segment = 9, .offset = 8, .length = 100, .crc = 0xfffffff0u});
  CHECK(listed[0].accept_time == f.now);
}

STORE_TEST("A contribution under a stale token changes nothing") {
  f.CreateRound({});
  TaskRecord stale = f.Lease("w1");
  REQUIRE(f.End(stale, AttemptOutcome::kLost, TaskState::kQueued).ok());
  f.Lease("w2");
  std::string before = f.DumpNow();
  CHECK(f.Contribute(stale).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(f.End(stale, AttemptOutcome::kFailed, TaskState::kQueued).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK(f.Do([&](TaskStore& s) {
           return s.RenewLease({.task = stale.id, .token = stale.lease_token, .progress = 9, .expire_time = f.now});
         })
            .status()
            .code() == absl::StatusCode::kFailedPrecondition);
  CHECK(f.DumpNow() == before);
}

STORE_TEST("A contribution that comes twice counts once") {
  f.CreateRound({});
  TaskRecord task = f.Lease("w1");
  REQUIRE(f.Contribute(task).ok());
  std::string before = f.DumpNow();
  CHECK(f.Contribute(task).status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(f.DumpNow() == before);
}

STORE_TEST("A contribution after the round stopped collecting changes nothing") {
  f.CreateRound({});
  TaskRecord task = f.Lease("w1");
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kSealing).ok());
  std::string before = f.DumpNow();
  auto late = f.Contribute(task);
  CHECK(late.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(late.status().ToString().find("SEALING") != std::string::npos);
  CHECK(f.DumpNow() == before);
}

STORE_TEST("A refused operation leaves the rest of its batch whole") {
  f.CreateRound({.num_tasks = 2});
  TaskRecord first = f.Lease("w1");
  TaskRecord second = f.Lease("w1");
  TaskStore& store = f.store();
  REQUIRE(store.BeginBatch().ok());
  REQUIRE(store.RecordContribution({.task = first.id, .token = first.lease_token, .now = f.now}).ok());
  CHECK_FALSE(store.RecordContribution({.task = second.id, .token = first.lease_token, .now = f.now}).ok());
  REQUIRE(store.RecordContribution({.task = second.id, .token = second.lease_token, .now = f.now}).ok());
  REQUIRE(store.CommitBatch().ok());
  CHECK(f.Round().num_contributions == 2);
}

STORE_TEST("A checkpoint only moves forward, and not past what was accepted") {
  f.CreateRound({.num_tasks = 3});
  for (int i = 0; i < 3; ++i) REQUIRE(f.Contribute(f.Lease("w1")).ok());
  auto save = [&](std::string name, int64_t sequence) {
    return f
        .Do([&](TaskStore& s) {
          return s.SaveCheckpoint({.round = f.round, .checkpoint = name, .sequence = sequence});
        })
        .code();
  };
  CHECK(save("c2", 2) == absl::StatusCode::kOk);
  CHECK(save("c1", 1) == absl::StatusCode::kFailedPrecondition);
  CHECK(save("c4", 4) == absl::StatusCode::kFailedPrecondition);
  CHECK(f.Round().checkpoint == "c2");
  CHECK(save("c2b", 2) == absl::StatusCode::kOk);
  CHECK(f.Round().checkpoint == "c2b");
  CHECK(f.Round().checkpoint_sequence == 2);
}

STORE_TEST(
    "A checkpoint that contains all that was accepted says what the round's progress is; an older one does not") {
  f.CreateRound({.num_tasks = 3});
  for (int i = 0; i < 2; ++i) REQUIRE(f.Contribute(f.Lease("w1")).ok());
  const std::string before = f.Round().progress;
  const auto save = [&](int64_t sequence, const std::string& progress) {
    REQUIRE(f.Do([&](TaskStore& s) {
               return s.SaveCheckpoint(
                   {.round = f.round, .checkpoint = "c", .sequence = sequence, .progress = progress});
             }).ok());
  };
  save(1, "progress of 1");
  CHECK(f.Round().progress == before);
  save(2, "progress of 2");
  CHECK(f.Round().progress == "progress of 2");
}

STORE_TEST("Contributions forgotten by a crash are unaccepted and their tasks queued again") {
  f.CreateRound({.num_tasks = 3});
  for (int i = 0; i < 3; ++i) REQUIRE(f.Contribute(f.Lease("w1"), 0).ok());
  REQUIRE(f.Do([&](TaskStore& s) {
             return s.SaveCheckpoint({.round = f.round, .checkpoint = "c", .sequence = 1, .progress = "progress of 1"});
           }).ok());
  f.now += absl::Seconds(5);
  auto forgotten = f.Do([&](TaskStore& s) { return s.ForgetContributionsAfterCheckpoint(f.round, f.now); });
  REQUIRE(forgotten.ok());
  CHECK(*forgotten == 2);
  RoundRecord round = f.Round();
  CHECK(round.num_contributions == 1);
  CHECK(round.num_clients == 2);
  CHECK(round.bytes_up == 100);
  CHECK(round.progress == "progress of 1");
  CHECK(round.tasks == TaskCounts{.queued = 2, .succeeded = 1});
  CHECK(f.store().ListContributions(f.round, 0, 10)->size() == 1);
  CHECK(f.Task(2).available_time == f.now);
  CHECK(f.Task(2).worker.empty());
  CHECK(f.Attempts(2)[0].outcome == AttemptOutcome::kCancelled);
  auto again = f.LeaseUpTo(f.LeaseParams("w2", 5));
  REQUIRE(again.size() == 2);
  CHECK(f.Contribute(again[0])->sequence == 2);
}

STORE_TEST("A round that was sealing collects again when a crash forgets its contributions") {
  f.CreateRound({.num_tasks = 3});
  REQUIRE(f.Contribute(f.Lease("w1"), 0).ok());
  REQUIRE(f.Contribute(f.Lease("w1"), 0).ok());
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kSealing).ok());
  auto forgotten = f.Do([&](TaskStore& s) { return s.ForgetContributionsAfterCheckpoint(f.round, f.now); });
  REQUIRE(forgotten.ok());
  CHECK(*forgotten == 2);
  f.Reopen();
  CHECK(f.Round().state == RoundState::kCollecting);
  CHECK(f.Round().progress.empty());
  CHECK(f.Round().tasks == TaskCounts{.queued = 2, .cancelled = 1});
  CHECK(f.Contribute(f.Lease("w2"), 0)->sequence == 1);
}

STORE_TEST("What a round that has ended accepted is not forgotten") {
  f.CreateRound({.num_tasks = 1});
  REQUIRE(f.Contribute(f.Lease("w1"), 0).ok());
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kSealing).ok());
  REQUIRE(f.Move(RoundState::kSealing, RoundState::kSucceeded).ok());
  auto forgotten = f.Do([&](TaskStore& s) { return s.ForgetContributionsAfterCheckpoint(f.round, f.now); });
  CHECK(absl::IsFailedPrecondition(forgotten.status()));
}

STORE_TEST("The leases of a worker are listed by task") {
  f.CreateRound({.id = "r-z"});
  f.CreateRound({.num_tasks = 3});
  f.LeaseUpTo(f.LeaseParams("w1", 1, "r-z"));
  f.LeaseUpTo(f.LeaseParams("w1", 2));
  f.LeaseUpTo(f.LeaseParams("w2", 1));
  std::string held;
  auto leases = *f.store().ListLeases("default", WorkerName("w1"));
  for (const TaskRecord& task : leases) held += task.id.ToString() + " ";
  CHECK(held == "r-one/0 r-one/1 r-z/0 ");
  for (const TaskRecord& task : leases) {
    CHECK(task.payload.empty());
    CHECK(task.data_selector.empty());
    CHECK(task.worker == WorkerName("w1"));
    CHECK_FALSE(task.lease_token.empty());
  }
}

STORE_TEST("A worker's leases are not those of its namesake in another population") {
  f.CreateRound({.num_tasks = 2});
  f.CreateRound({.id = "r-b", .num_tasks = 2, .population = "other"});
  f.LeaseUpTo(f.LeaseParams("w1", 1));
  f.LeaseUpTo(f.LeaseParams("w1", 2, "r-b"));
  const auto held_by = [&](const std::string& population) {
    std::string held;
    auto leases = *f.store().ListLeases(population, WorkerName("w1"));
    for (const TaskRecord& task : leases) held += task.id.ToString() + " ";
    return held;
  };
  CHECK(held_by("default") == "r-one/0 ");
  CHECK(held_by("other") == "r-b/0 r-b/1 ");
  f.Reopen();
  CHECK(held_by("default") == "r-one/0 ");
  CHECK(held_by("other") == "r-b/0 r-b/1 ");
}

STORE_TEST("The queued tasks of each requirement are counted, whatever becomes of them") {
  auto params = f.RoundParams({.num_tasks = 5});
  params.tasks[0].requirement = "gpu";
  params.tasks[1].requirement = "big";
  params.tasks[2].requirement = "gpu";
  REQUIRE(f.Do([&](TaskStore& s) { return s.CreateRound(params); }).ok());
  using Counts = std::vector<int64_t>;
  // In the order of ListRequirements: "", "big", "gpu".
  const auto counts = [&] { return *f.store().CountQueued(f.round); };
  CHECK(counts() == Counts{2, 1, 2});
  auto lease = f.LeaseParams("w1", 2);
  lease.fulfilled_requirements = {"gpu", "gpu", "unknown"};
  const auto leased = f.LeaseUpTo(lease);
  REQUIRE(leased.size() == 2);
  CHECK(leased[0].id.index == 0);
  CHECK(leased[1].id.index == 2);
  CHECK(counts() == Counts{2, 1, 0});
  f.store().BeginBatch().IgnoreError();
  REQUIRE(f.store()
              .EndAttempt({.task = leased[0].id,
                           .token = leased[0].lease_token,
                           .outcome = AttemptOutcome::kReleased,
                           .to = TaskState::kQueued,
                           .available_time = f.now,
                           .now = f.now})
              .ok());
  CHECK(counts() == Counts{2, 1, 1});
  f.store().RollbackBatch();
  CHECK(counts() == Counts{2, 1, 0});
  REQUIRE(f.End(leased[0], AttemptOutcome::kFailed, TaskState::kQueued, absl::Seconds(9)).ok());
  CHECK(counts() == Counts{2, 1, 1});
  CHECK(f.store().DescribeQueue("default", f.now)->num_delayed == 1);
  // Put back at once by somebody whose batch fails: it still waits.
  f.store().BeginBatch().IgnoreError();
  REQUIRE(f.store().RequeueTask({.task = leased[0].id, .now = f.now}).ok());
  CHECK(f.store().DescribeQueue("default", f.now)->num_delayed == 0);
  f.store().RollbackBatch();
  CHECK(f.store().DescribeQueue("default", f.now)->num_delayed == 1);
  REQUIRE(f.End(leased[1], AttemptOutcome::kFailed, TaskState::kBuried).ok());
  CHECK(counts() == Counts{2, 1, 1});
  f.Reopen();
  CHECK(counts() == Counts{2, 1, 1});
  REQUIRE(f.Do([&](TaskStore& s) { return s.RequeueTask({.task = leased[1].id, .now = f.now}); }).ok());
  CHECK(counts() == Counts{2, 1, 2});
  REQUIRE(f.Do([&](TaskStore& s) {
             return s.MoveRound(
                 {.round = f.round, .from = RoundState::kCollecting, .to = RoundState::kCancelled, .now = f.now});
           }).ok());
  CHECK(counts() == Counts{0, 0, 0});
  CHECK(*f.store().ListRequirements(f.round) == std::vector<std::string>{"", "big", "gpu"});
  CHECK(absl::IsNotFound(f.store().CountQueued(RoundId("r-none")).status()));
}

STORE_TEST("Tasks are listed by round, state, worker and population, in pages") {
  f.CreateRound({.id = "r-b", .num_tasks = 2, .population = "other"});
  f.CreateRound({.id = "r-a", .num_tasks = 3});
  f.LeaseUpTo(f.LeaseParams("w1", 1, "r-a"));
  auto ids = [&](const TaskStore::ListTasksParams& params) {
    std::string found;
    auto listed = *f.store().ListTasks(params);
    for (const TaskRecord& task : listed) found += task.id.ToString() + " ";
    return found;
  };
  CHECK(ids({}) == "r-a/0 r-a/1 r-a/2 r-b/0 r-b/1 ");
  CHECK(ids({.limit = 2}) == "r-a/0 r-a/1 ");
  CHECK(ids({.after = TaskId{RoundId("r-a"), 1}}) == "r-a/2 r-b/0 r-b/1 ");
  CHECK(ids({.round = RoundId("r-a"), .after = TaskId{RoundId("r-a"), 1}}) == "r-a/2 ");
  CHECK(ids({.states = {TaskState::kLeased, TaskState::kBuried}}) == "r-a/0 ");
  CHECK(ids({.worker = WorkerName("w1")}) == "r-a/0 ");
  CHECK(ids({.population = "other", .limit = 1}) == "r-b/0 ");
  CHECK(ids({.round = RoundId("r-none")}).empty());
  CHECK(ids({.until = TaskId{RoundId("r-a"), 1}}) == "r-a/0 r-a/1 ");
  CHECK(ids({.after = TaskId{RoundId("r-a"), 1}, .until = TaskId{RoundId("r-b"), 0}}) == "r-a/2 r-b/0 ");
  CHECK(ids({.round = RoundId("r-b"), .until = TaskId{RoundId("r-a"), 1}}).empty());
  CHECK(ids({.states = {TaskState::kQueued}, .until = TaskId{RoundId("r-a"), 1}}) == "r-a/1 ");
  const auto skipped = [&](const TaskStore::ListTasksParams& params) {
    const auto last = *f.store().SkipTasks(params);
    return last ? last->ToString() : "";
  };
  CHECK(skipped({.limit = 1}) == "r-a/0");
  CHECK(skipped({.limit = 4}) == "r-b/0");
  CHECK(skipped({.states = {TaskState::kLeased}, .worker = WorkerName("w1"), .limit = 5}) == "r-b/1");
  CHECK(skipped({.limit = 6}).empty());
  CHECK(skipped({.population = "other", .limit = 1}) == "r-b/0");
  CHECK(skipped({.round = RoundId("r-a"), .after = TaskId{RoundId("r-a"), 0}, .limit = 2}) == "r-a/2");
  CHECK(skipped({.round = RoundId("r-a"), .after = TaskId{RoundId("r-a"), 0}, .limit = 3}).empty());
}

STORE_TEST("The queue counts the tasks of collecting rounds and knows the oldest that waits") {
  f.CreateRound({.num_tasks = 3});
  absl::Time created = f.now;
  f.now += absl::Seconds(5);
  f.CreateRound({.id = "r-two", .num_tasks = 2, .state = RoundState::kAnnounced});
  f.CreateRound({.id = "r-other", .num_tasks = 2, .population = "other"});
  f.Lease("w1");
  auto queue = *f.store().DescribeQueue("default", f.now);
  CHECK(queue.tasks == TaskCounts{.queued = 2, .leased = 1});
  CHECK(queue.num_live_rounds == 2);
  CHECK(queue.num_delayed == 0);
  CHECK(queue.oldest_available_time == created);
  CHECK(f.store().DescribeQueue("nobody", f.now)->oldest_available_time == absl::InfiniteFuture());
}

STORE_TEST("The next due time is the earliest end of a lease, a backoff or a round that lies ahead") {
  CHECK(*f.store().NextDueTime(f.now) == absl::InfiniteFuture());
  f.CreateRound({.num_tasks = 2});
  CHECK(*f.store().NextDueTime(f.now) == f.now + absl::Hours(1));
  TaskRecord task = f.Lease("w1");
  CHECK(*f.store().NextDueTime(f.now) == f.now + absl::Seconds(30));
  CHECK(*f.store().NextDueTime(f.now + absl::Seconds(30)) == f.now + absl::Hours(1));
  REQUIRE(f.End(task, AttemptOutcome::kFailed, TaskState::kQueued, absl::Seconds(7)).ok());
  CHECK(*f.store().NextDueTime(f.now) == f.now + absl::Seconds(7));
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kCancelled).ok());
  CHECK(*f.store().NextDueTime(f.now) == absl::InfiniteFuture());
}

STORE_TEST("Bytes of every kind survive") {
  auto params = f.RoundParams({.num_tasks = 1});
  std::string bytes("\0\xff'\"%s\n\xc3\x28", 9);
  params.round.spec = params.round.progress = params.tasks[0].payload = params.tasks[0].data_selector = bytes;
  REQUIRE(f.Do([&](TaskStore& s) { return s.CreateRound(params); }).ok());
  f.Reopen();
  CHECK(f.Round().spec == bytes);
  CHECK(f.Round().progress == bytes);
  CHECK(f.Task(0).payload == bytes);
  CHECK(f.Task(0).data_selector == bytes);
}

}  // namespace
}  // namespace sheaf
