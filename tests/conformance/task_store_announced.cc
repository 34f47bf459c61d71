// Announced rounds: their tasks are leased before their broadcast is known.
#include "tests/conformance/store_fixture.h"

namespace sheaf {
namespace {

absl::StatusOr<RoundRecord> Open(StoreFixture& f, const std::string& digest, absl::Duration deadline) {
  return f.Do([&](TaskStore& s) {
    return s.MoveRound({.round = f.round,
                        .from = RoundState::kAnnounced,
                        .to = RoundState::kCollecting,
                        .now = f.now,
                        .broadcast_digest = digest,
                        .deadline_time = f.now + deadline});
  });
}

absl::StatusOr<TaskRecord> Renew(StoreFixture& f, const TaskRecord& held, int64_t progress, absl::Duration lease,
                                 absl::Time attempt_deadline_time_max = absl::InfiniteFuture()) {
  return f.Do([&](TaskStore& s) {
    return s.RenewLease({.task = held.id,
                         .token = held.lease_token,
                         .progress = progress,
                         .expire_time = f.now + lease,
                         .attempt_deadline_time_max = attempt_deadline_time_max});
  });
}

STORE_TEST("A task of an announced round is leased, renewed, lost, failed, given back and requeued like any other") {
  f.CreateRound({.num_tasks = 3, .state = RoundState::kAnnounced});
  const auto leased = f.LeaseUpTo(f.LeaseParams("w1", 3));
  REQUIRE(leased.size() == 3);
  CHECK(f.Round().state == RoundState::kAnnounced);
  CHECK(f.Round().tasks == TaskCounts{.leased = 3});
  CHECK(Renew(f, leased[0], 1, absl::Minutes(1))->expire_time == f.now + absl::Minutes(1));
  CHECK(f.store().ListLeases("default", WorkerName("w1"))->size() == 3);

  const absl::Time later = f.now + absl::Seconds(30);
  CHECK(f.store().ListExpired(later, 10)->size() == 2);
  REQUIRE(f.End(leased[1], AttemptOutcome::kLost, TaskState::kQueued).ok());
  CHECK(f.Task(1).num_lost == 1);
  REQUIRE(f.End(leased[2], AttemptOutcome::kFailed, TaskState::kBuried).ok());
  REQUIRE(f.End(leased[0], AttemptOutcome::kReleased, TaskState::kQueued).ok());
  CHECK(f.Round().tasks == TaskCounts{.queued = 2, .buried = 1});
  REQUIRE(f.Do([&](TaskStore& s) { return s.RequeueTask({.task = leased[2].id, .now = f.now}); }).ok());
  CHECK(f.Round().tasks == TaskCounts{.queued = 3});
  const TaskRecord again = f.Lease("w2");
  REQUIRE(f.Do([&](TaskStore& s) { return s.RequeueTask({.task = again.id, .now = f.now}); }).ok());
  CHECK(f.Attempts(0).back().outcome == AttemptOutcome::kCancelled);
  CHECK(Renew(f, again, 1, absl::Minutes(1)).status().code() == absl::StatusCode::kFailedPrecondition);
}

STORE_TEST("The leases of an announced round are there after a restart, and end when they would have") {
  f.CreateRound({.num_tasks = 2, .state = RoundState::kAnnounced});
  const TaskRecord held = f.Lease("w1");
  REQUIRE(Renew(f, held, 1, absl::Minutes(1)).ok());
  const std::string before = f.DumpNow();
  f.Reopen();
  CHECK(f.DumpNow() == before);
  const auto leases = f.store().ListLeases("default", WorkerName("w1"));
  REQUIRE(leases->size() == 1);
  CHECK(leases->front().lease_token == held.lease_token);
  CHECK(*f.store().NextDueTime(f.now) == f.now + absl::Minutes(1));
  CHECK(f.store().ListExpired(f.now + absl::Minutes(1), 10)->size() == 1);
  CHECK(Renew(f, held, 2, absl::Minutes(2))->expire_time == f.now + absl::Minutes(2));
  CHECK(f.Lease("w2").id.index == 1);
}

STORE_TEST("A round that is announced takes no contribution, under whatever lease, until it is opened") {
  f.CreateRound({.state = RoundState::kAnnounced});
  const TaskRecord held = f.Lease("w1");
  const std::string before = f.DumpNow();
  const auto early = f.Contribute(held);
  CHECK(early.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(early.status().ToString().find("ANNOUNCED") != std::string::npos);
  CHECK(f.DumpNow() == before);
  REQUIRE(Open(f, "abc", absl::Hours(1)).ok());
  CHECK(f.Contribute(held).ok());
  CHECK(f.Round().num_contributions == 1);
}

STORE_TEST("Opening a round gives it its broadcast and a deadline, and leaves its tasks and leases as they are") {
  f.CreateRound({.num_tasks = 3, .state = RoundState::kAnnounced});
  const TaskRecord held = f.Lease("w1");
  const TaskRecord failed = f.Lease("w1");
  REQUIRE(f.End(failed, AttemptOutcome::kFailed, TaskState::kQueued, absl::Seconds(9)).ok());
  const RoundRecord announced = f.Round();
  const std::string tasks = Describe(f.Task(0)) + Describe(f.Task(1)) + Describe(f.Task(2));
  // Longer than it was announced for, and shorter: either is right.
  f.now += absl::Minutes(50);
  const auto opened = Open(f, "abc", absl::Hours(2));
  REQUIRE(opened.ok());
  CHECK(opened->state == RoundState::kCollecting);
  CHECK(opened->broadcast_digest == "abc");
  CHECK(opened->deadline_time == f.now + absl::Hours(2));
  CHECK(opened->version == announced.version + 1);
  CHECK(opened->create_time == announced.create_time);
  CHECK(opened->spec == announced.spec);
  CHECK(Describe(f.Task(0)) + Describe(f.Task(1)) + Describe(f.Task(2)) == tasks);
  f.Reopen();
  CHECK(Describe(f.Round()) == Describe(*opened));
  CHECK(Describe(f.Task(0)) + Describe(f.Task(1)) + Describe(f.Task(2)) == tasks);
  CHECK(f.store().ListLeases("default", WorkerName("w1"))->size() == 1);
  CHECK(f.Contribute(held).ok());
}

STORE_TEST("The deadline that is due is that of the announcement first, and that of the opening afterwards") {
  f.CreateRound({.state = RoundState::kAnnounced});
  CHECK(*f.store().NextDueTime(f.now) == f.now + absl::Hours(1));
  REQUIRE(Open(f, "", absl::Minutes(5)).ok());
  CHECK(*f.store().NextDueTime(f.now) == f.now + absl::Minutes(5));
  f.Reopen();
  CHECK(*f.store().NextDueTime(f.now) == f.now + absl::Minutes(5));
  CHECK(f.Round().broadcast_digest.empty());
}

STORE_TEST("A round is opened once: another opening changes nothing") {
  f.CreateRound({.state = RoundState::kAnnounced});
  REQUIRE(Open(f, "abc", absl::Hours(1)).ok());
  const std::string before = f.DumpNow();
  for (const char* digest : {"abc", "def"}) {
    const auto again = Open(f, digest, absl::Hours(2));
    CHECK(again.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(again.status().ToString().find("COLLECTING") != std::string::npos);
  }
  CHECK(f.DumpNow() == before);
}

STORE_TEST("A round that was cancelled or ran out while it was announced is not opened") {
  const RoundState ends[] = {RoundState::kCancelled, RoundState::kFailed};
  for (const RoundState end : ends) {
    f.round = RoundId(end == RoundState::kFailed ? "r-failed" : "r-cancelled");
    f.CreateRound({.id = std::string(f.round.value()), .num_tasks = 2, .state = RoundState::kAnnounced});
    auto params = f.LeaseParams("w1", 1, f.round.value());
    const TaskRecord held = f.LeaseUpTo(params)[0];
    REQUIRE(f.Move(RoundState::kAnnounced, end).ok());
    CHECK(f.Round().tasks == TaskCounts{.cancelled = 2});
    CHECK(f.Round().error == "why");
    CHECK(f.Attempts(0).back().outcome == AttemptOutcome::kCancelled);
    const std::string before = f.DumpNow();
    CHECK(Open(f, "abc", absl::Hours(1)).status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(Renew(f, held, 1, absl::Minutes(1)).status().code() == absl::StatusCode::kFailedPrecondition);
    const auto late = f.Do([&](TaskStore& s) { return s.LeaseTasks(f.LeaseParams("w2", 1, f.round.value())); });
    CHECK(late.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(late.status().ToString().find("neither ANNOUNCED nor COLLECTING") != std::string::npos);
    CHECK(f.DumpNow() == before);
  }
}

STORE_TEST("An opening that is rolled back has not happened, and one that comes after it counts") {
  f.CreateRound({.num_tasks = 2, .state = RoundState::kAnnounced});
  const TaskRecord held = f.Lease("w1");
  const std::string before = f.DumpNow();
  REQUIRE(f.store().BeginBatch().ok());
  REQUIRE(f.store()
              .MoveRound({.round = f.round,
                          .from = RoundState::kAnnounced,
                          .to = RoundState::kCollecting,
                          .now = f.now,
                          .broadcast_digest = "abc",
                          .deadline_time = f.now + absl::Minutes(5)})
              .ok());
  REQUIRE(f.store()
              .RenewLease({.task = held.id,
                           .token = held.lease_token,
                           .progress = 1,
                           .expire_time = f.now + absl::Minutes(1),
                           .attempt_deadline_time_max = f.now + absl::Minutes(2)})
              .ok());
  REQUIRE(f.store()
              .RecordContribution({.task = held.id,
                                   .token = held.lease_token,
                                   .digest = "digest",
                                   .size_bytes = 1,
                                   .num_clients = 1,
                                   .now = f.now})
              .ok());
  f.store().RollbackBatch();
  CHECK(f.DumpNow() == before);
  CHECK(*f.store().GetBlobUse("abc") == TaskStore::BlobUse::kNone);
  CHECK(f.Contribute(held).status().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Open(f, "def", absl::Minutes(7)).ok());
  CHECK(f.Round().broadcast_digest == "def");
  CHECK(f.Round().deadline_time == f.now + absl::Minutes(7));
  CHECK(f.Task(0).attempt_deadline_time == held.attempt_deadline_time);
}

STORE_TEST("The broadcast of an announced round is in use from its opening to its end") {
  using Use = TaskStore::BlobUse;
  f.CreateRound({.state = RoundState::kAnnounced});
  CHECK(*f.store().GetBlobUse("abc") == Use::kNone);
  REQUIRE(Open(f, "abc", absl::Hours(1)).ok());
  CHECK(*f.store().GetBlobUse("abc") == Use::kCurrent);
  f.Reopen();
  CHECK(*f.store().GetBlobUse("abc") == Use::kCurrent);
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kCancelled).ok());
  CHECK(*f.store().GetBlobUse("abc") == Use::kFormer);
}

STORE_TEST("The deadline of an attempt is brought forward at a renewal, with or without progress, and never back") {
  f.CreateRound({.state = RoundState::kAnnounced});
  const TaskRecord held = f.Lease("w1");
  const auto at = [&](absl::Duration from_now) { return f.now + from_now; };
  REQUIRE(held.attempt_deadline_time == at(absl::Minutes(10)));
  // Later than it is: nothing.
  CHECK(Renew(f, held, 1, absl::Minutes(1), at(absl::Minutes(20)))->attempt_deadline_time == at(absl::Minutes(10)));
  const int64_t version = f.Round().version;
  CHECK(Renew(f, held, 1, absl::Minutes(5), at(absl::Minutes(20)))->expire_time == at(absl::Minutes(1)));
  CHECK(f.Round().version == version);
  // With progress, and beyond it.
  auto renewed = Renew(f, held, 2, absl::Minutes(9), at(absl::Minutes(6)));
  CHECK(renewed->attempt_deadline_time == at(absl::Minutes(6)));
  CHECK(renewed->expire_time == at(absl::Minutes(6)));
  // Without any: the lease ends with it, and is no longer otherwise.
  renewed = Renew(f, held, 2, absl::Minutes(9), at(absl::Minutes(3)));
  CHECK(renewed->attempt_deadline_time == at(absl::Minutes(3)));
  CHECK(renewed->expire_time == at(absl::Minutes(3)));
  CHECK(renewed->progress == 2);
  f.Reopen();
  CHECK(f.Task(0).attempt_deadline_time == at(absl::Minutes(3)));
  CHECK(f.Task(0).expire_time == at(absl::Minutes(3)));
  CHECK(*f.store().NextDueTime(f.now) == at(absl::Minutes(3)));
  CHECK(f.store().ListExpired(at(absl::Minutes(3)), 10)->size() == 1);
  CHECK(Renew(f, held, 3, absl::Minutes(9))->expire_time == at(absl::Minutes(3)));
}

STORE_TEST(
    "A deadline that is brought forward ends at the same time whoever is asked, however small the unit of time") {
  f.now += absl::Nanoseconds(1) / 4;
  f.CreateRound({.state = RoundState::kAnnounced});
  const TaskRecord held = f.Lease("w1");
  const auto renewed = Renew(f, held, 1, absl::Minutes(5), f.now + absl::Seconds(40) + absl::Nanoseconds(700));
  REQUIRE(renewed.ok());
  CHECK(renewed->attempt_deadline_time == f.Task(0).attempt_deadline_time);
  CHECK(renewed->expire_time == f.Task(0).expire_time);
  const auto opened = Open(f, "abc", absl::Minutes(5) + absl::Nanoseconds(700));
  CHECK(opened->deadline_time == f.Round().deadline_time);
  const std::string before = Describe(f.Task(0)) + Describe(f.Round());
  f.Reopen();
  CHECK(Describe(f.Task(0)) + Describe(f.Round()) == before);
  CHECK(*f.store().NextDueTime(f.now) == renewed->expire_time);
}

STORE_TEST("What waits in an announced round is counted by requirement, and is in no queue") {
  auto params = f.RoundParams({.num_tasks = 3, .state = RoundState::kAnnounced});
  params.tasks[1].requirement = "gpu";
  REQUIRE(f.Do([&](TaskStore& s) { return s.CreateRound(params); }).ok());
  using Counts = std::vector<int64_t>;
  const auto counts = [&] { return *f.store().CountQueued(f.round); };
  CHECK(counts() == Counts{2, 1});
  f.Lease("w1");
  CHECK(counts() == Counts{1, 1});
  f.Reopen();
  CHECK(counts() == Counts{1, 1});
  auto queue = *f.store().DescribeQueue("default", f.now);
  CHECK(queue.tasks == TaskCounts{});
  CHECK(queue.num_live_rounds == 1);
  CHECK(queue.oldest_available_time == absl::InfiniteFuture());
  REQUIRE(Open(f, "abc", absl::Hours(1)).ok());
  CHECK(counts() == Counts{1, 1});
  queue = *f.store().DescribeQueue("default", f.now);
  CHECK(queue.tasks == TaskCounts{.queued = 2, .leased = 1});
  CHECK(queue.oldest_available_time == f.now);
}

STORE_TEST("A worker's share of a round counts what it prepares") {
  f.CreateRound({.num_tasks = 4, .state = RoundState::kAnnounced});
  auto params = f.LeaseParams("w1", 3);
  params.per_worker_max = 2;
  CHECK(f.LeaseUpTo(params).size() == 2);
  params.tokens = {LeaseToken("x")};
  CHECK(f.LeaseUpTo(params).empty());
  REQUIRE(Open(f, "abc", absl::Hours(1)).ok());
  CHECK(f.LeaseUpTo(params).empty());
  f.Reopen();
  CHECK(f.LeaseUpTo(params).empty());
}

STORE_TEST("After a clock was set back nothing of an announced round lies further ahead than it can") {
  f.CreateRound({.num_tasks = 2, .state = RoundState::kAnnounced});
  const TaskRecord held = f.Lease("w1");
  const auto limit = [&] {
    return f.Do([&](TaskStore& s) {
      return s.LimitTimes({.round = f.round,
                           .now = f.now,
                           .deadline_time_max = f.now + absl::Minutes(30),
                           .expire_time_max = f.now + absl::Seconds(20),
                           .attempt_deadline_time_max = f.now + absl::Minutes(8),
                           .available_time_max = f.now + absl::Minutes(1)});
    });
  };
  CHECK(*limit() == true);
  CHECK(*limit() == false);
  f.Reopen();
  CHECK(f.Round().state == RoundState::kAnnounced);
  CHECK(f.Round().deadline_time == f.now + absl::Minutes(30));
  CHECK(f.Task(0).expire_time == f.now + absl::Seconds(20));
  CHECK(f.Task(0).attempt_deadline_time == f.now + absl::Minutes(8));
  CHECK(f.Task(0).lease_token == held.lease_token);
  CHECK(*f.store().NextDueTime(f.now) == f.now + absl::Seconds(20));
}

}  // namespace
}  // namespace sheaf
