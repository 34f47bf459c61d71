// How a round is created: what a spec may say, and that the same request gets the same round.
#include <google/protobuf/unknown_field_set.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "aggregation/wire/safetensors.h"
#include "base/checksum.h"
#include "proto/time.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

absl::Status StatusOfCreate(CoreFederation& server, const v1::RoundSpec& spec) {
  v1::CreateRoundRequest request;
  request.set_request_id("r");
  *request.mutable_spec() = spec;
  return server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request).status();
}

TEST_CASE("The same request_id gets the same round") {
  CoreFederation server;
  v1::CreateRoundRequest request;
  request.set_request_id("once");
  *request.mutable_spec() = SumRound(1);
  const auto first = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  const auto again = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  REQUIRE(first->round().id() == again->round().id());
}

// Of one tensor.
std::string Broadcast(float value) {
  NamedTensor w{.name = "w", .dtype = v1::FLOAT32, .shape = {1}, .data = std::string(sizeof(value), '\0')};
  std::memcpy(w.data.data(), &value, sizeof(value));
  return EncodeSafetensors(std::vector<NamedTensor>{w}, {});
}

TEST_CASE("A broadcast that comes with the request is stored, and is the round's") {
  CoreFederation server;
  v1::CreateRoundRequest request;
  request.set_request_id("once");
  *request.mutable_spec() = SumRound(1);
  request.set_broadcast(Broadcast(1));
  const std::string digest = Sha256Hex(request.broadcast());
  const auto first = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  REQUIRE(first.ok());
  CHECK(first->round().spec().broadcast_digest() == digest);
  v1::ReadBlobRequest read;
  read.set_digest(digest);
  CHECK(server.Call<v1::ReadBlobResponse>("BlobService/ReadBlob", read)->data() == request.broadcast());

  INFO("the same request gets the same round; so does one that names what was stored");
  CHECK(server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request)->round().id() == first->round().id());
  request.mutable_spec()->set_broadcast_digest(digest);
  CHECK(server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request)->round().id() == first->round().id());
  request.clear_broadcast();
  CHECK(server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request)->round().id() == first->round().id());
  INFO("with another broadcast it is another request");
  request.mutable_spec()->clear_broadcast_digest();
  request.set_broadcast(Broadcast(2));
  CHECK(absl::IsAlreadyExists(server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request).status()));
}

TEST_CASE("A broadcast that comes with the request and cannot be one creates nothing, and says why") {
  Limits limits;
  limits.inline_bytes_max = 100;
  limits.safetensors_tensors_max = 1;
  CoreFederation server(limits);
  v1::CreateRoundRequest request;
  request.set_request_id("once");
  *request.mutable_spec() = SumRound(1);
  const auto refused = [&](const std::string& broadcast, const std::string& digest = "") {
    request.set_broadcast(broadcast);
    request.mutable_spec()->set_broadcast_digest(digest);
    const auto created = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
    REQUIRE_FALSE(created.ok());
    return created.status().ToString();
  };
  CHECK_THAT(refused(std::string(101, 'x')),
             Contains("101 bytes") && Contains("inline_bytes_max") && Contains("upload it (BlobService.StartUpload)"));
  CHECK_THAT(refused(std::string("\x08\0\0\0\0\0\0\0{\"w\":{}}", 16)), Contains("INVALID_ARGUMENT"));
  CHECK_THAT(refused(Broadcast(1), std::string(64, 'a')), Contains("leave it empty"));
  CHECK(server.payloads().ListBlobs()->empty());
}

TEST_CASE("A broadcast that comes with a request that only asks is checked and not stored") {
  CoreFederation server;
  v1::CreateRoundRequest request;
  request.set_request_id("once");
  *request.mutable_spec() = SumRound(1);
  request.set_validate_only(true);
  request.set_broadcast(Broadcast(1));
  CHECK(server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request).ok());
  CHECK(server.payloads().ListBlobs()->empty());
}

