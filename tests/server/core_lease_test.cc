// Leases, verdicts and long polls, seen through WorkService.Sync.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/retry_hint.h"
#include "proto/time.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Verdict = v1::ResultVerdict;

v1::SyncRequest HandIn(const std::string& worker, const v1::TaskResult& result) {
  v1::SyncRequest request = Ask(worker, 0);
  *request.add_results() = result;
  return request;
}

v1::SyncRequest AskAndWait(const std::string& worker, absl::Duration wait) {
  v1::SyncRequest request = Ask(worker, 1);
  *request.mutable_wait() = ToProto(wait);
  return request;
}

TEST_CASE("A lease that expired is handed to the next worker, and the first one's result is not counted") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(1));
  const v1::Lease first = server.Sync(Ask("w1", 1)).leases(0);
  server.Advance(absl::Seconds(29));
  REQUIRE(server.Sync(Ask("w2", 1)).leases().empty());
  server.Advance(absl::Seconds(1));
  const v1::Lease second = server.Sync(Ask("w2", 1)).leases(0);
  REQUIRE(second.task() == first.task());
  REQUIRE(second.attempt() == 2);
  REQUIRE(server.Sync(HandIn("w1", Result(first, 1))).verdicts(0).verdict() == Verdict::LEASE_LOST);
  REQUIRE(server.Sync(HandIn("w2", Result(second, 1))).verdicts(0).verdict() == Verdict::ACCEPTED);
  REQUIRE(server.GetTask(first.task()).num_lost() == 1);
  REQUIRE(server.GetRound(round).aggregate().num_contributions() == 1);
}

TEST_CASE("A lease is renewed by progress and only by progress") {
  CoreFederation server;
  server.CreateRound(SumRound(1));
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  v1::SyncRequest renew = Ask("w", 0);
  *renew.add_held() = Held(lease, 1);
  server.Advance(absl::Seconds(20));
  REQUIRE(FromProto(server.Sync(renew).held(0).remaining()) == absl::Seconds(30));
  server.Advance(absl::Seconds(20));
  REQUIRE(FromProto(server.Sync(renew).held(0).remaining()) == absl::Seconds(10));
  server.Advance(absl::Seconds(10));
  REQUIRE(server.Sync(renew).held(0).verdict() == v1::LeaseUpdate::LOST);
}

TEST_CASE("A result that there is no room for does not keep the other leases of its call from being renewed") {
  Limits limits;
  limits.spool_bytes_max = 1;
  CoreFederation server(limits);
  server.CreateRound(SumRound(2));
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  REQUIRE(granted.leases_size() == 2);
  for (int i = 1; i <= 4; ++i) {
    server.Advance(absl::Seconds(20));
    v1::SyncRequest request = HandIn("w", Result(granted.leases(0), 1));
    *request.add_held() = Held(granted.leases(1), i);
    const absl::Status refused = server.Call<v1::SyncResponse>("WorkService/Sync", request).status();
    CHECK(absl::IsResourceExhausted(refused));
    CHECK(RetryAfter(refused).has_value());
    // As a worker does that minds both: the result is kept, and its lease with it.
    v1::SyncRequest renewal = Ask("w", 0);
    *renewal.add_held() = Held(granted.leases(0), i);
    CHECK(server.Sync(renewal).held(0).verdict() == v1::LeaseUpdate::HELD);
  }
  CHECK(server.GetTask(granted.leases(1).task()).state() == v1::LEASED);
  CHECK(server.GetTask(granted.leases(1).task()).num_lost() == 0);
}

TEST_CASE("The same result handed in twice is counted once") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(2));
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  REQUIRE(server.Sync(HandIn("w", Result(lease, 1))).verdicts(0).verdict() == Verdict::ACCEPTED);
  REQUIRE(server.Sync(HandIn("w", Result(lease, 1))).verdicts(0).verdict() == Verdict::DUPLICATE);
  REQUIRE(server.GetRound(round).num_contributions() == 1);
}

