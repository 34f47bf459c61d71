// What Sync and CreateRound hold their callers to, and what they owe them: names, repeated requests, ranges, pace.
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>

#include "base/checksum.h"
#include "proto/time.h"
#include "server/core/workers/worker_registry.h"
#include "server/stored/round_spec.h"
#include "server/stored/worker_description.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Catch::Contains;

IdentityPtr Someone(const std::string& name) {
  auto identity = std::make_shared<Identity>();
  identity->name = name;
  identity->lease_tag = "-" + std::string(16, name[0]);
  identity->upload_tag = std::string(16, name[0]);
  return identity;
}

absl::StatusOr<v1::SyncResponse> SyncAs(CoreFederation& server, const IdentityPtr& caller,
                                        const v1::SyncRequest& request) {
  std::optional<absl::Status> answer;
  v1::SyncResponse response;
  server.dispatcher().Dispatch("sheaf.v1.WorkService/Sync", {.caller = caller}, request, &response,
                               [&](const absl::Status& status) { answer = status; });
  server.Run();
  REQUIRE(answer.has_value());
  if (!answer->ok()) return *answer;
  return response;
}

TEST_CASE("After a restart a worker's name is still the identity's that holds its leases") {
  CoreFederation server;
  const IdentityPtr ann = Someone("ann");
  const IdentityPtr bob = Someone("bob");
  server.CreateRound(SumRound(2));
  const auto granted = SyncAs(server, ann, Ask("w", 1));
  REQUIRE(granted.ok());
  REQUIRE(granted->leases_size() == 1);
  const v1::Lease lease = granted->leases(0);
  server.CrashAndRestart();
  // Who comes first does not have it.
  CHECK_THAT(SyncAs(server, bob, Ask("w", 1)).status().ToString(), Contains("somebody else's"));
  v1::SyncRequest renewal = Ask("w", 0);
  *renewal.add_held() = Held(lease, 1);
  const auto renewed = SyncAs(server, ann, renewal);
  INFO(renewed.status().ToString());
  REQUIRE(renewed.ok());
  CHECK(renewed->held(0).verdict() == v1::LeaseUpdate::HELD);
  // Nor does who comes when the holder has not called for a minute, but holds on.
  server.Advance(absl::Seconds(20));
  CHECK_FALSE(SyncAs(server, bob, Ask("w", 1)).ok());
  // It is free again when nothing is held under it, and nobody has called by it for a minute.
  server.Advance(absl::Minutes(2));
  CHECK(SyncAs(server, bob, Ask("w", 1)).ok());
}

TEST_CASE("A worker that says the same of itself is the same, in whatever order its labels lie in memory") {
  v1::SyncRequest request = Ask("w", 1);
  for (int i = 0; i < 20; ++i) (*request.mutable_labels())["label" + std::to_string(i)] = "value";
  const std::string description = EncodeDescription(request);
  for (int i = 0; i < 100; ++i) {
    v1::SyncRequest again = Ask("w", 1);
    for (int k = 0; k < 20; ++k) (*again.mutable_labels())["label" + std::to_string((k + i) % 20)] = "value";
    REQUIRE(EncodeDescription(again) == description);
  }
}

TEST_CASE("A worker's name that another identity took over counts for that one alone") {
  Limits limits;
  limits.workers_per_identity_max = 1;
  CoreFederation server(limits);
  const IdentityPtr ann = Someone("ann");
  REQUIRE(SyncAs(server, ann, Ask("w", 0)).ok());
  CHECK_FALSE(SyncAs(server, ann, Ask("v", 0)).ok());
  server.Advance(absl::Minutes(2));
  REQUIRE(SyncAs(server, Someone("bob"), Ask("w", 0)).ok());
  CHECK(SyncAs(server, ann, Ask("v", 0)).ok());
}