TEST_CASE("A broadcast that is deleted while its round is created is stored again") {
  CoreFederation server;
  HeldJobs& jobs = server.HoldJobs();
  v1::CreateRoundRequest request;
  request.set_request_id("once");
  *request.mutable_spec() = SumRound(1);
  request.set_broadcast(Broadcast(1));
  const auto answer = server.CallLater<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  REQUIRE_FALSE(answer->has_value());
  REQUIRE(jobs.RunNext());
  REQUIRE(server.payloads().DeleteBlob(Sha256Hex(request.broadcast())).ok());
  server.Run();
  REQUIRE_FALSE(answer->has_value());
  while (jobs.RunNext()) server.Run();
  REQUIRE(answer->has_value());
  CHECK((*answer)->ok());
  CHECK(server.payloads().HasBlob(Sha256Hex(request.broadcast())));
}

TEST_CASE("A repeated creation gets its round, also if that took the last room; another is refused") {
  Limits limits;
  limits.live_rounds_max = 1;
  CoreFederation server(limits);
  v1::CreateRoundRequest request;
  request.set_request_id("once");
  *request.mutable_spec() = SumRound(1);
  const auto first = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  const auto again = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  REQUIRE(again.ok());
  CHECK(first->round().id() == again->round().id());
  request.set_request_id("another");
  const auto other = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  CHECK(absl::IsResourceExhausted(other.status()));
}

TEST_CASE("A round of many tasks is created over several batches, and all who ask for it meanwhile get the same") {
  Limits limits;
  limits.tasks_per_batch_max = 2;
  CoreFederation server(limits);
  v1::CreateRoundRequest request;
  request.set_request_id("q");
  *request.mutable_spec() = SumRound(7);
  for (int i = 0; i < 7; ++i) {
    request.mutable_spec()->mutable_listed()->mutable_tasks(i)->set_payload(std::to_string(i));
  }
  v1::CreateRoundRequest other = request;
  other.mutable_spec()->mutable_listed()->mutable_tasks(6)->set_payload("7");
  v1::CreateRoundRequest wrong = request;
  wrong.mutable_spec()->clear_aggregate();
  const auto create = [&](const v1::CreateRoundRequest& asked) {
    return server.CallInOneBatch<v1::CreateRoundResponse>("RoundService/CreateRound", asked);
  };
  const auto first = create(request), second = create(request), third = create(other), fourth = create(wrong);
  CHECK_FALSE(first->has_value());
  server.Run();
  REQUIRE((first->has_value() && second->has_value() && third->has_value() && fourth->has_value()));
  REQUIRE((*first)->ok());
  REQUIRE((*second)->ok());
  CHECK((**first)->round().id() == (**second)->round().id());
  CHECK(absl::IsAlreadyExists((*third)->status()));
  CHECK_THAT(std::string((*third)->status().message()), Contains("listed.tasks[6].payload"));
  CHECK(absl::IsInvalidArgument((*fourth)->status()));
  CHECK(server.store().ListRounds({})->size() == 1);
  for (int i = 0; i < 7; ++i) {
    CHECK(server.store().GetTask({RoundId((**first)->round().id()), i})->payload == std::to_string(i));
  }

  // A server that ends before the last batch has created nothing.
  request.set_request_id("q2");
  const auto unanswered = create(request);
  server.CrashAndRestart();
  CHECK_FALSE(unanswered->has_value());
  CHECK(server.store().ListRounds({})->size() == 1);
  const auto again = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  REQUIRE(again.ok());
  CHECK(again->round().tasks().queued() == 7);
}

TEST_CASE("A round of many tasks for which there is no room any more when they are stored is not created") {
  Limits limits;
  limits.tasks_per_batch_max = 2;
  limits.live_rounds_max = 1;
  limits.population_percent_max = 100;
  CoreFederation server(limits);
  v1::CreateRoundRequest request;
  request.set_request_id("large");
  *request.mutable_spec() = SumRound(5);
  const auto large = server.CallInOneBatch<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  server.CreateRound(SumRound(1));
  server.Run();
  REQUIRE(large->has_value());
  CHECK(absl::IsResourceExhausted((*large)->status()));
  CHECK(server.store().ListRounds({})->size() == 1);
}