TEST_CASE("A result under a lease that was lost is no duplicate of what came instead") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(2));
  const v1::Lease first = server.Sync(Ask("w1", 1)).leases(0);
  server.Advance(absl::Seconds(30));
  const v1::SyncResponse granted = server.Sync(Ask("w2", 2));
  REQUIRE(granted.leases_size() == 2);
  for (const v1::Lease& lease : granted.leases()) {
    if (lease.task() != first.task()) continue;
    REQUIRE(server.Sync(HandIn("w2", Result(lease, 1))).verdicts(0).verdict() == Verdict::ACCEPTED);
    REQUIRE(server.Sync(HandIn("w2", Result(lease, 1))).verdicts(0).verdict() == Verdict::DUPLICATE);
  }
  // Its work was not counted, and it must not believe so.
  REQUIRE(server.Sync(HandIn("w1", Result(first, 1))).verdicts(0).verdict() == Verdict::LEASE_LOST);
  REQUIRE(server.GetRound(round).num_contributions() == 1);
}

TEST_CASE("A lease is not sent again to a worker of the same name that is somebody else's") {
  CoreFederation server;
  server.CreateRound(SumRound(1));
  const auto identity = [](const std::string& name) {
    auto who = std::make_shared<Identity>();
    who->name = name;
    who->lease_tag = "." + name;
    return who;
  };
  // Leases that are sent to the worker "w" of this identity.
  const auto leases_of = [&server](const std::shared_ptr<const Identity>& who) {
    const v1::SyncRequest request = Ask("w", 1);
    std::vector<v1::Lease> leases;
    server.Post([&](absl::Time now) {
      server.core().sync().Answer(request, CallId(), who, now,
                                  [&leases](const absl::StatusOr<v1::SyncResponse>& answer) {
                                    if (answer.ok()) leases.assign(answer->leases().begin(), answer->leases().end());
                                  });
    });
    server.Run();
    return leases;
  };
  const auto owner = identity("owner"), other = identity("other");
  const std::vector<v1::Lease> granted = leases_of(owner);
  REQUIRE(granted.size() == 1);
  // The answer was lost: it comes again.
  REQUIRE(leases_of(owner).size() == 1);
  // After a restart nobody knows whose the name was.
  server.CrashAndRestart();
  CHECK(leases_of(other).empty());
  REQUIRE(leases_of(owner).size() <= 1);
}

TEST_CASE("A result under a token that was never given changes nothing") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(1));
  v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  const std::string etag = server.GetRound(round).etag();
  lease.set_lease_token("forged");
  REQUIRE(server.Sync(HandIn("thief", Result(lease, 1))).verdicts(0).verdict() == Verdict::LEASE_LOST);
  REQUIRE(server.GetRound(round).etag() == etag);
  lease.set_task("r-nowhere1/0");
  REQUIRE(server.Sync(HandIn("thief", Result(lease, 1))).verdicts(0).verdict() == Verdict::UNKNOWN_TASK);
}

TEST_CASE("A worker that is gone while it waits is given nothing, and the task goes to the next") {
  CoreFederation server;
  const auto answer = server.CallLater<v1::SyncResponse>("WorkService/Sync", AskAndWait("gone", absl::Seconds(20)));
  REQUIRE_FALSE(answer->has_value());
  server.AbandonmentOfNewestCall()();
  server.Run();
  REQUIRE(answer->has_value());
  REQUIRE(absl::IsCancelled((*answer)->status()));
  server.CreateRound(SumRound(1));
  const v1::SyncResponse next = server.Sync(Ask("next", 1));
  REQUIRE(next.leases_size() == 1);
  REQUIRE(next.leases(0).attempt() == 1);
}

