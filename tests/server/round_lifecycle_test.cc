// How a round ends: by its last contribution, its deadline, a cancellation, or for want of tasks.
#include <catch2/catch.hpp>
#include <string>

#include "aggregation/round_accumulator.h"
#include "proto/time.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Verdict = v1::ResultVerdict;

TEST_CASE("A round succeeds with its last contribution and releases the sum") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(3));
  for (int i = 1; i <= 3; ++i) REQUIRE(Contribute(server, "w", static_cast<float>(i)) == Verdict::ACCEPTED);
  const v1::Round done = server.GetRound(round);
  REQUIRE(done.state() == v1::SUCCEEDED);
  REQUIRE(done.aggregate().num_contributions() == 3);
  REQUIRE(done.tasks().succeeded() == 3);
  REQUIRE(FirstOf(server.ReadAggregate(round)) == 6);
  REQUIRE(server.payloads().ListRounds()->empty());
}

TEST_CASE("Whoever waits for a round gets its aggregate along, if it is as small as they say") {
  CoreFederation server;
  v1::GetRoundRequest request;
  request.set_round(server.CreateRound(SumRound(1)));
  request.set_etag(server.GetRound(request.round()).etag());
  *request.mutable_wait() = ToProto(absl::Seconds(10));
  request.set_aggregate_bytes_max(1 << 10);
  const auto waiting = server.CallLater<v1::GetRoundResponse>("RoundService/GetRound", request);
  REQUIRE_FALSE(waiting->has_value());
  REQUIRE(Contribute(server, "w", 3) == Verdict::ACCEPTED);
  REQUIRE(waiting->has_value());
  CHECK((*waiting)->value().aggregate_file() == server.ReadAggregate(request.round()));

  const auto file = [&](int64_t bytes_max) {
    request.clear_etag();
    request.set_aggregate_bytes_max(bytes_max);
    return server.Call<v1::GetRoundResponse>("RoundService/GetRound", request)->aggregate_file();
  };
  const auto size = static_cast<int64_t>(server.ReadAggregate(request.round()).size());
  CHECK(static_cast<int64_t>(file(size).size()) == size);
  CHECK(file(size - 1).empty());
  CHECK(file(0).empty());
}

TEST_CASE("An aggregate that is larger than what travels inline does not come along, whatever is asked for") {
  Limits limits;
  limits.inline_bytes_max = 10;
  CoreFederation server(limits);
  v1::GetRoundRequest request;
  request.set_round(server.CreateRound(SumRound(1)));
  request.set_aggregate_bytes_max(1 << 30);
  REQUIRE(server.Call<v1::GetRoundResponse>("RoundService/GetRound", request)->aggregate_file().empty());
}

TEST_CASE("Whoever may look at rounds but not read what they release gets no aggregate along") {
  CoreFederation server;
  v1::GetRoundRequest request;
  request.set_round(server.CreateRound(SumRound(1)));
  const auto viewer = std::make_shared<const Identity>(Identity{.name = "eve", .roles = {v1::VIEWER}});
  const auto get = [&] {
    absl::Status answer = absl::UnknownError("no answer");
    v1::GetRoundResponse response;
    server.dispatcher().Dispatch("sheaf.v1.RoundService/GetRound", {.caller = viewer}, request, &response,
                                 [&](const absl::Status& status) { answer = status; });
    server.Run();
    return answer;
  };
  CHECK(get().ok());
  request.set_aggregate_bytes_max(1);
  CHECK(absl::IsPermissionDenied(get()));
}

TEST_CASE("The phases of a round add up to its wall time") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(1));
  server.Advance(absl::Seconds(2));
  const v1::SyncResponse granted = server.Sync(Ask("w", 1));
  server.Advance(absl::Seconds(3));
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = Result(granted.leases(0), 1);
  *request.mutable_results(0)->mutable_timings()->mutable_compute() = ToProto(absl::Seconds(1));
  server.Sync(request);
  const v1::RoundPhases phases = server.GetRound(round).phases();
  REQUIRE(FromProto(phases.wait()) == absl::Seconds(2));
  REQUIRE(FromProto(phases.compute()) == absl::Seconds(1));
  REQUIRE(FromProto(phases.upload()) == absl::Seconds(2));
}

