// The server as gRPC clients see it: health, reflection, errors, broken connections.
#include <google/protobuf/empty.pb.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/wrappers.pb.h>
#include <poll.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/retry_hint.h"
#include "server/rpc/grpc_server.h"
#include "tests/server/raw_connection.h"
#include "tests/server/running_server.h"
#include "tests/server/unread_calls.h"

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

// A call of a stream, of which the answer is read as if it were no stream.
absl::Status Reflect(Transport& transport) {
  google::protobuf::Empty request;
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(7, "*");
  google::protobuf::Empty response;
  return BlockingCallMethod(transport, "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", request,
                            &response, {});
}

TEST_CASE("Reflection gives the file of a message, with all that it imports") {
  RunningServer server;
  for (const auto& [field, name] :
       {std::pair(4, "sheaf.v1.SyncRequest"), std::pair(3, "sheaf/v1/work_service.proto")}) {
    google::protobuf::Empty request;
    request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(field, name);
    google::protobuf::Empty response;
    REQUIRE(BlockingCallMethod(server.transport(), "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                               request, &response, {})
                .ok());
    const std::string files = response.SerializeAsString();
    for (const std::string imported : {"sheaf/v1/work_service.proto", "google/protobuf/duration.proto"}) {
      INFO(imported);
      CHECK((files.find(imported) != std::string::npos));
    }
  }
}

TEST_CASE("Once there are tokens, reflection needs one, and health checks need none") {
  RunningServer server;
  CHECK(Reflect(server.transport()).ok());
  v1::CreateTokenRequest create;
  create.set_request_id("token");
  create.set_name("admin");
  create.add_roles(v1::OPERATOR);
  const auto token = BlockingCall(server.transport(), kCreateToken, create);
  REQUIRE(token.ok());
  CHECK(Reflect(server.transport()).code() == absl::StatusCode::kUnauthenticated);
  const std::string file = Catch::getResultCapture().getCurrentTestName() + ".token";
  std::ofstream(file) << token->secret();
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  GrpcTransport with_token(server.address(), {.security = {.token_file = file}, .own_connection = true});
  CHECK(Reflect(with_token).ok());
  std::filesystem::remove(file);
  CHECK(HealthOf(server.transport(), "").ok());
}

TEST_CASE("Reflection streams have a bound") {
  Limits limits;
  limits.reflection_streams_max = 2;
  RunningServer server(limits);
  UnreadCalls streams(server.address());
  for (int i = 0; i < 2; ++i) streams.Begin("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  absl::Status refused;
  WaitUntil("they are open", [&] {
    refused = Reflect(server.transport());
    return !refused.ok();
  });
  CHECK(refused.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(refused.message()), Contains("reflection_streams_max = 2"));
}

TEST_CASE("Health watches have a bound, and Check goes on beyond it") {
  Limits limits;
  limits.health_watches_max = 2;
  RunningServer server(limits);
  const auto watch = [&] {
    google::protobuf::StringValue request;
    google::protobuf::Int32Value response;
    return BlockingCallMethod(server.transport(), "grpc.health.v1.Health/Watch", request, &response,
                              {.timeout = absl::Milliseconds(100)});
  };
  {
    UnreadCalls watches(server.address());
    for (int i = 0; i < 2; ++i) watches.Call("grpc.health.v1.Health/Watch", "");
    absl::Status refused;
    WaitUntil("they are open", [&] {
      refused = watch();
      return absl::IsResourceExhausted(refused);
    });
    CHECK_THAT(std::string(refused.message()), Contains("health_watches_max = 2"));
    CHECK(*HealthOf(server.transport(), "") == Health::kServing);
  }
  WaitUntil("they are gone", [&] { return absl::IsDeadlineExceeded(watch()); });
  CHECK(server.runtime().Stop().ok());
}

TEST_CASE("Files that are hashed keep no other call waiting") {
  Limits limits;
  limits.call_threads_max = 2;
  RunningServer server(limits);
  GrpcTransport uploader(server.address(), {.own_connection = true});
  // Some tenths of a second of a core each.
  constexpr int64_t kBytes = 48 << 20;
  const std::string chunk(size_t{2} << 20, 'x');
  std::vector<std::string> uploads;
  for (int i = 0; i < 6; ++i) {
    v1::StartUploadRequest start;
    start.set_request_id("upload-" + std::to_string(i));
    start.set_size_bytes(kBytes);
    start.set_digest(Sha256Hex(start.request_id()));
    const auto started = BlockingCall(uploader, kStartUpload, start);
    REQUIRE(started.ok());
    uploads.push_back(started->upload_id());
    for (int64_t offset = 0; offset < kBytes; offset += static_cast<int64_t>(chunk.size())) {
      v1::WriteChunkRequest write;
      write.set_upload_id(uploads.back());
      write.set_offset(offset);
      write.set_data(chunk);
      REQUIRE(BlockingCall(uploader, kWriteChunk, write).ok());
    }
  }
  std::vector<std::future<absl::StatusOr<v1::FinishUploadResponse>>> finished;
  for (const std::string& upload : uploads) {
    v1::FinishUploadRequest finish;
    finish.set_upload_id(upload);
    finished.push_back(CallLater(uploader, kFinishUpload, finish));
  }
  const SystemClock clock;
  const auto is_hashing = [&] {
    return finished.back().wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  };
  std::vector<absl::Duration> took;
  while (is_hashing()) {
    const absl::Time start = clock.Now();
    REQUIRE(BlockingCall(server.transport(), kSync, AParkedPoll("w", 0)).ok());
    took.push_back(clock.Now() - start);
  }
  // They are others than announced, which is known only when they are hashed.
  for (auto& answer : finished) CHECK(answer.get().status().code() == absl::StatusCode::kDataLoss);
  std::sort(took.begin(), took.end());
  CHECK(took.size() > 5);
  INFO("of " << took.size() << " calls the slowest took " << absl::FormatDuration(took.back()));
  // gRPC's own threads, which used to hash, are two on a machine of two cores.
  CHECK(took[took.size() * 9 / 10] < absl::Milliseconds(100));
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