TEST_CASE("News that an older call of a worker is gone does not end its newer one") {
  CoreFederation server;
  const auto older = server.CallLater<v1::SyncResponse>("WorkService/Sync", AskAndWait("w", absl::Seconds(20)));
  const std::function<void()> abandon_older = server.AbandonmentOfNewestCall();
  const auto newer = server.CallLater<v1::SyncResponse>("WorkService/Sync", AskAndWait("w", absl::Seconds(20)));
  REQUIRE(older->has_value());
  abandon_older();
  server.Run();
  REQUIRE_FALSE(newer->has_value());
  server.CreateRound(SumRound(1));
  REQUIRE(newer->has_value());
  REQUIRE((**newer)->leases_size() == 1);
}

TEST_CASE("Nothing crosses populations") {
  CoreFederation server;
  server.CreateRound(SumRound(1));
  v1::SyncRequest foreign = Ask("w", 1);
  foreign.set_population("other");
  REQUIRE(server.Sync(foreign).leases().empty());
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  v1::SyncRequest stolen = HandIn("w", Result(lease, 1));
  stolen.set_population("other");
  REQUIRE(server.Sync(stolen).verdicts(0).verdict() == Verdict::UNKNOWN_TASK);
}

TEST_CASE("The leases of a worker of one population take no room from its namesake in another") {
  Limits limits;
  limits.leases_per_worker_max = 2;
  CoreFederation server(limits);
  v1::SyncRequest asks[2];
  for (int i = 0; i < 2; ++i) {
    v1::RoundSpec spec = SumRound(3);
    spec.set_population(i == 0 ? "left" : "right");
    server.CreateRound(spec);
    asks[i] = Ask("w", 3);
    asks[i].set_population(spec.population());
  }
  CHECK(server.Sync(asks[0]).leases_size() == 2);
  CHECK(server.Sync(asks[1]).leases_size() == 2);
  v1::ListWorkersRequest request;
  request.set_population("left");
  const auto workers = server.Call<v1::ListWorkersResponse>("InspectionService/ListWorkers", request);
  REQUIRE(workers->workers_size() == 1);
  CHECK(workers->workers(0).num_leased() == 2);
}

TEST_CASE("Of a task that is given back again and again the newest attempts are shown") {
  CoreFederation server;
  server.CreateRound(SumRound(1));
  v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  for (int i = 0; i < 1500; ++i) {
    v1::SyncRequest request = Ask("w", 1);
    request.add_results()->set_task(lease.task());
    request.mutable_results(0)->set_lease_token(lease.lease_token());
    request.mutable_results(0)->mutable_release()->set_reason("not now");
    lease = server.Sync(request).leases(0);
  }
  const v1::Task task = server.GetTask(lease.task());
  CHECK(task.num_attempts() == 1501);
  REQUIRE(task.attempts_size() == 1000);
  CHECK(task.attempts(0).number() == 502);
  CHECK(task.attempts(999).number() == 1501);
}

TEST_CASE("A wrong contribution is rejected with the reason and counts as a failed attempt") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(1));
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  v1::TaskResult result = Result(lease, 1);
  v1::Contribution contribution;
  contribution.ParseFromString(result.contribution());
  contribution.mutable_outputs(0)->set_name("y");
  result.set_contribution(contribution.SerializeAsString());
  const v1::SyncResponse response = server.Sync(HandIn("w", result));
  REQUIRE(response.verdicts(0).verdict() == Verdict::REJECTED);
  REQUIRE_THAT(response.verdicts(0).message(), Catch::Contains("y"));
  REQUIRE(server.GetTask(lease.task()).num_failed() == 1);
  REQUIRE(server.GetRound(round).num_contributions() == 0);
}

