// Rounds, workers, and batches.
#include "storage/transitions.h"
#include "tests/conformance/store_fixture.h"

namespace sheaf {
namespace {

STORE_TEST("A created round is read back as it was given, with its tasks queued") {
  RoundRecord created = f.CreateRound({.num_tasks = 3});
  CHECK(created.tasks == TaskCounts{.queued = 3});
  CHECK(created.version == 1);
  CHECK(created.spec == "spec of r-one");
  CHECK(created.end_time == absl::InfiniteFuture());
  CHECK(Describe(f.Round()) == Describe(created));
  CHECK(f.Task(2).payload == "payload 2");
  CHECK(f.Task(2).data_selector == "selector 2");
  CHECK(f.Task(2).available_time == f.now);
  CHECK(f.Task(2).state == TaskState::kQueued);
}

STORE_TEST("The same request creates one round and is told of it again") {
  f.CreateRound({.id = "r-one", .request_id = "q"});
  auto again = f.Do([&](TaskStore& s) { return s.CreateRound(f.RoundParams({.id = "r-two", .request_id = "q"})); });
  REQUIRE(again.ok());
  CHECK_FALSE(again->created);
  CHECK(again->round.id == RoundId("r-one"));
  CHECK(f.store().GetRound(RoundId("r-two")).status().code() == absl::StatusCode::kNotFound);
}

STORE_TEST("Where no round may be created, what an earlier request created is still told") {
  f.CreateRound({.id = "r-one", .request_id = "q"});
  const auto ask = [&](const std::string& request_id) {
    return f.Do([&](TaskStore& s) {
      TaskStore::CreateRoundParams params = f.RoundParams({.id = "r-two", .request_id = request_id});
      params.may_create = false;
      return s.CreateRound(params);
    });
  };
  CHECK(ask("q")->round.id == RoundId("r-one"));
  CHECK(ask("another").status().code() == absl::StatusCode::kNotFound);
  CHECK(f.store().GetRound(RoundId("r-two")).status().code() == absl::StatusCode::kNotFound);
}

STORE_TEST("A round id taken by another request is refused") {
  f.CreateRound({});
  auto second = f.Do([&](TaskStore& s) { return s.CreateRound(f.RoundParams({.request_id = "another"})); });
  CHECK(second.status().code() == absl::StatusCode::kAlreadyExists);
}

// The tasks of `whole`, `of_each` in each batch; the rest stays for CreateRound.
absl::Status StageAll(StoreFixture& f, TaskStore::CreateRoundParams& whole, size_t of_each) {
  const std::vector<std::string> requirements = {"", "gpu=yes"};
  while (whole.tasks.size() > of_each) {
    absl::Status staged = f.Do([&](TaskStore& s) {
      return s.StageTasks({.round = whole.round.id,
                           .create_time = whole.round.create_time,
                           .requirements = requirements,
                           .num_staged = whole.num_staged,
                           .tasks = std::span(whole.tasks).first(of_each)});
    });
    if (!staged.ok()) return staged;
    whole.num_staged += static_cast<int64_t>(of_each);
    whole.tasks.erase(whole.tasks.begin(), whole.tasks.begin() + static_cast<std::ptrdiff_t>(of_each));
  }
  return absl::OkStatus();
}

TaskStore::CreateRoundParams LargeRound(StoreFixture& f, const std::string& id) {
  TaskStore::CreateRoundParams params = f.RoundParams({.id = id, .num_tasks = 8});
  params.tasks[1].requirement = params.tasks[6].requirement = "gpu=yes";
  params.round.task_digests = "digests";
  return params;
}

STORE_TEST("A round whose tasks were staged over several batches is as one that was created at once") {
  const TaskStore::CreateRoundParams whole = LargeRound(f, "r-one");
  TaskStore::CreateRoundParams staged = whole;
  const std::string before = f.DumpNow();
  REQUIRE(StageAll(f, staged, 3).ok());
  CHECK(staged.num_staged == 6);
  CHECK(f.DumpNow() == before);
  CHECK(absl::IsNotFound(f.store().GetTask({RoundId("r-one"), 0}).status()));
  const auto created = f.Do([&](TaskStore& s) { return s.CreateRound(staged); });
  REQUIRE(created.ok());
  CHECK(created->created);
  CHECK(created->round.task_digests == "digests");
  std::string dump = f.DumpNow();
  f.Reopen();
  CHECK((f.DumpNow() == dump || f.DumpNow() == before));
  CHECK(f.store().CountQueued(RoundId("r-one")).value_or(std::vector<int64_t>{6, 2}) == std::vector<int64_t>{6, 2});

  TaskStore::CreateRoundParams other = LargeRound(f, "r-two");
  REQUIRE(f.Do([&](TaskStore& s) { return s.CreateRound(other); }).ok());
  for (int i = 0; i < 8; ++i) {
    TaskRecord one = *f.store().GetTask({RoundId("r-one"), i});
    const TaskRecord two = *f.store().GetTask({RoundId("r-two"), i});
    one.id = two.id;
    CHECK(Describe(one) == Describe(two));
  }
  CHECK(f.Lease("w1").payload == "payload 0");
}

STORE_TEST("What was staged is void after a batch that failed, and where the round is not created") {
  TaskStore::CreateRoundParams whole = LargeRound(f, "r-one");
  whole.round.request_id = "q";
  const auto stage = [&](int64_t num_staged) {
    return f.store().StageTasks({.round = whole.round.id,
                                 .create_time = whole.round.create_time,
                                 .requirements = std::vector<std::string>{"", "gpu=yes"},
                                 .num_staged = num_staged,
                                 .tasks = std::span(whole.tasks).first(2)});
  };
  REQUIRE(f.Do([&](TaskStore&) { return stage(0); }).ok());
  CHECK(absl::IsFailedPrecondition(f.Do([&](TaskStore&) { return stage(0); })));
  REQUIRE(f.store().BeginBatch().ok());
  REQUIRE(stage(2).ok());
  f.store().RollbackBatch();
  CHECK(absl::IsFailedPrecondition(f.Do([&](TaskStore&) { return stage(2); })));
  CHECK(absl::IsFailedPrecondition(f.Do([&](TaskStore& s) {
                                      TaskStore::CreateRoundParams params = whole;
                                      params.num_staged = 2;
                                      return s.CreateRound(params);
                                    }).status()));
  // Begun again, but another has come first.
  REQUIRE(f.Do([&](TaskStore&) { return stage(0); }).ok());
  f.CreateRound({.id = "r-two", .request_id = "q"});
  const auto second = f.Do([&](TaskStore& s) {
    TaskStore::CreateRoundParams params = whole;
    params.num_staged = 2;
    return s.CreateRound(params);
  });
  REQUIRE(second.ok());
  CHECK_FALSE(second->created);
  CHECK(absl::IsFailedPrecondition(f.Do([&](TaskStore&) { return stage(2); })));
  // What is void is deleted, and what is staged is not.
  REQUIRE(f.Do([&](TaskStore&) { return stage(0); }).ok());
  while (!f.Do([&](TaskStore& s) { return s.DeleteEndedRounds({.keep_max = 100, .tasks_limit = 1}); })->is_done) {
  }
  CHECK(f.Do([&](TaskStore&) { return stage(2); }).ok());
}

STORE_TEST("A round without id or request, or born in a late state, is refused and named") {
  for (auto options : {StoreFixture::RoundOptions{.id = ""}, {.state = RoundState::kSealing}}) {
    std::string before = f.DumpNow();
    auto refused = f.Do([&](TaskStore& s) { return s.CreateRound(f.RoundParams(options)); });
    CHECK(refused.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(f.DumpNow() == before);
  }
}

STORE_TEST("What does not exist is NOT_FOUND and named") {
  f.CreateRound({});
  auto round = f.store().GetRound(RoundId("r-none"));
  CHECK(round.status().code() == absl::StatusCode::kNotFound);
  CHECK(round.status().ToString().find("r-none") != std::string::npos);
  for (TaskId id : {TaskId{f.round, 7}, TaskId{f.round, -1}, TaskId{RoundId("r-none"), 0}}) {
    CHECK(f.store().GetTask(id).status().code() == absl::StatusCode::kNotFound);
    CHECK(f.store().GetTaskState(id).status().code() == absl::StatusCode::kNotFound);
    CHECK(f.store().ListAttempts(id).status().code() == absl::StatusCode::kNotFound);
    CHECK(f.Do([&](TaskStore& s) { return s.RequeueTask({.task = id, .now = f.now}); }).status().code() ==
          absl::StatusCode::kNotFound);
    CHECK(f.Do([&](TaskStore& s) { return s.RenewLease({.task = id}); }).status().code() ==
          absl::StatusCode::kNotFound);
    CHECK(f.Do([&](TaskStore& s) { return s.RecordContribution({.task = id}); }).status().code() ==
          absl::StatusCode::kNotFound);
    CHECK(f.Do([&](TaskStore& s) {
             return s.EndAttempt({.task = id, .outcome = AttemptOutcome::kLost, .to = TaskState::kQueued});
           })
              .status()
              .code() == absl::StatusCode::kNotFound);
  }
  CHECK(f.store().ListContributions(RoundId("r-none"), 0, 10).status().code() == absl::StatusCode::kNotFound);
  CHECK(f.store().ListRequirements(RoundId("r-none")).status().code() == absl::StatusCode::kNotFound);
}

STORE_TEST("A round ends with its aggregate, and its unneeded tasks are cancelled") {
  f.CreateRound({.num_tasks = 3});
  TaskRecord held = f.Lease("w1");
  REQUIRE(f.Contribute(f.Lease("w2")).ok());
  f.now += absl::Seconds(1);
  auto sealing = f.Move(RoundState::kCollecting, RoundState::kSealing);
  REQUIRE(sealing.ok());
  CHECK(sealing->tasks == TaskCounts{.succeeded = 1, .cancelled = 2});
  CHECK(sealing->end_time == absl::InfiniteFuture());
  CHECK(f.Task(held.id.index).state == TaskState::kCancelled);
  CHECK(f.Task(held.id.index).lease_token.empty());
  CHECK(f.Attempts(held.id.index)[0].outcome == AttemptOutcome::kCancelled);
  CHECK(f.Attempts(held.id.index)[0].end_time == f.now);
  CHECK(f.store().ListLeases("default", WorkerName("w1"))->empty());

  f.now += absl::Seconds(1);
  auto done = f.Move(RoundState::kSealing, RoundState::kSucceeded);
  REQUIRE(done.ok());
  CHECK(done->aggregate == "the aggregate");
  CHECK(done->error.empty());
  CHECK(done->end_time == f.now);
  CHECK(Describe(f.Round()) == Describe(*done));
}

STORE_TEST("A cancelled round keeps the reason and no aggregate") {
  f.CreateRound({});
  auto cancelled = f.Move(RoundState::kCollecting, RoundState::kCancelled);
  REQUIRE(cancelled.ok());
  CHECK(cancelled->error == "why");
  CHECK(cancelled->aggregate.empty());
}

STORE_TEST("An announced round that is cancelled cancels its tasks") {
  f.CreateRound({.num_tasks = 2, .state = RoundState::kAnnounced});
  auto cancelled = f.Move(RoundState::kAnnounced, RoundState::kCancelled);
  REQUIRE(cancelled.ok());
  CHECK(cancelled->tasks == TaskCounts{.cancelled = 2});
}

STORE_TEST("A move from a state the round is not in changes nothing and says where it is") {
  f.CreateRound({});
  std::string before = f.DumpNow();
  auto refused = f.Move(RoundState::kSealing, RoundState::kSucceeded);
  CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(refused.status().ToString().find("COLLECTING") != std::string::npos);
  CHECK(f.DumpNow() == before);
}

STORE_TEST("A move that is not in the table is refused") {
  f.CreateRound({});
  CHECK(f.Move(RoundState::kCollecting, RoundState::kSucceeded).status().code() == absl::StatusCode::kInvalidArgument);
}

STORE_TEST("Every change of a round makes its version grow, and nothing else does") {
  f.CreateRound({.num_tasks = 2});
  int64_t version = f.Round().version;
  auto grew = [&] { return f.Round().version == std::exchange(version, f.Round().version) + 1; };
  TaskRecord task = f.Lease("w1");
  CHECK(grew());
  REQUIRE(f.End(task, AttemptOutcome::kReleased, TaskState::kQueued).ok());
  CHECK(grew());
  TaskRecord second = f.Lease("w1");
  CHECK(grew());
  REQUIRE(f.Contribute(second).ok());
  CHECK(grew());
  REQUIRE(
      f.Do([&](TaskStore& s) { return s.SaveCheckpoint({.round = f.round, .checkpoint = "c", .sequence = 1}); }).ok());
  CHECK(grew());
  f.Saw("w1");
  f.LeaseUpTo(f.LeaseParams("w1", 0));
  CHECK(f.Round().version == version);
}

STORE_TEST("Rounds are listed newest first, by population, state and job, in pages") {
  for (int i = 0; i < 5; ++i) {
    f.CreateRound(
        {.id = fmt::format("r-{}", i), .population = i == 3 ? "other" : "default", .job = i == 1 ? "j" : "k"});
    if (i != 1) f.now += absl::Seconds(1);
  }
  auto ids = [&](const TaskStore::ListRoundsParams& params) {
    std::string found;
    auto listed = *f.store().ListRounds(params);
    for (const RoundRecord& round : listed) found += round.id.value() + " ";
    return found;
  };
  CHECK(ids({}) == "r-4 r-3 r-2 r-1 r-0 ");
  CHECK(ids({.limit = 2}) == "r-4 r-3 ");
  CHECK(ids({.after = RoundId("r-3"), .limit = 2}) == "r-2 r-1 ");
  CHECK(ids({.population = "other"}) == "r-3 ");
  CHECK(ids({.job = "j"}) == "r-1 ");
  CHECK(ids({.states = {RoundState::kSealing, RoundState::kFailed}}).empty());
  CHECK(ids({.states = {RoundState::kSealing, RoundState::kCollecting}, .limit = 1}) == "r-4 ");
}

STORE_TEST("A broadcast is in use until the last round that names it has ended") {
  using Use = TaskStore::BlobUse;
  f.CreateRound({.broadcast = "abc"});
  CHECK(*f.store().GetBlobUse("abc") == Use::kCurrent);
  CHECK(*f.store().GetBlobUse("def") == Use::kNone);
  CHECK(*f.store().GetBlobUse("") == Use::kNone);
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kSealing).ok());
  CHECK(*f.store().GetBlobUse("abc") == Use::kCurrent);
  REQUIRE(f.Move(RoundState::kSealing, RoundState::kFailed).ok());
  CHECK(*f.store().GetBlobUse("abc") == Use::kFormer);
  CHECK(*f.store().ListFormerBroadcasts() == std::vector<std::string>{"abc"});
  f.CreateRound({.id = "r-two", .broadcast = "abc"});
  CHECK(*f.store().GetBlobUse("abc") == Use::kCurrent);
  CHECK(f.store().ListFormerBroadcasts()->empty());
}

STORE_TEST("The broadcasts of which all rounds have ended are listed, each once") {
  const auto end = [&](const char* id, RoundState as) {
    f.round = RoundId(id);
    REQUIRE(f.Move(RoundState::kCollecting, RoundState::kSealing).ok());
    REQUIRE(f.Move(RoundState::kSealing, as).ok());
  };
  CHECK(f.store().ListFormerBroadcasts()->empty());
  f.CreateRound({.id = "r-1", .broadcast = "b"});
  f.CreateRound({.id = "r-2", .broadcast = "b"});
  f.CreateRound({.id = "r-3", .broadcast = "a"});
  f.CreateRound({.id = "r-4", .broadcast = "digest of the aggregate"});
  f.CreateRound({.id = "r-5", .broadcast = ""});
  f.CreateRound({.id = "r-6", .broadcast = "c"});
  for (const char* id : {"r-1", "r-3", "r-5"}) end(id, RoundState::kFailed);
  // r-2 still has "b".
  CHECK(*f.store().ListFormerBroadcasts() == std::vector<std::string>{"a"});
  end("r-2", RoundState::kFailed);
  // It releases what was its broadcast.
  end("r-4", RoundState::kSucceeded);
  CHECK(*f.store().ListFormerBroadcasts() == std::vector<std::string>{"a", "b"});
  f.Reopen();
  CHECK(*f.store().ListFormerBroadcasts() == std::vector<std::string>{"a", "b"});
}

STORE_TEST("The aggregate of a round stays in use, also where a later round broadcasts it") {
  using Use = TaskStore::BlobUse;
  f.CreateRound({.broadcast = "digest of the aggregate"});
  REQUIRE(f.Move(RoundState::kCollecting, RoundState::kSealing).ok());
  REQUIRE(f.Move(RoundState::kSealing, RoundState::kSucceeded).ok());
  CHECK(*f.store().GetBlobUse("digest of the aggregate") == Use::kCurrent);
  f.Reopen();
  CHECK(*f.store().GetBlobUse("digest of the aggregate") == Use::kCurrent);
}

STORE_TEST("A batch that is rolled back has not happened") {
  f.Saw("w1");
  f.CreateRound({.num_tasks = 4});
  TaskRecord first = f.Lease("w1");
  std::string before = f.DumpNow();
  TaskStore& store = f.store();
  REQUIRE(store.BeginBatch().ok());
  REQUIRE(store.CreateRound(f.RoundParams({.id = "r-two", .num_tasks = 2})).ok());
  REQUIRE(store.LeaseTasks(f.LeaseParams("w1", 2)).ok());
  REQUIRE(store.LeaseTasks(f.LeaseParams("w2", 1, "r-two")).ok());
  REQUIRE(store.RecordContribution({.task = first.id, .token = first.lease_token, .now = f.now}).ok());
  REQUIRE(store.SawWorker({.name = WorkerName("w9"), .population = "default", .now = f.now}).ok());
  REQUIRE(store.SetWorkerDraining({.name = WorkerName("w1"), .population = "default", .is_draining = true}).ok());
  REQUIRE(
      store.MoveRound({.round = f.round, .from = RoundState::kCollecting, .to = RoundState::kCancelled, .now = f.now})
          .ok());
  CHECK(f.DumpNow() != before);
  store.RollbackBatch();
  CHECK(f.DumpNow() == before);
  CHECK(f.LeaseUpTo(f.LeaseParams("w2", 9)).size() == 3);
}

STORE_TEST("Operations of a batch see those before them") {
  TaskStore& store = f.store();
  REQUIRE(store.BeginBatch().ok());
  REQUIRE(store.CreateRound(f.RoundParams({.num_tasks = 2})).ok());
  auto leased = store.LeaseTasks(f.LeaseParams("w1", 1));
  REQUIRE(leased.ok());
  CHECK(store.GetRound(f.round)->tasks == TaskCounts{.queued = 1, .leased = 1});
  CHECK((*store.ListRounds({}))[0].tasks == TaskCounts{.queued = 1, .leased = 1});
  CHECK(store.ListLeases("default", WorkerName("w1"))->size() == 1);
  CHECK(store.DescribeQueue("default", f.now)->tasks.leased == 1);
  REQUIRE(store.CommitBatch().ok());
}

STORE_TEST(
    "All that one batch does to a task is there after it, whatever was looked at meanwhile, and after a restart") {
  for (const bool looks : {false, true}) {
    f.round = RoundId(looks ? "r-looked-at" : "r-one");
    f.Saw("w1");
    f.CreateRound({.id = f.round.value(), .num_tasks = 4});
    TaskStore& s = f.store();
    const auto look = [&] {
      if (looks) CHECK(s.ListTasks({.round = f.round})->size() == 4);
    };
    const auto end = [&](const TaskRecord& task, AttemptOutcome outcome, TaskState to, absl::Duration delay) {
      look();
      REQUIRE(s.EndAttempt({.task = task.id,
                            .token = task.lease_token,
                            .outcome = outcome,
                            .to = to,
                            .available_time = f.now + delay,
                            .error = "it broke",
                            .now = f.now})
                  .ok());
    };
    const auto lease = [&](int32_t index) {
      look();
      auto leased = s.LeaseTasks(f.LeaseParams("w1", 1, f.round.value()));
      REQUIRE(leased.ok());
      REQUIRE(leased->size() == 1);
      CHECK((*leased)[0].id.index == index);
      CHECK((*leased)[0].payload == fmt::format("payload {}", index));
      return (*leased)[0];
    };
    REQUIRE(s.BeginBatch().ok());
    // 0 fails, and succeeds when it is tried again.
    end(lease(0), AttemptOutcome::kFailed, TaskState::kQueued, absl::ZeroDuration());
    const TaskRecord again = lease(0);
    CHECK(again.num_attempts == 2);
    CHECK(again.last_error == "it broke");
    look();
    REQUIRE(
        s.RecordContribution({.task = again.id, .token = again.lease_token, .digest = "digest", .now = f.now}).ok());
    CHECK(s.GetTaskState(again.id)->state == TaskState::kSucceeded);
    // 1 makes progress, is lost, and waits.
    const TaskRecord lost = lease(1);
    look();
    REQUIRE(s.RenewLease({.task = lost.id, .token = lost.lease_token, .progress = 7, .expire_time = f.now}).ok());
    end(lost, AttemptOutcome::kLost, TaskState::kQueued, absl::Seconds(5));
    // 2 is buried and queued again; then it is held, and makes progress.
    end(lease(2), AttemptOutcome::kFailed, TaskState::kBuried, absl::ZeroDuration());
    REQUIRE(s.RequeueTask({.task = {f.round, 2}, .now = f.now}).ok());
    const TaskRecord held = lease(2);
    look();
    REQUIRE(s.RenewLease(
                 {.task = held.id, .token = held.lease_token, .progress = 3, .expire_time = f.now + absl::Minutes(1)})
                .ok());
    REQUIRE(s.CommitBatch().ok());

    CHECK(f.Attempts(0).size() == 2);
    CHECK(f.Task(0).state == TaskState::kSucceeded);
    CHECK(f.Task(1).available_time == f.now + absl::Seconds(5));
    CHECK(f.Task(1).num_lost == 1);
    CHECK(f.Task(2).progress == 3);
    CHECK(f.Task(2).num_failed == 0);
    CHECK(f.Task(3).num_attempts == 0);
    const std::string before = f.DumpNow();
    f.Reopen();
    CHECK(f.DumpNow() == before);
    // What is queued is handed out as before.
    CHECK(f.LeaseUpTo(f.LeaseParams("w2", 9, f.round.value())).size() == 1);
    f.now += absl::Seconds(5);
    CHECK(f.LeaseUpTo(f.LeaseParams("w2", 9, f.round.value())).size() == 1);
  }
}

STORE_TEST("A batch that was rolled back leaves nothing to the next one") {
  f.CreateRound({.num_tasks = 2});
  const TaskRecord held = f.Lease("w1");
  const std::string before = f.DumpNow();
  TaskStore& s = f.store();
  REQUIRE(s.BeginBatch().ok());
  REQUIRE(s.LeaseTasks(f.LeaseParams("w2")).ok());
  REQUIRE(s.RecordContribution({.task = held.id, .token = held.lease_token, .now = f.now}).ok());
  s.RollbackBatch();
  REQUIRE(s.BeginBatch().ok());
  REQUIRE(s.CommitBatch().ok());
  CHECK(f.DumpNow() == before);
  f.Reopen();
  CHECK(f.DumpNow() == before);
  CHECK(f.Contribute(held)->sequence == 1);
}

STORE_TEST("What was committed is there after a restart") {
  f.Saw("w1");
  f.CreateRound({.num_tasks = 4});
  REQUIRE(f.Contribute(f.Lease("w1")).ok());
  REQUIRE(f.End(f.Lease("w1"), AttemptOutcome::kFailed, TaskState::kQueued, absl::Seconds(5)).ok());
  f.Lease("w1");
  std::string before = f.DumpNow();
  f.Reopen();
  CHECK(f.DumpNow() == before);
}

STORE_TEST("A worker is created when first seen and refreshed afterwards, per population") {
  f.Saw("w1");
  f.now += absl::Seconds(9);
  f.Saw("w1");
  f.Saw("w1", "other");
  WorkerRecord worker = f.Worker("w1");
  CHECK(worker.last_seen_time - worker.first_seen_time == absl::Seconds(9));
  CHECK(worker.description == "a worker");
  CHECK(f.store().ListWorkers({})->size() == 2);
  CHECK(f.store().ListWorkers({.population = "other"})->size() == 1);
  CHECK(f.store().ListWorkers({.population = "third"})->empty());
}

STORE_TEST("Draining is remembered when the worker is seen again") {
  f.Saw("w1");
  CHECK(f.Do([&](TaskStore& s) {
           return s.SetWorkerDraining({.name = WorkerName("w1"), .population = "default", .is_draining = true});
         })->is_draining);
  f.Saw("w1");
  CHECK(f.Worker("w1").is_draining);
  CHECK(f.Do([&](TaskStore& s) {
           return s.SetWorkerDraining({.name = WorkerName("w1"), .population = "other", .is_draining = true});
         })
            .status()
            .code() == absl::StatusCode::kNotFound);
}

STORE_TEST("Workers are listed by name, in pages") {
  for (const char* name : {"b", "c", "a"}) f.Saw(name);
  auto page = *f.store().ListWorkers({.limit = 2});
  REQUIRE(page.size() == 2);
  CHECK(page[1].name == WorkerName("b"));
  page = *f.store().ListWorkers({.after = page[1].name, .limit = 2});
  REQUIRE(page.size() == 1);
  CHECK(page[0].name == WorkerName("c"));
}

}  // namespace
}  // namespace sheaf
