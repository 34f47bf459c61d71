// What all share: one population, or one identity, takes nothing that another needs.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "server/calls/admission.h"
#include "server/core/limits/population_share.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Answer = std::shared_ptr<std::optional<absl::StatusOr<v1::SyncResponse>>>;

absl::Status Create(CoreFederation& server, const std::string& population, int num_tasks) {
  static int num_requests = 0;
  v1::CreateRoundRequest request;
  request.set_request_id("share-" + std::to_string(++num_requests));
  *request.mutable_spec() = SumRound(num_tasks);
  request.mutable_spec()->set_population(population);
  return server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request).status();
}

v1::SyncRequest AskIn(const std::string& population, const std::string& worker, int want = 1) {
  v1::SyncRequest request = Ask(worker, want);
  request.set_population(population);
  return request;
}

// As often as `take` succeeds, 1000 times at the most.
template <typename Take>
int TakeAll(Take take) {
  int taken = 0;
  while (taken < 1000 && take(taken)) ++taken;
  return taken;
}

TEST_CASE("A share grows to a part of what others leave, and there is always some for one that comes") {
  PopulationShare share;
  CHECK(share.Max("a", 1000, 90) == 900);
  share.Add("a", 900);
  CHECK(share.Max("a", 1000, 90) == 900);
  CHECK(share.Max("b", 1000, 90) == 90);
  share.Add("b", 90);
  CHECK(share.Max("c", 1000, 90) == 9);
  CHECK(share.Max("a", 1000, 90) == 819);
  share.Add("a", -900);
  CHECK(share.Of("a") == 0);
  CHECK(share.total() == 90);
  CHECK(share.Max("b", 1000, 90) == 900);
  // Where it makes less than one, nothing is held back.
  CHECK(share.Max("b", 91, 90) == 82);
  CHECK(share.Max("b", 5, 90) == 5);
  CHECK(share.Max("a", 91, 90) == 1);
  // A limit that was lowered.
  CHECK(share.Max("a", 50, 90) == 0);
  CHECK(PopulationShare().Max("a", int64_t{1} << 60, 100) == int64_t{1} << 60);
}

TEST_CASE("A population that has all the live rounds and tasks it can leaves another some") {
  Limits limits;
  limits.live_rounds_max = 50;
  limits.live_tasks_max = 1000;
  {
    CoreFederation server(limits);
    CHECK(TakeAll([&](int) { return Create(server, "a", 1).ok(); }) >= 45);
    CHECK(Create(server, "b", 1).ok());
    server.CrashAndRestart();
    CHECK_FALSE(Create(server, "a", 1).ok());
    CHECK(Create(server, "b", 1).ok());
    CHECK(Create(server, "c", 1).ok());
  }
  CoreFederation server(limits);
  CHECK(TakeAll([&](int) { return Create(server, "a", 100).ok(); }) == 9);
  CHECK_THAT(Create(server, "a", 100).ToString(), Catch::Contains("live_tasks_max = 1000"));
  CHECK(Create(server, "b", 80).ok());
  CHECK(Create(server, "c", 5).ok());
  // Also those that are not queued any more.
  for (int i = 0; i < 4; ++i) REQUIRE(server.Sync(AskIn("a", "w" + std::to_string(i), 200)).leases_size() == 200);
  server.CrashAndRestart();
  CHECK_THAT(Create(server, "a", 100).ToString(), Catch::Contains("live_tasks_max = 1000"));
}

TEST_CASE("Workers of a population that all wait leave another's room to wait, to watch and to be known") {
  Limits limits;
  limits.parked_polls_max = 20;
  limits.watches_max = 20;
  limits.workers_max = 60;
  CoreFederation server(limits);
  std::vector<Answer> polls;
  const auto parks = [&](const std::string& population, int number) {
    v1::SyncRequest request = AskIn(population, "w" + std::to_string(number));
    request.mutable_wait()->set_seconds(30);
    polls.push_back(server.CallLater<v1::SyncResponse>("WorkService/Sync", request));
    return !polls.back()->has_value();
  };
  CHECK(TakeAll([&](int number) { return parks("a", number); }) >= 18);
  CHECK(parks("b", 1));

  CHECK(TakeAll([&](int number) {
          return server.Call<v1::SyncResponse>("WorkService/Sync", AskIn("a", "known" + std::to_string(number))).ok();
        }) >= 30);
  CHECK(server.Call<v1::SyncResponse>("WorkService/Sync", AskIn("b", "new")).ok());

  std::vector<std::shared_ptr<std::optional<absl::StatusOr<v1::GetRoundResponse>>>> watches;
  const auto watches_in = [&](const std::string& population) {
    v1::RoundSpec spec = SumRound(1);
    spec.set_population(population);
    spec.mutable_computation()->set_name("nobodys");
    v1::GetRoundRequest watch;
    watch.set_round(server.CreateRound(spec));
    watch.set_etag(server.GetRound(watch.round()).etag());
    watch.mutable_wait()->set_seconds(50);
    watches.push_back(server.CallLater<v1::GetRoundResponse>("RoundService/GetRound", watch));
    return !watches.back()->has_value();
  };
  CHECK(TakeAll([&](int) { return watches_in("a"); }) >= 18);
  CHECK(watches_in("b"));
}

