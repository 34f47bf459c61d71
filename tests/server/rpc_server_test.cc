// The server as gRPC clients see it: health, reflection, errors, broken connections.
#include <google/protobuf/empty.pb.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/wrappers.pb.h>
#include <poll.h>

#include <catch2/catch.hpp>
#include <string>

#include "base/retry_hint.h"
#include "server/rpc/grpc_server.h"
#include "tests/server/raw_connection.h"
#include "tests/server/running_server.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

// grpc.health.v1: the request is {string service = 1}, the answer {enum status = 1}; the wrappers have the same bytes.
enum class Health { kUnknown = 0, kServing = 1, kNotServing = 2 };
absl::StatusOr<Health> HealthOf(Transport& transport, const std::string& service) {
  google::protobuf::StringValue request;
  request.set_value(service);
  google::protobuf::Int32Value response;
  const absl::Status status = BlockingCallMethod(transport, "grpc.health.v1.Health/Check", request, &response, {});
  if (!status.ok()) return status;
  return static_cast<Health>(response.value());
}

TEST_CASE("Health checks answer for the server and for each service") {
  RunningServer server;
  for (const std::string service :
       {"", "sheaf.v1.WorkService", "sheaf.v1.BlobService", "sheaf.v1.RoundService", "sheaf.v1.InspectionService"}) {
    INFO("service " << service);
    const auto health = HealthOf(server.transport(), service);
    REQUIRE(health.ok());
    CHECK(*health == Health::kServing);
  }
  CHECK(HealthOf(server.transport(), "sheaf.v1.NoSuchService").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("Reflection lists the services to those who have no proto files") {
  RunningServer server;
  // {string list_services = 7}; a stream of one message each way is, on the wire, a unary call.
  google::protobuf::Empty request;
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(7, "*");
  google::protobuf::Empty response;
  const absl::Status status = BlockingCallMethod(
      server.transport(), "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", request, &response, {});
  REQUIRE(status.ok());
  const std::string listed = response.SerializeAsString();
  for (const std::string service :
       {"sheaf.v1.WorkService", "sheaf.v1.BlobService", "sheaf.v1.RoundService", "sheaf.v1.InspectionService"}) {
    CHECK_THAT(listed, Contains(service));
  }
}

TEST_CASE("A connection has calls_per_connection_max calls open; more of them wait, and other connections do not") {
  Limits limits;
  limits.calls_per_connection_max = 3;
  RunningServer server(limits);
  std::vector<std::future<absl::StatusOr<v1::SyncResponse>>> parked;
  for (int i = 0; i < 3; ++i) {
    parked.push_back(CallLater(server.transport(), kSync, AParkedPoll("w" + std::to_string(i))));
  }
  GrpcTransport other(server.address(), {.own_connection = true});
  WaitForParkedPolls(other, 3);
  auto fourth = CallLater(server.transport(), kGetServerInfo, {});
  CHECK(fourth.wait_for(std::chrono::milliseconds(200)) == std::future_status::timeout);
  CHECK(BlockingCall(other, kGetServerInfo, {}).ok());
  // One of them ends: a newer poll of the same worker.
  REQUIRE(BlockingCall(other, kSync, AParkedPoll("w1", 0)).ok());
  CHECK(fourth.get().ok());
}

// Machines that test are busy.
template <typename Condition>
void WaitUntil(const std::string& what, Condition condition) {
  const SystemClock clock;
  const absl::Time give_up = clock.Now() + absl::Seconds(60);
  while (!condition()) {
    if (clock.Now() > give_up) FAIL("never: " << what);
    ::poll(nullptr, 0, 5);
  }
}

TEST_CASE("What arrives beyond receive_bytes_max is given up, and is to be tried again") {
  Limits limits;
  limits.receive_bytes_max = 1 << 20;
  RunningServer server(limits);
  v1::CreateRoundRequest large = ARound("large");
  large.mutable_spec()->mutable_listed()->mutable_tasks(0)->set_payload(std::string(6 << 20, 'x'));
  const absl::Status given_up = BlockingCall(server.transport(), kCreateRound, large).status();
  INFO(given_up.ToString());
  CHECK(given_up.code() == absl::StatusCode::kResourceExhausted);
  CHECK(RetryAfter(given_up).has_value());
  CHECK(BlockingCall(server.transport(), kCreateRound, ARound("small")).ok());
}

TEST_CASE("A connection without a call is ended after connection_idle_max; one whose poll waits is not") {
  Limits limits;
  limits.connection_idle_max = absl::Milliseconds(500);
  RunningServer server(limits);
  GrpcTransport busy(server.address(), {.own_connection = true});
  auto parked = CallLater(busy, kSync, AParkedPoll("w1"));
  GrpcTransport other(server.address(), {.own_connection = true});
  WaitForParkedPolls(other, 1);
  // Strangers who get through the handshake: one never calls, one begins to, and never comes to what.
  RawConnection silent(server.address());
  silent.Send(kHttp2Preface);
  silent.Send(kEmptySettings);
  RawConnection halfway(server.address());
  halfway.Send(kHttp2Preface);
  halfway.Send(kEmptySettings);
  halfway.Send(kHalfHeaders);
  WaitUntil("they are hung up on", [&] { return silent.IsOver() && halfway.IsOver(); });
  // Who was ended so connects anew for the next call.
  CHECK(BlockingCall(other, kGetServerInfo, {}).ok());
  // This one has been there for longer.
  CHECK(parked.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  WaitForParkedPolls(other, 1);
  REQUIRE(BlockingCall(other, kCreateRound, ARound("round")).ok());
  const absl::StatusOr<v1::SyncResponse> granted = parked.get();
  INFO(granted.status().ToString());
  REQUIRE(granted.ok());
  CHECK(granted->leases_size() == 1);
}

TEST_CASE("Connections that do not get through the handshake in handshake_timeout are hung up on") {
  Limits limits;
  limits.handshake_timeout = absl::Milliseconds(500);
  RunningServer server(limits);
  RawConnection silent(server.address());
  RawConnection halfway(server.address());
  halfway.Send(kHttp2Preface.substr(0, 10));
  RawConnection through(server.address());
  through.Send(kHttp2Preface);
  through.Send(kEmptySettings);
  WaitUntil("they are hung up on", [&] { return silent.IsOver() && halfway.IsOver(); });
  CHECK_FALSE(through.IsOver());
}

TEST_CASE("Polls that wait leave most of the bytes of open requests to those that work, and inspection goes on") {
  Limits limits;
  limits.open_request_bytes_max = 100'000;
  RunningServer server(limits);
  constexpr int kPolls = 48;
  std::vector<std::future<absl::StatusOr<v1::SyncResponse>>> polls;
  int num_sent_away = 0;
  for (int i = 0; i < kPolls; ++i) {
    v1::SyncRequest poll = AParkedPoll("w" + std::to_string(i));
    (*poll.mutable_labels())["zone"] = std::string(2000, 'z');
    polls.push_back(CallLater(server.transport(), kSync, poll));
    // One after the other: what is refused here is refused for what waits, and not for what arrives.
    while (polls.back().wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
      const auto queue = BlockingCall(server.transport(), kDescribeQueue, {});
      REQUIRE(queue.ok());
      if (queue->num_parked_polls() + num_sent_away == i + 1) break;
    }
    if (polls.back().wait_for(std::chrono::seconds(0)) != std::future_status::ready) continue;
    ++num_sent_away;
    const absl::StatusOr<v1::SyncResponse> answer = polls.back().get();
    INFO(answer.status().ToString());
    REQUIRE(answer.ok());
    CHECK(answer->next_min().seconds() >= 5);
  }
  CHECK(num_sent_away > kPolls / 2);
  CHECK(num_sent_away < kPolls - 5);
  // Most of them are free.
  v1::CreateRoundRequest large = ARound("round");
  large.mutable_spec()->mutable_listed()->mutable_tasks(0)->set_payload(std::string(60'000, 'x'));
  const absl::Status created = BlockingCall(server.transport(), kCreateRound, large).status();
  INFO(created.ToString());
  CHECK(created.ok());
  CHECK(BlockingCall(server.transport(), kGetServerInfo, {})->num_refused_calls() == 0);
}

TEST_CASE("A port that is in use is an error with a remedy") {
  RunningServer first;
  SystemClock clock;
  SystemRandom random;
  MemoryTaskStore store;
  MemoryPayloadStore payloads;
  const auto second = Runtime::Start(store, payloads, clock, random, {.listen = first.address()});
  REQUIRE(second.status().code() == absl::StatusCode::kUnavailable);
  CHECK(std::string(second.status().message()) ==
        "cannot listen on " + first.address() +
            ": the port is in use; choose another with --listen or stop the other server");
}

TEST_CASE("An address of another machine is an error with a remedy") {
  SystemClock clock;
  SystemRandom random;
  MemoryTaskStore store;
  MemoryPayloadStore payloads;
  const auto server = Runtime::Start(store, payloads, clock, random, {.listen = "192.0.2.1:0"});
  REQUIRE(server.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(server.status().message()), Contains("192.0.2.1:0") && Contains("--listen"));
}

TEST_CASE("An error arrives with the code and the sentence that the server gave") {
  RunningServer server;
  v1::GetRoundRequest request;
  request.set_round("r-aaaaaaaa");
  const auto round = BlockingCall(server.transport(), kGetRound, request);
  CHECK(round.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(round.status().message()), Contains("r-aaaaaaaa"));
}

TEST_CASE("A refusal that time will cure says over the wire when to come back; a final one does not") {
  Limits limits;
  limits.workers_max = 1;
  limits.worker_bytes_max = 1000;
  RunningServer server(limits);
  v1::SyncRequest poll = AParkedPoll("first", 0);
  REQUIRE(BlockingCall(server.transport(), kSync, poll).ok());
  poll.set_worker("second");
  const absl::Status refused = BlockingCall(server.transport(), kSync, poll).status();
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK(RetryAfter(refused) == absl::Seconds(30));
  (*poll.mutable_labels())["zone"] = std::string(1000, 'z');
  const absl::Status final_refusal = BlockingCall(server.transport(), kSync, poll).status();
  CHECK(final_refusal.code() == absl::StatusCode::kResourceExhausted);
  CHECK_FALSE(RetryAfter(final_refusal).has_value());
}

TEST_CASE("A request that is too large is refused with the limit and the remedy, and the server serves on") {
  RunningServer server;
  for (const int megabytes : {9, 40}) {
    INFO(megabytes << " MiB");
    v1::CreateRoundRequest request = ARound("round");
    request.mutable_spec()->mutable_listed()->mutable_tasks(0)->set_payload(std::string(megabytes << 20, 'x'));
    const absl::Status status = BlockingCall(server.transport(), kCreateRound, request).status();
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK_THAT(std::string(status.message()),
               Contains("fewer tasks") && Contains(megabytes == 9 ? "8388608" : "33554432"));
  }
  CHECK(BlockingCall(server.transport(), kGetServerInfo, {}).ok());
}

TEST_CASE("A worker that vanishes while its call is parked is not given a task; the next worker is") {
  RunningServer server;
  GrpcTransport operator_transport(server.address(), {.own_connection = true});
  auto parked = CallLater(server.transport(), kSync, AParkedPoll("vanishing"));
  WaitForParkedPolls(operator_transport, 1);
  server.Disconnect();
  CHECK_FALSE(parked.get().ok());
  WaitForParkedPolls(operator_transport, 0);
  REQUIRE(BlockingCall(operator_transport, kCreateRound, ARound("round")).ok());
  const auto next = BlockingCall(operator_transport, kSync, AParkedPoll("next", 0));
  REQUIRE(next.ok());
  REQUIRE(next->leases_size() == 1);
  CHECK(next->leases(0).attempt() == 1);
  CHECK(server.runtime().Stop().ok());
}

}  // namespace
}  // namespace sheaf