TEST_CASE("A task that keeps failing waits longer each time and is buried in the end, until an operator puts it back") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(1));
  std::string task;
  for (int attempt = 1; attempt <= 4; ++attempt) {
    server.Advance(absl::Minutes(1));
    const v1::SyncResponse granted = server.Sync(Ask("w", 1));
    REQUIRE(granted.leases_size() == 1);
    task = granted.leases(0).task();
    server.Sync(HandIn("w", Failure(granted.leases(0), "disk full")));
  }
  REQUIRE(server.GetTask(task).state() == v1::BURIED);
  REQUIRE(server.GetTask(task).last_error() == "disk full");
  REQUIRE(server.GetTask(task).attempts_size() == 4);
  REQUIRE(server.GetRound(round).state() == v1::COLLECTING);
  v1::RequeueTaskRequest requeue;
  requeue.set_request_id("q");
  requeue.set_task(task);
  REQUIRE(server.Call<v1::RequeueTaskResponse>("InspectionService/RequeueTask", requeue).ok());
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  server.Sync(HandIn("w", Result(lease, 1)));
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
}

TEST_CASE("A failed task is retried when its backoff has passed, by a worker that waits") {
  CoreFederation server;
  server.CreateRound(SumRound(1));
  const v1::Lease lease = server.Sync(Ask("w1", 1)).leases(0);
  server.Sync(HandIn("w1", Failure(lease, "flaky")));
  const auto waiting = server.CallLater<v1::SyncResponse>("WorkService/Sync", AskAndWait("w2", absl::Seconds(30)));
  server.Advance(absl::Seconds(1));
  REQUIRE(waiting->has_value());
  REQUIRE((**waiting)->leases_size() == 1);
}

TEST_CASE("A worker that waits is given a task as soon as a round is created") {
  CoreFederation server;
  const auto waiting = server.CallLater<v1::SyncResponse>("WorkService/Sync", AskAndWait("w", absl::Seconds(30)));
  REQUIRE_FALSE(waiting->has_value());
  server.Advance(absl::Seconds(10));
  server.CreateRound(SumRound(1));
  REQUIRE(waiting->has_value());
  REQUIRE((**waiting)->leases_size() == 1);
  // Counted from when the request arrived, which is what the worker knows.
  REQUIRE(FromProto((**waiting)->leases(0).remaining()) == absl::Seconds(40));
}

TEST_CASE("A wait that ends without work is answered with nothing, and that is success") {
  CoreFederation server;
  const auto waiting = server.CallLater<v1::SyncResponse>("WorkService/Sync", AskAndWait("w", absl::Seconds(5)));
  server.Advance(absl::Seconds(5));
  REQUIRE(waiting->has_value());
  REQUIRE((*waiting)->ok());
  REQUIRE((**waiting)->leases().empty());
}

TEST_CASE("A newer call of a worker ends the wait of its older one") {
  CoreFederation server;
  const auto older = server.CallLater<v1::SyncResponse>("WorkService/Sync", AskAndWait("w", absl::Seconds(30)));
  const auto newer = server.CallLater<v1::SyncResponse>("WorkService/Sync", AskAndWait("w", absl::Seconds(30)));
  REQUIRE(older->has_value());
  REQUIRE_FALSE(newer->has_value());
}

TEST_CASE("A lost answer is recovered by the retry with the same poll_id and by the held list") {
  CoreFederation server;
  server.CreateRound(SumRound(2));
  const v1::SyncRequest poll = Ask("w", 1);
  const v1::Lease lost = server.Sync(poll).leases(0);
  const v1::SyncResponse retried = server.Sync(poll);
  REQUIRE(retried.leases_size() == 1);
  REQUIRE(retried.leases(0).lease_token() == lost.lease_token());
  // Another poll of a worker that lists nothing as held is told of it too, before it is given more.
  const v1::SyncResponse next = server.Sync(Ask("w", 2));
  REQUIRE(next.leases_size() == 2);
  REQUIRE(next.leases(0).lease_token() == lost.lease_token());
}

