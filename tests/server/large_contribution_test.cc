// Contributions that are looked at and folded beside the core.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/retry_hint.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

constexpr int64_t kLargeElements = 32 << 10;

// A SumRound with contributions too large to be folded, or looked at, on the core's thread.
v1::RoundSpec LargeRound(int num_tasks) {
  v1::RoundSpec spec = SumRound(num_tasks);
  spec.mutable_aggregate()->mutable_outputs(0)->set_dense_shape(0, kLargeElements);
  return spec;
}

v1::TaskResult LargeResult(const v1::Lease& lease) {
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name("x");
  output.mutable_dense()->set_dtype(v1::FLOAT32);
  output.mutable_dense()->add_shape(kLargeElements);
  const std::vector<float> ones(kLargeElements, 1);
  output.mutable_dense()->set_data(
      std::string(reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(float)));
  v1::TaskResult result;
  result.set_task(lease.task());
  result.set_lease_token(lease.lease_token());
  result.set_contribution(contribution.SerializeAsString());
  return result;
}

v1::SyncRequest HandInLarge(const v1::Lease& lease) {
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = LargeResult(lease);
  return request;
}

TEST_CASE("A large contribution is looked at beside the core, and judged on what is true by then") {
  CoreFederation server;
  server.CreateRound(LargeRound(2));
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  HeldJobs& jobs = server.HoldJobs();
  const auto first = server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(granted.leases(0)));
  const auto second = server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(granted.leases(1)));
  CHECK(!first->has_value());
  // Their leases end meanwhile; but the results came in time.
  server.Advance(absl::Minutes(1));
  CHECK(server.GetTask(granted.leases(0).task()).state() == v1::LEASED);
  REQUIRE(jobs.RunNext());
  server.Run();
  REQUIRE(first->has_value());
  REQUIRE((*first)->ok());
  CHECK((**first)->verdicts(0).verdict() == v1::ResultVerdict::ACCEPTED);
  // An operator takes the other one away.
  v1::RequeueTaskRequest requeue;
  requeue.set_request_id("requeue");
  requeue.set_task(granted.leases(1).task());
  REQUIRE(server.Call<v1::RequeueTaskResponse>("InspectionService/RequeueTask", requeue).ok());
  server.LetJobsRun();
  REQUIRE(second->has_value());
  REQUIRE((*second)->ok());
  CHECK((**second)->verdicts(0).verdict() == v1::ResultVerdict::LEASE_LOST);
  CHECK(server.GetTask(granted.leases(0).task()).state() == v1::TASK_SUCCEEDED);
  CHECK(server.GetTask(granted.leases(1).task()).state() == v1::QUEUED);
}

TEST_CASE("What a call with a large contribution says of other leases counts from when it came") {
  CoreFederation server;
  server.CreateRound(LargeRound(2));
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  server.HoldJobs();
  server.Advance(absl::Seconds(20));
  v1::SyncRequest request = HandInLarge(granted.leases(0));
  *request.add_held() = Held(granted.leases(1), 1);
  const auto answer = server.CallLater<v1::SyncResponse>("WorkService/Sync", request);
  server.Advance(absl::Seconds(20));
  CHECK(server.GetTask(granted.leases(1).task()).state() == v1::LEASED);
  server.LetJobsRun();
  REQUIRE(answer->has_value());
  REQUIRE((*answer)->ok());
  CHECK((**answer)->held(0).verdict() == v1::LeaseUpdate::HELD);
}

TEST_CASE("A round whose contributions are still being folded can be cancelled, and leaves nothing behind") {
  CoreFederation server;
  const std::string round = server.CreateRound(LargeRound(3));
  const v1::SyncResponse granted = server.Sync(Ask("w", 3));
  for (int i = 0; i < 2; ++i) server.Sync(HandInLarge(granted.leases(i)));
  HeldJobs& jobs = server.HoldJobs();
  const auto last = server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(granted.leases(2)));
  // It is received, accepted, and waits to be folded; then the round would be released.
  REQUIRE(jobs.RunNext());
  server.Run();
  REQUIRE(last->has_value());
  CHECK(server.GetRound(round).state() == v1::SEALING);
  CHECK(!jobs.empty());
  server.LetJobsRun();
  CHECK(server.GetRound(round).state() == v1::SUCCEEDED);
  CHECK(server.GetRound(round).aggregate().num_contributions() == 3);
  CHECK(server.payloads().ListRounds()->empty());

  const std::string other = server.CreateRound(LargeRound(3));
  const v1::SyncResponse leases = server.Sync(Ask("w", 3));
  server.HoldJobs();
  const auto accepted = server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(leases.leases(0)));
  REQUIRE(jobs.RunNext());
  server.Run();
  REQUIRE(accepted->has_value());
  // A checkpoint behind the fold, too.
  server.Post([&](absl::Time now) { server.core().CheckpointAll(now); });
  server.Run();
  v1::CancelRoundRequest cancel;
  cancel.set_request_id("cancel");
  cancel.set_round(other);
  REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", cancel).ok());
  server.LetJobsRun();
  CHECK(server.GetRound(other).state() == v1::CANCELLED);
  CHECK(server.payloads().ListRounds()->empty());
}