TEST_CASE("Nobody uploads for another's lease, or hands in another's upload") {
  CoreFederation server;
  const IdentityPtr ann = Someone("ann");
  const IdentityPtr bob = Someone("bob");
  server.CreateRound(SumRound(2));
  const v1::Lease of_ann = SyncAs(server, ann, Ask("a", 1))->leases(0);
  const v1::Lease of_bob = SyncAs(server, bob, Ask("b", 1))->leases(0);
  const std::string bytes = Result(of_ann, 1).contribution();
  v1::StartUploadRequest start;
  start.set_request_id("upload");
  start.set_digest(Sha256Hex(bytes));
  start.set_size_bytes(static_cast<int64_t>(bytes.size()));
  start.mutable_contribution()->set_task(of_ann.task());
  start.mutable_contribution()->set_lease_token(of_ann.lease_token());
  const auto start_as = [&](const IdentityPtr& caller) {
    v1::StartUploadResponse response;
    server.dispatcher().Dispatch("sheaf.v1.BlobService/StartUpload", {.caller = caller}, start, &response,
                                 [](const absl::Status& status) { REQUIRE(status.ok()); });
    server.Run();
    return response;
  };
  CHECK(start_as(bob).verdict() == v1::StartUploadResponse::LEASE_LOST);
  const v1::StartUploadResponse started = start_as(ann);
  REQUIRE(started.verdict() == v1::StartUploadResponse::SEND);
  REQUIRE(server.payloads().WriteChunk(UploadId(started.upload_id()), 0, bytes).ok());
  REQUIRE(server.payloads().FinishUpload(UploadId(started.upload_id())).ok());

  v1::SyncRequest request = Ask("b", 0);
  v1::TaskResult& result = *request.add_results();
  result.set_task(of_bob.task());
  result.set_lease_token(of_bob.lease_token());
  result.set_upload_id(started.upload_id());
  const auto refused = SyncAs(server, bob, request);
  REQUIRE(refused.ok());
  CHECK(refused->verdicts(0).verdict() == v1::ResultVerdict::REJECTED);
  CHECK_THAT(refused->verdicts(0).message(), Contains("somebody else's"));
  // It is still there for whom it belongs to.
  request = Ask("a", 0);
  *request.add_results() = Result(of_ann, 1);
  request.mutable_results(0)->set_upload_id(started.upload_id());
  const auto accepted = SyncAs(server, ann, request);
  REQUIRE(accepted.ok());
  CHECK(accepted->verdicts(0).verdict() == v1::ResultVerdict::ACCEPTED);
}

TEST_CASE("Who does not reach a population is neither shown its rounds and tasks nor changes them") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.set_population("other");
  const std::string round = server.CreateRound(spec);
  Identity identity;
  identity.name = "ann";
  identity.populations = {"lab"};
  const IdentityPtr ann = std::make_shared<Identity>(identity);
  const auto ask = [&](const std::string& method, const google::protobuf::Message& request,
                       google::protobuf::Message& response) {
    std::optional<absl::Status> answer;
    server.dispatcher().Dispatch("sheaf.v1." + method, {.caller = ann}, request, &response,
                                 [&](const absl::Status& status) { answer = status; });
    server.Run();
    REQUIRE(answer.has_value());
    return *answer;
  };
  const auto denied = [&](const std::string& method, auto request, auto response) {
    INFO(method);
    CHECK(ask(method, request, response).code() == absl::StatusCode::kPermissionDenied);
  };
  const auto of_round = [&](auto request) {
    request.set_round(round);
    return request;
  };
  const auto of_task = [&](auto request) {
    request.set_task(round + "/0");
    return request;
  };
  denied("RoundService/GetRound", of_round(v1::GetRoundRequest()), v1::GetRoundResponse());
  denied("RoundService/CancelRound", of_round(v1::CancelRoundRequest()), v1::CancelRoundResponse());
  denied("RoundService/ReadAggregate", of_round(v1::ReadAggregateRequest()), v1::ReadAggregateResponse());
  denied("InspectionService/ExplainRound", of_round(v1::ExplainRoundRequest()), v1::ExplainRoundResponse());
  denied("InspectionService/GetTask", of_task(v1::GetTaskRequest()), v1::GetTaskResponse());
  denied("InspectionService/RequeueTask", of_task(v1::RequeueTaskRequest()), v1::RequeueTaskResponse());
  CHECK(server.GetRound(round).state() == v1::COLLECTING);
  // Nor by guessing its request.
  v1::CreateRoundRequest guess;
  guess.set_request_id("request-1");
  *guess.mutable_spec() = SumRound(1);
  guess.mutable_spec()->set_population("lab");
  v1::CreateRoundResponse created;
  const absl::Status taken = ask("RoundService/CreateRound", guess, created);
  CHECK(taken.code() == absl::StatusCode::kAlreadyExists);
  CHECK_THAT(taken.ToString(), !Contains(round));
}

TEST_CASE("Without tokens a worker neither renews nor hands in what another one holds") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(1));
  const v1::Lease lease = server.Sync(Ask("a", 1)).leases(0);
  v1::SyncRequest foreign = Ask("b", 0);
  *foreign.add_held() = Held(lease, 5);
  *foreign.add_results() = Result(lease, 1);
  const v1::SyncResponse refused = server.Sync(foreign);
  CHECK(refused.held(0).verdict() == v1::LeaseUpdate::LOST);
  CHECK(refused.verdicts(0).verdict() == v1::ResultVerdict::LEASE_LOST);
  CHECK(server.GetRound(round).state() == v1::COLLECTING);
  v1::SyncRequest own = Ask("a", 0);
  *own.add_results() = Result(lease, 1);
  CHECK(server.Sync(own).verdicts(0).verdict() == v1::ResultVerdict::ACCEPTED);
  CHECK(server.Sync(own).verdicts(0).verdict() == v1::ResultVerdict::DUPLICATE);
  CHECK(server.Sync(foreign).verdicts(0).verdict() == v1::ResultVerdict::LEASE_LOST);
  CHECK(server.GetRound(round).state() == v1::SUCCEEDED);
}