TEST_CASE("A worker parked with a lease hears at once that its round is over") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(2);
  spec.set_goal(1);
  server.CreateRound(spec);
  const v1::Lease slow = server.Sync(Ask("slow", 1)).leases(0);
  v1::SyncRequest wait = AskAndWait("slow", absl::Seconds(30));
  *wait.add_held() = Held(slow, 1);
  const v1::Lease fast = server.Sync(Ask("fast", 1)).leases(0);
  const auto parked = server.CallLater<v1::SyncResponse>("WorkService/Sync", wait);
  REQUIRE_FALSE(parked->has_value());
  server.Sync(HandIn("fast", Result(fast, 1)));
  REQUIRE(parked->has_value());
  REQUIRE((**parked)->held(0).verdict() == v1::LeaseUpdate::CANCELLED);
  REQUIRE(server.Sync(HandIn("slow", Result(slow, 1))).verdicts(0).verdict() == Verdict::NOT_NEEDED);
}

TEST_CASE("A worker that is drained is told so and is given nothing more") {
  CoreFederation server;
  const auto waiting = server.CallLater<v1::SyncResponse>("WorkService/Sync", AskAndWait("w", absl::Seconds(30)));
  v1::DrainWorkerRequest drain;
  drain.set_request_id("d");
  drain.set_worker("w");
  REQUIRE(server.Call<v1::DrainWorkerResponse>("InspectionService/DrainWorker", drain).ok());
  REQUIRE(waiting->has_value());
  REQUIRE((**waiting)->drain());
  server.CreateRound(SumRound(1));
  REQUIRE(server.Sync(Ask("w", 1)).leases().empty());
  drain.set_undo(true);
  REQUIRE(server.Call<v1::DrainWorkerResponse>("InspectionService/DrainWorker", drain).ok());
  REQUIRE(server.Sync(Ask("w", 1)).leases_size() == 1);
}

TEST_CASE(
    "A drained worker waits to be taken back, is told at once, and a restart of the server changes nothing of it") {
  CoreFederation server;
  server.Sync(Ask("w", 1));
  v1::DrainWorkerRequest drain;
  drain.set_request_id("d");
  drain.set_worker("w");
  REQUIRE(server.Call<v1::DrainWorkerResponse>("InspectionService/DrainWorker", drain).ok());
  server.CreateRound(SumRound(2));
  // What it is told when it wants something: not now, and not soon.
  const v1::SyncResponse told = server.Sync(AskAndWait("w", absl::Seconds(30)));
  REQUIRE(told.drain());
  REQUIRE(told.leases().empty());
  REQUIRE(told.next_min().seconds() >= 1);
  server.CrashAndRestart();
  REQUIRE(server.Sync(Ask("w", 1)).drain());

  v1::SyncRequest wait = AskAndWait("w", absl::Seconds(30));
  wait.set_want(0);
  wait.set_drained(true);
  const auto parked = server.CallLater<v1::SyncResponse>("WorkService/Sync", wait);
  REQUIRE_FALSE(parked->has_value());
  drain.set_undo(true);
  REQUIRE(server.Call<v1::DrainWorkerResponse>("InspectionService/DrainWorker", drain).ok());
  REQUIRE(parked->has_value());
  REQUIRE((**parked).ok());
  REQUIRE_FALSE((**parked)->drain());
  REQUIRE((**parked)->next_min().seconds() == 0);
  // The command came before the worker began to wait: it is told, and not left waiting.
  const auto late = server.CallLater<v1::SyncResponse>("WorkService/Sync", wait);
  REQUIRE(late->has_value());
  REQUIRE_FALSE((**late)->drain());
  REQUIRE(server.Sync(Ask("w", 1)).leases_size() == 1);
}

TEST_CASE("A worker that says it stops is given nothing more, and its result is taken") {
  CoreFederation server;
  server.CreateRound(SumRound(2));
  v1::SyncRequest last = Ask("w", 1);
  *last.add_results() = Result(server.Sync(Ask("w", 1)).leases(0), 1);
  last.set_draining(true);
  const v1::SyncResponse answer = server.Sync(last);
  CHECK(answer.verdicts(0).verdict() == Verdict::ACCEPTED);
  CHECK(answer.leases().empty());
}