TEST_CASE("A population whose contributions fill the spool leaves another some of it") {
  Limits limits;
  limits.spool_bytes_max = 2000;
  CoreFederation server(limits);
  const auto lease_tasks = [&](const std::string& population, int num_tasks) {
    v1::RoundSpec spec = SumRound(num_tasks + 1);
    spec.set_population(population);
    server.CreateRound(spec);
    const v1::SyncResponse granted = server.Sync(AskIn(population, "w", num_tasks));
    REQUIRE(granted.leases_size() == num_tasks);
    return granted.leases();
  };
  const auto of_a = lease_tasks("a", 100);
  const auto of_b = lease_tasks("b", 1);
  const auto hand_in = [&](const std::string& population, const v1::Lease& lease) {
    v1::SyncRequest sync = AskIn(population, "w", 0);
    *sync.add_results() = Result(lease, 1);
    return server.Call<v1::SyncResponse>("WorkService/Sync", sync).status();
  };
  // No checkpoint makes room meanwhile.
  server.HoldJobs();
  const int taken = TakeAll([&](int i) { return i < 100 && hand_in("a", of_a[i]).ok(); });
  CHECK(taken > 5);
  REQUIRE(taken < 100);
  CHECK_THAT(hand_in("a", of_a[taken]).ToString(),
             Catch::Contains("spool_bytes_max = 2000") && Catch::Contains("population_percent_max = 90"));
  CHECK(hand_in("b", of_b[0]).ok());
  server.LetJobsRun();
  CHECK(hand_in("a", of_a[taken]).ok());
}

TEST_CASE("A job has its turn whatever jobs of its name another population has") {
  CoreFederation server;
  const auto create = [&](const std::string& population, const std::string& job) {
    v1::RoundSpec spec = SumRound(50);
    spec.set_population(population);
    spec.set_job(job);
    server.clock().Advance(absl::Seconds(1));
    return server.CreateRound(spec);
  };
  const std::string first = create("b", "train");
  const std::string second = create("b", "other");
  create("a", "train");
  // Where its namesake in another population were the same job, "train" would always have been served last.
  int num_first = 0;
  for (int i = 0; i < 10; ++i) {
    server.Sync(AskIn("a", "wa" + std::to_string(i)));
    num_first += server.Sync(AskIn("b", "wb" + std::to_string(i))).leases(0).round() == first ? 1 : 0;
  }
  CHECK(num_first == 5);
}

TEST_CASE("A population whose rounds end fast does not push out what another's released") {
  Limits limits;
  limits.ended_rounds_max = 10;
  CoreFederation server(limits);
  const auto finish = [&](const std::string& population) {
    v1::RoundSpec spec = SumRound(1);
    spec.set_population(population);
    std::string round = server.CreateRound(spec);
    v1::SyncRequest sync = AskIn(population, "w", 0);
    *sync.add_results() = Result(server.Sync(AskIn(population, "w")).leases(0), 1);
    server.Sync(sync);
    return round;
  };
  const std::string kept = finish("b");
  for (int i = 0; i < 200; ++i) finish("a");
  server.Advance(absl::Minutes(1));
  CHECK(server.GetRound(kept).state() == v1::SUCCEEDED);
  CHECK_FALSE(server.ReadAggregate(kept).empty());
  CHECK(server.store().ListRounds({.population = "a"})->size() < 11);
}

TEST_CASE("An identity that overloads the server is refused, and others are let in") {
  Limits limits;
  limits.queued_calls_max = 1000;
  limits.queue_wait_max = absl::Milliseconds(50);
  CoreFederation server(limits);
  const auto someone = [](const std::string& name) {
    auto identity = std::make_shared<Identity>();
    identity->name = name;
    return IdentityPtr(identity);
  };
  const IdentityPtr greedy = someone("greedy");
  const IdentityPtr modest = someone("modest");
  v1::SyncRequest request;
  v1::SyncResponse response;
  const auto enters = [&](const IdentityPtr& caller) {
    if (!server.Enter("sheaf.v1.WorkService/Sync", *caller, 1, server.clock().Now()).ok()) return false;
    server.dispatcher().Dispatch("sheaf.v1.WorkService/Sync", {.caller = caller}, request, &response, [](auto) {});
    return true;
  };
  CHECK(TakeAll([&](int) { return enters(greedy); }) >= 900);
  CHECK_FALSE(enters(greedy));
  CHECK(enters(modest));
  // A crowd that waits too long is of those that are many in it.
  server.clock().Advance(absl::Seconds(1));
  CHECK_FALSE(enters(greedy));
  CHECK(enters(modest));
  server.Run();
  CHECK(enters(greedy));
  server.Run();
}