TEST_CASE("A worker that speaks later protocols, too, is answered in the latest that the server serves") {
  CoreFederation server;
  server.CreateRound(SumRound(1));
  v1::SyncRequest later = Ask("w", 1);
  later.set_protocol_version(7);
  const auto answer = server.Call<v1::SyncResponse>("WorkService/Sync", later);
  INFO(answer.status().ToString());
  REQUIRE(answer.ok());
  CHECK(answer->protocol_version() == answer->protocol_version_max());
  CHECK(answer->leases_size() == 1);
  v1::SyncRequest earlier = Ask("w", 1);
  earlier.set_protocol_version(0);
  CHECK_THAT(server.Call<v1::SyncResponse>("WorkService/Sync", earlier).status().ToString(),
             Contains("protocol version 0") && Contains("upgrade the worker"));
}

TEST_CASE("A wait is 0 or longer, and no longer than poll_wait_max") {
  CoreFederation server;
  v1::SyncRequest negative = Ask("w", 1);
  negative.mutable_wait()->set_seconds(-1);
  const absl::Status refused = server.Call<v1::SyncResponse>("WorkService/Sync", negative).status();
  CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(refused.ToString(), Contains("wait is -1s") && Contains("0 to 1m"));
  v1::SyncRequest longer = Ask("w", 1);
  longer.mutable_wait()->set_seconds(3600);
  const auto poll = server.CallLater<v1::SyncResponse>("WorkService/Sync", longer);
  server.Advance(absl::Seconds(60));
  CHECK(poll->has_value());
}

TEST_CASE("A contribution that is too large to go inline is rejected, with what to do") {
  Limits limits;
  limits.inline_bytes_max = 20;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(SumRound(1));
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = Result(lease, 1);
  const v1::ResultVerdict verdict = server.Sync(request).verdicts(0);
  CHECK(verdict.verdict() == v1::ResultVerdict::REJECTED);
  CHECK_THAT(verdict.message(), Contains("inline_bytes_max = 20") && Contains("StartUpload"));
  CHECK(server.GetRound(round).num_failed_attempts() == 1);
}

TEST_CASE("A worker whose result was taken and that may wait is not told to pause before it does") {
  CoreFederation server;
  server.CreateRound(SumRound(2));
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  server.Sync(Ask("other", 1));
  v1::SyncRequest request = Ask("w", 1);
  *request.add_results() = Result(lease, 1);
  request.mutable_wait()->set_seconds(30);
  const v1::SyncResponse taken = server.Sync(request);
  REQUIRE(taken.verdicts_size() == 1);
  CHECK(FromProto(taken.next_max()) == absl::ZeroDuration());
  // One that may not wait takes its time.
  CHECK(FromProto(server.Sync(Ask("w", 1)).next_min()) == absl::Milliseconds(500));
  // And so does one that waits for nothing, because it may have no more.
  Limits limits;
  limits.leases_per_worker_max = 1;
  CoreFederation small(limits);
  small.CreateRound(SumRound(2));
  const v1::Lease only = small.Sync(Ask("w", 1)).leases(0);
  v1::SyncRequest more = Ask("w", 1);
  *more.add_held() = Held(only, 1);
  more.mutable_wait()->set_seconds(30);
  CHECK(FromProto(small.Sync(more).next_max()) > absl::ZeroDuration());
}

TEST_CASE("Leases that are sent again count as wanted") {
  CoreFederation server;
  server.CreateRound(SumRound(3));
  REQUIRE(server.Sync(Ask("w", 2)).leases_size() == 2);
  // The answer got lost: the worker knows of none, and wants three.
  CHECK(server.Sync(Ask("w", 3)).leases_size() == 3);
  CHECK(server.Sync(Ask("w", 1)).leases_size() == 3);
}

TEST_CASE("A round that can no longer reach min_goal fails at once, and hands out nothing more") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(4);
  spec.set_goal(4);
  spec.set_min_goal(3);
  const std::string round = server.CreateRound(spec);
  const auto fail_one = [&] {
    v1::SyncRequest request = Ask("w", 0);
    *request.add_results() = Failure(server.Sync(Ask("w", 1)).leases(0), "no such data", true);
    server.Sync(request);
  };
  fail_one();
  CHECK(server.GetRound(round).state() == v1::COLLECTING);
  fail_one();
  CHECK(server.GetRound(round).state() == v1::FAILED);
  CHECK_THAT(server.GetRound(round).error(), Contains("2 of 4 tasks failed for good") && Contains("min_goal is 3"));
  CHECK(server.Sync(Ask("w", 1)).leases().empty());
}