TEST_CASE("A worker that offers or says more of itself than before is given what has waited for that") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.mutable_computation()->set_name("train");
  server.CreateRound(spec);
  REQUIRE(server.Sync(Ask("w", 1)).leases().empty());
  v1::SyncRequest more = Ask("w", 1);
  more.add_computations()->set_name("train");
  more.mutable_computations(1)->set_version(1);
  CHECK(server.Sync(more).leases_size() == 1);

  (*spec.mutable_listed()->mutable_tasks(0)->mutable_requirements())["gpu"] = "yes";
  server.CreateRound(spec);
  more.set_worker("v");
  REQUIRE(server.Sync(more).leases().empty());
  (*more.mutable_labels())["gpu"] = "yes";
  CHECK(server.Sync(more).leases_size() == 1);
}

TEST_CASE("A protocol version below the window is refused, naming the window") {
  CoreFederation server;
  v1::SyncRequest request = Ask("w", 1);
  request.set_protocol_version(0);
  const auto response = server.Call<v1::SyncResponse>("WorkService/Sync", request);
  REQUIRE(absl::IsFailedPrecondition(response.status()));
  REQUIRE_THAT(std::string(response.status().message()), Catch::Contains("serves 1 to 2"));
}

TEST_CASE("Labels decide who may run a task") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  (*spec.mutable_listed()->mutable_tasks(0)->mutable_requirements())["gpu"] = "yes";
  server.CreateRound(spec);
  REQUIRE(server.Sync(Ask("plain", 1)).leases().empty());
  v1::SyncRequest fit = Ask("fit", 1);
  (*fit.mutable_labels())["gpu"] = "yes";
  REQUIRE(server.Sync(fit).leases_size() == 1);
}

