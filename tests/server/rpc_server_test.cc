// The server as gRPC clients see it: health, reflection, errors, broken connections.
#include <google/protobuf/empty.pb.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/wrappers.pb.h>

#include <catch2/catch.hpp>
#include <string>

#include "server/rpc/grpc_server.h"
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

TEST_CASE("A connection without a call is ended after connection_idle_max, and made again for the next") {
  Limits limits;
  limits.connection_idle_max = absl::Milliseconds(100);
  RunningServer server(limits);
  // While a call is open it is not idle.
  REQUIRE(BlockingCall(server.transport(), kSync, AParkedPoll("w1", 1)).ok());
  REQUIRE(BlockingCall(server.transport(), kGetServerInfo, {}).ok());
  GrpcTransport other(server.address(), {.own_connection = true});
  auto parked = CallLater(server.transport(), kSync, AParkedPoll("w2", 1));
  CHECK(parked.get().ok());
  CHECK(BlockingCall(other, kGetServerInfo, {}).ok());
}

TEST_CASE("A port that is in use is an error with a remedy") {
  RunningServer first;
  SystemClock clock;
  SystemRandom random;
  MemoryTaskStore store;
  MemoryPayloadStore payloads(clock);
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
  MemoryPayloadStore payloads(clock);
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