TEST_CASE("A round of which buried tasks may be requeued goes on") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(2);
  spec.mutable_retry()->set_failed_max(1);
  const std::string round = server.CreateRound(spec);
  const v1::Lease buried = server.Sync(Ask("w", 1)).leases(0);
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = Failure(buried, "broken");
  server.Sync(request);
  CHECK(server.GetTask(buried.task()).state() == v1::BURIED);
  CHECK(server.GetRound(round).state() == v1::COLLECTING);
  CHECK(server.Sync(Ask("w", 1)).leases_size() == 1);
}

absl::StatusOr<v1::CreateRoundResponse> Create(CoreFederation& server, const v1::RoundSpec& spec,
                                               const std::string& id = "again") {
  v1::CreateRoundRequest request;
  request.set_request_id(id);
  *request.mutable_spec() = spec;
  return server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
}

TEST_CASE("A request_id that comes again with another spec is refused, naming the difference") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(3);
  spec.set_job("train");
  spec.mutable_lease_duration()->set_seconds(10);
  (*spec.mutable_listed()->mutable_tasks(1)->mutable_requirements())["gpu"] = "yes";
  const std::string round = Create(server, spec)->round().id();
  CHECK(Create(server, spec)->round().id() == round);
  const auto differs = [&](const v1::RoundSpec& other) {
    const absl::Status status = Create(server, other).status();
    CHECK(status.code() == absl::StatusCode::kAlreadyExists);
    CHECK_THAT(status.ToString(), Contains(round) && Contains("choose another request_id"));
    return status.ToString();
  };
  v1::RoundSpec goal = spec;
  goal.set_goal(2);
  CHECK_THAT(differs(goal), Contains("goal: 3 -> 2"));
  v1::RoundSpec job = spec;
  job.clear_job();
  CHECK_THAT(differs(job), Contains("job"));
  v1::RoundSpec lease = spec;
  lease.mutable_lease_duration()->set_seconds(11);
  CHECK_THAT(differs(lease), Contains("lease_duration"));
  v1::RoundSpec output = spec;
  output.mutable_aggregate()->mutable_outputs(0)->set_dense_shape(0, 5);
  CHECK_THAT(differs(output), Contains("dense_shape"));
  v1::RoundSpec tasks = spec;
  tasks.mutable_listed()->add_tasks();
  differs(tasks);
  v1::RoundSpec payload = spec;
  payload.mutable_listed()->mutable_tasks(2)->set_payload("other");
  CHECK_THAT(differs(payload), Contains("listed.tasks[2].payload"));
  v1::RoundSpec requirement = spec;
  (*requirement.mutable_listed()->mutable_tasks(1)->mutable_requirements())["gpu"] = "no";
  CHECK_THAT(differs(requirement), Contains("listed.tasks[1].requirements"));
  v1::RoundSpec slots = spec;
  slots.mutable_open_slots()->set_count(3);
  differs(slots);
  // Also when it has ended, and after a restart.
  server.CrashAndRestart();
  CHECK(Create(server, spec)->round().id() == round);
  CHECK_THAT(differs(goal), Contains("goal: 3 -> 2"));
}

TEST_CASE("A call that is repeated gets its round, also from a server with other defaults") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(2);
  spec.mutable_retry()->set_failed_max(7);
  const std::string round = Create(server, spec)->round().id();
  // As a server with other limits would have written them out, or an older one would not have.
  auto stored = server.store().GetRound(RoundId(round));
  v1::RoundSpec older = DecodeSpec(*stored).value();
  older.mutable_lease_duration()->set_seconds(77);
  older.mutable_attempt_deadline()->set_seconds(78);
  older.mutable_retry()->set_lost_max(79);
  older.set_contribution_bytes_max(80'000);
  older.clear_over_selection();
  TaskStore::CreateRoundParams params{.round = *stored};
  params.round.id = RoundId("r-older");
  params.round.request_id = "of an older server";
  params.round.spec = EncodeSpec(older);
  params.tasks = {{.data_selector = "client:0"}, {.data_selector = "client:1"}};
  REQUIRE(server.store().BeginBatch().ok());
  REQUIRE(server.store().CreateRound(params).ok());
  REQUIRE(server.store().CommitBatch().ok());
  const auto again = Create(server, spec, "of an older server");
  INFO(again.status().ToString());
  REQUIRE(again.ok());
  CHECK(again->round().id() == "r-older");
  v1::RoundSpec other = spec;
  other.mutable_retry()->set_lost_max(3);
  CHECK_THAT(Create(server, other, "of an older server").status().ToString(), Contains("lost_max: 79 -> 3"));
}

}  // namespace
}  // namespace sheaf