// Its tasks have payloads of 60 kB.
v1::RoundSpec LargeRound(int num_tasks) {
  v1::RoundSpec spec = SumRound(num_tasks);
  for (v1::TaskSpec& task : *spec.mutable_listed()->mutable_tasks()) task.set_payload(std::string(60'000, 'p'));
  return spec;
}

// As a gRPC client that was not told otherwise.
constexpr size_t kClientTakes = 4 << 20;

TEST_CASE("Leases that are too large for one answer come one answer after the other, new ones and those sent again") {
  CoreFederation server;
  server.CreateRound(LargeRound(256));
  v1::SyncRequest request = Ask("w", 256);
  std::set<std::string> tasks;
  int num_answers = 0;
  const auto take_all = [&] {
    for (tasks.clear(), num_answers = 0, request.clear_held(); tasks.size() < 256; ++num_answers) {
      REQUIRE(num_answers < 20);
      request.set_want(256 - request.held_size());
      const v1::SyncResponse response = server.Sync(request);
      CHECK(response.ByteSizeLong() < kClientTakes);
      REQUIRE(response.leases_size() > 0);
      // The rest comes at once.
      CHECK(FromProto(response.next_max()) == absl::ZeroDuration());
      for (const v1::Lease& lease : response.leases()) {
        CHECK(tasks.insert(lease.task()).second);
        *request.add_held() = Held(lease, 1);
      }
    }
  };
  take_all();
  // 34 of them are 2 MiB.
  CHECK(num_answers == 8);
  // The worker has forgotten everything, or heard nothing of it.
  take_all();
  CHECK(num_answers == 8);
  request.set_want(0);
  CHECK(server.Sync(request).leases().empty());
}

TEST_CASE("One lease always goes, however large it is") {
  Limits limits;
  limits.sync_leases_bytes_max = 10;
  CoreFederation server(limits);
  server.CreateRound(LargeRound(3));
  CHECK(server.Sync(Ask("w", 3)).leases_size() == 1);
  // The first of what it does not name, again.
  CHECK(server.Sync(Ask("w", 3)).leases_size() == 1);
}

TEST_CASE("Who waits while a batch is full of leases is given some in the next") {
  Limits limits;
  limits.batch_leases_bytes_max = 100'000;
  CoreFederation server(limits);
  std::vector<std::shared_ptr<std::optional<absl::StatusOr<v1::SyncResponse>>>> waiting;
  for (int i = 0; i < 9; ++i) {
    waiting.push_back(
        server.CallLater<v1::SyncResponse>("WorkService/Sync", AskAndWait("w" + std::to_string(i), absl::Seconds(50))));
  }
  server.CreateRound(LargeRound(9));
  std::set<std::string> tasks;
  int num_batches = 1;
  const absl::Time now = server.clock().Now();
  for (; num_batches < 9 && server.core().NextTick(now) <= now; ++num_batches) server.Run();
  // Two of them fill one.
  CHECK(num_batches == 5);
  for (const auto& answer : waiting) {
    REQUIRE(answer->has_value());
    REQUIRE((*answer)->ok());
    for (const v1::Lease& lease : (**answer)->leases()) tasks.insert(lease.task());
  }
  CHECK(tasks.size() == 9);
}

TEST_CASE("Open slots hand one worker no more than per_worker_max tasks") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(0);
  spec.mutable_open_slots()->set_count(3);
  spec.mutable_open_slots()->set_per_worker_max(1);
  server.CreateRound(spec);
  REQUIRE(server.Sync(Ask("a", 3)).leases_size() == 1);
  REQUIRE(server.Sync(Ask("b", 3)).leases_size() == 1);
}

TEST_CASE("A worker that may have one task of a round is given another when its own has failed for good") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(0);
  spec.mutable_open_slots()->set_count(3);
  spec.mutable_open_slots()->set_per_worker_max(1);
  spec.set_min_goal(1);
  server.CreateRound(spec);
  // It looks for a second one, too, and finds that there is none for it.
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  REQUIRE(granted.leases_size() == 1);
  v1::SyncRequest next = Ask("w", 1);
  *next.add_results() = Failure(granted.leases(0), "no such data", true);
  CHECK(server.Sync(next).leases_size() == 1);
}

TEST_CASE("Urgent rounds go first, and jobs of one priority take turns") {
  CoreFederation server;
  const auto create = [&](const std::string& job, int priority) {
    v1::RoundSpec spec = SumRound(2);
    spec.set_job(job);
    spec.set_priority(priority);
    return server.CreateRound(spec);
  };
  const std::string a = create("a", 3);
  server.clock().Advance(absl::Seconds(1));
  const std::string b = create("b", 3);
  server.clock().Advance(absl::Seconds(1));
  const std::string urgent = create("a", 1);
  std::vector<std::string> order;
  for (int i = 0; i < 6; ++i) order.push_back(server.Sync(Ask("w" + std::to_string(i), 1)).leases(0).round());
  REQUIRE(order[0] == urgent);
  REQUIRE(order[1] == urgent);
  REQUIRE(order[2] != order[3]);
  REQUIRE(order[4] != order[5]);
}