TEST_CASE("A wrong spec is refused with the field and the reason, and nothing is created") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(2);
  spec.mutable_aggregate()->mutable_outputs(0)->set_operator_("average");
  REQUIRE(absl::IsInvalidArgument(StatusOfCreate(server, spec)));
  REQUIRE_THAT(std::string(StatusOfCreate(server, spec).message()),
               Catch::Contains("average") && Catch::Contains("weighted_mean"));
  spec = SumRound(2);
  spec.set_goal(3);
  REQUIRE_THAT(std::string(StatusOfCreate(server, spec).message()), Catch::Contains("spec.goal is 3"));
  REQUIRE(absl::IsInvalidArgument(StatusOfCreate(server, SumRound(0))));
  spec = SumRound(1);
  spec.set_broadcast_digest(std::string(64, 'a'));
  REQUIRE(absl::IsNotFound(StatusOfCreate(server, spec)));
  REQUIRE(server.Call<v1::ListRoundsResponse>("RoundService/ListRounds", v1::ListRoundsRequest())->rounds().empty());
}

TEST_CASE("A number of tasks cannot be derived from a goal or a factor that is none") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(0);
  spec.mutable_open_slots();
  spec.set_goal(-5);
  CHECK_THAT(std::string(StatusOfCreate(server, spec).message()), Contains("spec.goal is -5"));
  spec.set_goal(5);
  for (const double factor : {std::nan(""), -2.0, 0.5, 101.0, 1e308, HUGE_VAL, -HUGE_VAL}) {
    spec.set_over_selection(factor);
    INFO(factor);
    CHECK_THAT(std::string(StatusOfCreate(server, spec).message()), Contains("spec.over_selection must lie between"));
  }
  spec.set_over_selection(100);
  spec.set_goal(INT32_MAX);
  CHECK_THAT(std::string(StatusOfCreate(server, spec).message()), Contains("tasks_per_round_max"));
}

TEST_CASE("The number of open slots is the goal times the over-selection, rounded up") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(0);
  spec.mutable_open_slots();
  spec.set_goal(5);
  CHECK(server.GetRound(server.CreateRound(spec)).tasks().queued() == 7);
  spec.set_over_selection(1.5);
  CHECK(server.GetRound(server.CreateRound(spec)).tasks().queued() == 8);
  spec.set_over_selection(1);
  CHECK(server.GetRound(server.CreateRound(spec)).tasks().queued() == 5);
}

TEST_CASE("The durations of a spec are kept in the form in which JSON can say them") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.mutable_deadline()->set_seconds(-1);
  spec.mutable_deadline()->set_nanos(2'000'000'000);
  spec.mutable_attempt_deadline()->set_seconds(1);
  spec.mutable_attempt_deadline()->set_nanos(-5);
  spec.mutable_lease_duration()->set_nanos(INT32_MAX);
  const v1::Round round = server.GetRound(server.CreateRound(spec));
  CHECK(HasJson(round));
  CHECK(FromProto(round.spec().deadline()) == absl::Seconds(1));
  CHECK(FromProto(round.spec().attempt_deadline()) == absl::Seconds(1) - absl::Nanoseconds(5));
  CHECK(FromProto(round.spec().lease_duration()) == absl::Nanoseconds(INT32_MAX));
}

TEST_CASE("What a server does not know of a spec is neither kept nor handed on") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  AddUnknown(spec, 1 << 20);
  AddUnknown(*spec.mutable_computation(), 1 << 20);
  AddUnknown(*spec.mutable_aggregate()->mutable_outputs(0), 1 << 20);
  AddUnknown(*spec.mutable_deadline(), 1 << 20);
  const std::string round = server.CreateRound(spec);
  CHECK(server.GetRound(round).ByteSizeLong() < 1000);
  const v1::SyncResponse granted = server.Sync(Ask("w", 1));
  REQUIRE(granted.leases_size() == 1);
  CHECK(granted.leases(0).ByteSizeLong() < 1000);
}

}  // namespace
}  // namespace sheaf