TEST_CASE("A checkpoint that is still being written when the process ends is as if it had never been asked for") {
  CoreFederation server;
  const std::string round = server.CreateRound(LargeRound(2));
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  server.Sync(HandInLarge(granted.leases(0)));
  HeldJobs& jobs = server.HoldJobs();
  server.Post([&](absl::Time now) { server.core().CheckpointAll(now); });
  server.Run();
  SECTION("written") { REQUIRE(jobs.RunNext()); }
  SECTION("given up, because the server is stopping") {
    jobs.set_is_stopping(true);
    REQUIRE(jobs.RunNext());
    jobs.set_is_stopping(false);
    server.Run();
    CHECK(jobs.empty());
  }
  SECTION("not begun") {}
  server.CrashAndRestart();
  server.LetJobsRun();
  server.Sync(HandInLarge(granted.leases(1)));
  CHECK(server.GetRound(round).aggregate().num_contributions() == 2);
  const std::string aggregate = server.ReadAggregate(round);
  float last = 0;
  std::memcpy(&last, aggregate.data() + aggregate.size() - sizeof last, sizeof last);
  CHECK(last == 2);
}

TEST_CASE("Large contributions that wait to be folded are limited in memory, and come back when there is room") {
  Limits limits;
  limits.unfolded_bytes_max = kLargeElements * 6;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(LargeRound(3));
  const v1::SyncResponse granted = server.Sync(Ask("w", 3));
  HeldJobs& jobs = server.HoldJobs();
  std::vector<std::shared_ptr<std::optional<absl::StatusOr<v1::SyncResponse>>>> answers;
  for (int i = 0; i < 2; ++i) {
    answers.push_back(server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(granted.leases(i))));
    REQUIRE(jobs.RunNext(granted.leases(i).lease_token()));
    if (i == 0) server.Run();
  }
  server.Run();
  REQUIRE(answers[0]->has_value());
  CHECK((*answers[0])->ok());
  // The first is not folded yet.
  REQUIRE(answers[1]->has_value());
  CHECK(absl::IsResourceExhausted((*answers[1])->status()));
  CHECK(RetryAfter((*answers[1])->status()).has_value());
  server.LetJobsRun();
  for (int i = 1; i < 3; ++i) server.Sync(HandInLarge(granted.leases(i)));
  CHECK(server.GetRound(round).aggregate().num_contributions() == 3);
}

TEST_CASE("A lease that ended while its contribution was looked at is taken back when there was no room for that") {
  Limits limits;
  limits.unfolded_bytes_max = kLargeElements * 6;
  CoreFederation server(limits);
  server.CreateRound(LargeRound(2));
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  HeldJobs& jobs = server.HoldJobs();
  server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(granted.leases(0)));
  REQUIRE(jobs.RunNext(granted.leases(0).lease_token()));
  server.Run();
  // While the first waits to be folded there is no room for another.
  const auto second = server.CallLater<v1::SyncResponse>("WorkService/Sync", HandInLarge(granted.leases(1)));
  server.Advance(absl::Minutes(1));
  CHECK(server.GetTask(granted.leases(1).task()).state() == v1::LEASED);
  REQUIRE(jobs.RunNext(granted.leases(1).lease_token()));
  server.Run();
  REQUIRE(second->has_value());
  CHECK(absl::IsResourceExhausted((*second)->status()));
  CHECK(server.GetTask(granted.leases(1).task()).state() == v1::QUEUED);
  server.LetJobsRun();
}

}  // namespace
}  // namespace sheaf