TEST_CASE("However many calls wait, each batch answers a bounded number of them, and all are answered in the end") {
  constexpr size_t kPolls = 3000;
  constexpr size_t kAnswersMax = 512;
  using Answer = std::shared_ptr<std::optional<absl::StatusOr<v1::SyncResponse>>>;
  struct Case {
    std::string what;
    std::function<void(CoreFederation& server)> cause;
    int64_t num_leases = 0;
  };
  const std::vector<Case> cases = {
      {"time", [](CoreFederation& server) { server.clock().Advance(absl::Seconds(40)); }},
      {"the server stops",
       [](CoreFederation& server) { server.Post([&](absl::Time now) { server.core().BeginDrain(now); }); }},
      {"workers are drained",
       [](CoreFederation& server) {
         server.Post([&](absl::Time) {
           for (size_t i = 0; i < kPolls; ++i) {
             server.core().polls().OnDrainChanged("default", WorkerName("w" + std::to_string(i)));
           }
         });
       }},
      {"a token is void",
       [](CoreFederation& server) { server.Post([&](absl::Time) { server.core().polls().EndThoseOf(TokenId()); }); }},
      {"work comes",
       [](CoreFederation& server) {
         for (int i = 0; i < 3; ++i)
           server.CallInOneBatch<v1::CreateRoundResponse>("RoundService/CreateRound", [&] {
             v1::CreateRoundRequest request;
             request.set_request_id("q" + std::to_string(i));
             *request.mutable_spec() = SumRound(kPolls / 3);
             return request;
           }());
       },
       kPolls},
      {"a round is closed",
       [](CoreFederation& server) {
         v1::CancelRoundRequest request;
         request.set_request_id("q");
         request.set_round(server.store().ListRounds({})->front().id.value());
         server.CallInOneBatch<v1::CancelRoundResponse>("RoundService/CancelRound", request);
       }},
  };
  for (const Case& row : cases) {
    INFO(row.what);
    CoreFederation server;
    const bool are_busy = row.what == "a round is closed";
    if (are_busy) server.CreateRound(SumRound(kPolls));
    std::vector<Answer> answers;
    for (size_t i = 0; i < kPolls; ++i) {
      const std::string worker = "w" + std::to_string(i);
      v1::SyncRequest poll = AskAndWait(worker, absl::Seconds(30));
      if (are_busy) {
        const v1::SyncResponse granted = server.Sync(Ask(worker, 1));
        REQUIRE(granted.leases_size() == 1);
        *poll.add_held() = Held(granted.leases(0), 0);
        poll.set_want(0);
      }
      answers.push_back(server.CallInOneBatch<v1::SyncResponse>("WorkService/Sync", poll));
    }
    const auto num_answered = [&] {
      return static_cast<size_t>(
          std::count_if(answers.begin(), answers.end(), [](const Answer& answer) { return answer->has_value(); }));
    };
    const size_t before = num_answered();
    row.cause(server);
    size_t last = num_answered();
    CHECK(last - before <= 3 * kAnswersMax);
    size_t num_batches = 0;
    for (; last < kPolls && num_batches < 20; ++num_batches) {
      CHECK((num_batches == 0 || server.core().NextTick(server.clock().Now()) <= server.clock().Now()));
      server.CallInOneBatch<v1::GetServerInfoResponse>("InspectionService/GetServerInfo", v1::GetServerInfoRequest());
      const size_t now = num_answered();
      CHECK(now - last <= kAnswersMax);
      last = now;
    }
    CHECK(last == kPolls);
    CHECK(num_batches >= (kPolls - before) / kAnswersMax - 3);
    int64_t num_leases = 0;
    for (const Answer& answer : answers) {
      if (answer->has_value() && (*answer)->ok()) num_leases += (**answer)->leases_size();
    }
    CHECK(num_leases == row.num_leases);
  }
}

TEST_CASE("A stopping server answers those who wait and grants nothing, but still takes results") {
  CoreFederation server;
  server.CreateRound(SumRound(2));
  const v1::Lease lease = server.Sync(Ask("busy", 1)).leases(0);
  server.Sync(Ask("other", 1));
  const auto waiting = server.CallLater<v1::SyncResponse>("WorkService/Sync", AskAndWait("idle", absl::Seconds(30)));
  server.Post([&](absl::Time now) { server.core().BeginDrain(now); });
  server.Run();
  REQUIRE(waiting->has_value());
  REQUIRE(server.Sync(HandIn("busy", Result(lease, 1))).verdicts(0).verdict() == Verdict::ACCEPTED);
}

}  // namespace
}  // namespace sheaf