TEST_CASE("At the deadline a round succeeds with min_goal contributions and fails with fewer") {
  for (const int contributions : {1, 2}) {
    CoreFederation server;
    v1::RoundSpec spec = SumRound(4);
    spec.set_min_goal(2);
    *spec.mutable_deadline() = ToProto(absl::Seconds(100));
    const std::string round = server.CreateRound(spec);
    for (int i = 0; i < contributions; ++i) Contribute(server, "w", 1);
    server.Advance(absl::Seconds(99));
    REQUIRE(server.GetRound(round).state() == v1::COLLECTING);
    server.Advance(absl::Seconds(1));
    REQUIRE(server.GetRound(round).state() == (contributions == 2 ? v1::SUCCEEDED : v1::FAILED));
  }
}

TEST_CASE("Nothing is released below min_clients") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.set_min_clients(2);
  const std::string round = server.CreateRound(spec);
  Contribute(server, "w", 1);
  REQUIRE(server.GetRound(round).state() == v1::FAILED);
  REQUIRE_THAT(server.GetRound(round).error(), Catch::Contains("min_clients = 2"));
}

TEST_CASE("A round that no task can complete fails at once, with the reason") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(2));
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = Failure(granted.leases(0), "no such data", true);
  *request.add_results() = Result(granted.leases(1), 1);
  server.Sync(request);
  REQUIRE(server.GetRound(round).state() == v1::FAILED);
  REQUIRE_THAT(server.GetRound(round).error(), Catch::Contains("1 of 2 tasks failed for good"));
}

TEST_CASE("A round of which no task is left is released at once if it has min_goal contributions") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(3);
  spec.set_min_goal(2);
  const std::string round = server.CreateRound(spec);
  const v1::SyncResponse granted = server.Sync(Ask("w", 3));
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = Failure(granted.leases(0), "no such data", true);
  *request.add_results() = Result(granted.leases(1), 1);
  server.Sync(request);
  REQUIRE(server.GetRound(round).state() == v1::COLLECTING);
  request.clear_results();
  *request.add_results() = Result(granted.leases(2), 1);
  server.Sync(request);
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
}

TEST_CASE("A metric is the mean over the clients of a round, however many one contribution combines") {
  CoreFederation server;
  const v1::RoundSpec spec = SumRound(2);
  const std::string round = server.CreateRound(spec);
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  RoundAccumulator three = RoundAccumulator::Create(spec.aggregate()).value();
  v1::Contribution one;
  REQUIRE(one.ParseFromString(Result(granted.leases(0), 1).contribution()));
  for (int i = 0; i < 3; ++i) three.Accumulate(three.Validate(one).value());
  v1::Contribution partial = three.PartialAggregate();
  (*partial.mutable_metrics())["loss"] = 9;
  (*one.mutable_metrics())["loss"] = 1;
  v1::SyncRequest request = Ask("w", 0);
  for (const auto& [lease, contribution] : {std::pair(0, &partial), std::pair(1, &one)}) {
    v1::TaskResult& result = *request.add_results() = Result(granted.leases(lease), 1);
    result.set_contribution(contribution->SerializeAsString());
  }
  server.Sync(request);
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  CHECK(server.GetRound(round).aggregate().num_clients() == 4);
  CHECK(server.GetRound(round).metrics().at("loss") == 7);
}

TEST_CASE("A cancelled round tells its workers to stop, and what comes after is late") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(2));
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  v1::CancelRoundRequest cancel;
  cancel.set_request_id("c");
  cancel.set_round(round);
  REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", cancel).ok());
  REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", cancel).ok());
  v1::SyncRequest request = Ask("w", 0);
  *request.add_held() = Held(lease, 1);
  REQUIRE(server.Sync(request).held(0).verdict() == v1::LeaseUpdate::CANCELLED);
  request = Ask("w", 0);
  *request.add_results() = Result(lease, 1);
  REQUIRE(server.Sync(request).verdicts(0).verdict() == Verdict::LATE);
}

TEST_CASE("A watcher hears of the end of a round at once") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(1));
  v1::GetRoundRequest watch;
  watch.set_round(round);
  watch.set_etag(server.GetRound(round).etag());
  *watch.mutable_wait() = ToProto(absl::Seconds(30));
  const auto answer = server.CallLater<v1::GetRoundResponse>("RoundService/GetRound", watch);
  REQUIRE_FALSE(answer->has_value());
  Contribute(server, "w", 1);
  REQUIRE(answer->has_value());
  REQUIRE((**answer)->round().state() == v1::SUCCEEDED);
}

}  // namespace
}  // namespace sheaf