TEST_CASE("An identity that inspects without end leaves others some room in the queue of inspections") {
  Limits limits;
  limits.queued_inspections_max = 100;
  CoreFederation server(limits);
  v1::DescribeQueueRequest request;
  v1::DescribeQueueResponse response;
  const auto enters = [&](const std::string& name) {
    auto identity = std::make_shared<Identity>();
    identity->name = name;
    const char* const method = "sheaf.v1.InspectionService/DescribeQueue";
    if (!server.Enter(method, *identity, 1, server.clock().Now()).ok()) return false;
    server.dispatcher().Dispatch(method, {.caller = identity}, request, &response, [](auto) {});
    return true;
  };
  CHECK(TakeAll([&](int) { return enters("greedy"); }) == 90);
  CHECK(enters("modest"));
  server.Run();
}

TEST_CASE("An identity with uploads to EPHEMERAL rounds leaves another some of the memory for them") {
  Limits limits;
  limits.memory_upload_bytes_max = 100'000;
  CoreFederation server(limits);
  v1::RoundSpec spec = SumRound(200);
  spec.set_durability(v1::EPHEMERAL);
  server.CreateRound(spec);
  const v1::SyncResponse granted = server.Sync(Ask("w", 200));
  REQUIRE(granted.leases_size() == 200);
  int num_uploads = 0;
  const auto start = [&](const std::string& tag) {
    auto identity = std::make_shared<Identity>();
    identity->name = "identity " + tag;
    identity->upload_tag = std::string(16, tag[0]);
    const v1::Lease& lease = granted.leases(num_uploads++);
    v1::StartUploadRequest request;
    request.set_request_id("upload-" + lease.task());
    request.set_digest(std::string(64, '0'));
    request.set_size_bytes(1000);
    request.mutable_contribution()->set_task(lease.task());
    request.mutable_contribution()->set_lease_token(lease.lease_token());
    absl::Status answer = absl::UnknownError("never answered");
    v1::StartUploadResponse response;
    server.dispatcher().Dispatch("sheaf.v1.BlobService/StartUpload", {.caller = identity}, request, &response,
                                 [&](const absl::Status& status) { answer = status; });
    server.Run();
    return answer;
  };
  CHECK(TakeAll([&](int) { return start("a").ok(); }) == 90);
  CHECK_THAT(start("a").ToString(), Catch::Contains("memory_upload_bytes_max = 100000"));
  CHECK(start("b").ok());
}

TEST_CASE("Calls that an identity did not make in one second it does not make in another") {
  Limits limits;
  limits.calls_per_second_max = 10;
  Admission admission(limits);
  Identity caller;
  caller.name = "seldom";
  absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  const auto enters = [&] {
    if (!admission.Enter(Lane::kWork, caller, 1, now).ok()) return false;
    admission.Leave(caller, 1);
    return true;
  };
  for (int i = 0; i < 60; ++i, now += absl::Seconds(1)) REQUIRE(enters());
  CHECK(TakeAll([&](int) { return enters(); }) == 10);
  now += absl::Milliseconds(500);
  CHECK(TakeAll([&](int) { return enters(); }) == 5);
}

TEST_CASE("While requests hold all the memory that they may, inspection goes on with small ones alone") {
  Limits limits;
  limits.open_request_bytes_max = 1 << 20;
  // There are no others to leave any to.
  limits.population_percent_max = 100;
  Admission admission(limits);
  const Identity caller;
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  REQUIRE(admission.Enter(Lane::kWork, caller, 1 << 20, now).ok());
  CHECK_FALSE(admission.Enter(Lane::kWork, caller, 1, now).ok());
  CHECK(admission.Enter(Lane::kInspection, caller, 64 << 10, now).ok());
  CHECK_FALSE(admission.Enter(Lane::kInspection, caller, (64 << 10) + 1, now).ok());
  admission.Leave(caller, 64 << 10);
  admission.Leave(caller, 1 << 20);
  CHECK(admission.bytes() == 0);
  CHECK(admission.Enter(Lane::kWork, caller, 1 << 20, now).ok());
}

TEST_CASE("An identity with uploads for all the room that there is leaves another some") {
  Limits limits;
  limits.uploads_max = 200;
  limits.upload_bytes_max = 100'000;
  CoreFederation server(limits);
  const auto start = [&](const std::string& tag, int64_t size) {
    static int num_uploads = 0;
    auto identity = std::make_shared<Identity>();
    identity->name = "identity " + tag;
    identity->upload_tag = std::string(16, tag[0]);
    v1::StartUploadRequest request;
    request.set_request_id("upload-" + std::to_string(++num_uploads));
    std::string digest = std::to_string(num_uploads);
    request.set_digest(std::string(64 - digest.size(), '0') + digest);
    request.set_size_bytes(size);
    std::optional<absl::Status> answer;
    v1::StartUploadResponse response;
    server.dispatcher().Dispatch("sheaf.v1.BlobService/StartUpload", {.caller = identity}, request, &response,
                                 [&](const absl::Status& status) { answer = status; });
    server.Run();
    REQUIRE(answer.has_value());
    return answer->ok();
  };
  CHECK(TakeAll([&](int) { return start("a", 1); }) >= 180);
  CHECK(start("b", 1));
  CHECK(TakeAll([&](int) { return start("c", 9'000); }) >= 1);
  CHECK(start("d", 1));
}

}  // namespace
}  // namespace sheaf
