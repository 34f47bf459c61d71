// An identity that overloads the server by HTTP, and workers of another one by gRPC.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <future>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/http/http_client.h"
#include "tests/server/running_server.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

// A token of that name; its secret.
std::string MakeToken(Transport& transport, const std::string& name, v1::Role role) {
  v1::CreateTokenRequest request;
  request.set_request_id(name);
  request.set_name(name);
  request.add_roles(role);
  const auto response = BlockingCall(transport, kCreateToken, request);
  INFO(response.status().ToString());
  REQUIRE(response.ok());
  return response->secret();
}

class TokenFileOf {
 public:
  TokenFileOf(const std::string& name, const std::string& secret) : path_(name + ".overload.token") {
    std::ofstream(path_) << secret;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  ~TokenFileOf() { std::filesystem::remove(path_); }
  ChannelOptions options() const { return {.security = {.token_file = path_}, .own_connection = true}; }

 private:
  const std::string path_;
};

// Connections that call all at once, again and again, whatever they are answered.
class Crowd {
 public:
  Crowd(const std::string& address, const std::string& secret, int num_connections) {
    // Many results of which each is looked up: more work for the core than for the transport.
    v1::SyncRequest poll = AParkedPoll("crowd", 0);
    poll.set_want(0);
    for (int i = 0; i < 256; ++i) {
      v1::TaskResult& result = *poll.add_results();
      result.set_task("r-0000000" + std::to_string(i) + "/0");
      result.set_lease_token(std::to_string(i));
    }
    request_ = Post("/sheaf.v1.WorkService/Sync", "application/proto", poll.SerializeAsString(),
                    "authorization: Bearer " + secret + "\r\n");
    for (int i = 0; i < num_connections; ++i) clients_.emplace_back(address);
  }

  void Send() {
    for (HttpClient& client : clients_) client.Send(request_);
  }
  // What all of them are answered: done, or refused.
  void Receive() {
    for (HttpClient& client : clients_) {
      HttpAnswer answer = client.Receive();
      INFO(answer.body);
      REQUIRE((answer.status == 200 || answer.status == 429));
      ++(answer.status == 200 ? num_done_ : num_refused_);
      if (answer.status == 429) refusal_ = std::move(answer);
    }
  }

  int num_done() const { return num_done_; }
  int num_refused() const { return num_refused_; }
  // The last one.
  const HttpAnswer& refusal() const { return refusal_; }

 private:
  std::string request_;
  std::list<HttpClient> clients_;
  int num_done_ = 0;
  int num_refused_ = 0;
  HttpAnswer refusal_;
};

// By gRPC: hands in what it holds, and takes one more.
class Worker {
 public:
  Worker(Transport& transport, const std::string& name) : transport_(transport), poll_(AParkedPoll(name, 0)) {}

  void Send() {
    poll_.set_poll_id(std::to_string(++num_polls_));
    answer_ = CallLater(transport_, kSync, poll_);
  }
  // It was let in, and what it handed in was accepted: whether there was something.
  bool Receive() {
    const absl::StatusOr<v1::SyncResponse> response = answer_.get();
    INFO(response.status().ToString());
    REQUIRE(response.ok());
    poll_.clear_results();
    for (const v1::Lease& lease : response->leases()) {
      v1::TaskResult& result = *poll_.add_results();
      result.set_task(lease.task());
      result.set_lease_token(lease.lease_token());
      v1::Contribution contribution;
      v1::OutputValue& output = *contribution.add_outputs();
      output.set_name("x");
      output.mutable_dense()->set_dtype(v1::FLOAT32);
      output.mutable_dense()->set_data(std::string(4, '\0'));
      result.set_contribution(contribution.SerializeAsString());
    }
    for (const v1::ResultVerdict& verdict : response->verdicts()) {
      REQUIRE(verdict.verdict() == v1::ResultVerdict::ACCEPTED);
    }
    return response->verdicts_size() > 0;
  }

 private:
  Transport& transport_;
  v1::SyncRequest poll_;
  int num_polls_ = 0;
  std::future<absl::StatusOr<v1::SyncResponse>> answer_;
};

TEST_CASE("While an identity overloads the server by HTTP, another's workers by gRPC all go on") {
  constexpr int kQueued = 50;
  constexpr int kConnections = 200;
  constexpr int kTasks = 40;
  Limits limits;
  limits.queued_calls_max = kQueued;
  RunningServer server(Runtime::Options{.http = "127.0.0.1:0", .limits = limits});
  const TokenFileOf admin("admin", MakeToken(server.transport(), "admin", v1::OPERATOR));
  GrpcTransport operators(server.address(), admin.options());
  const std::string of_crowd = MakeToken(operators, "crowd", v1::WORKER);
  const TokenFileOf of_fleet("fleet", MakeToken(operators, "fleet", v1::WORKER));
  const TokenFileOf of_program("program", MakeToken(operators, "program", v1::SUBMITTER));
  GrpcTransport program(server.address(), of_program.options());

  GrpcTransport fleet(server.address(), of_fleet.options());
  REQUIRE(BlockingCall(program, kCreateRound, ARound("round", kTasks)).ok());
  Crowd crowd(server.http_address(), of_crowd, kConnections);
  std::vector<Worker> workers;
  for (int i = 0; i < 4; ++i) workers.emplace_back(fleet, "worker-" + std::to_string(i));
  int num_accepted = 0;
  for (int tries = 0; num_accepted < kTasks || crowd.num_refused() == 0; ++tries) {
    REQUIRE(tries < 1000);
    crowd.Send();
    for (Worker& worker : workers) worker.Send();
    for (Worker& worker : workers) num_accepted += worker.Receive() ? 1 : 0;
    crowd.Receive();
  }

  // What was let in was done, and what was not heard why, and when to come back.
  CHECK(crowd.num_done() > 0);
  CHECK_THAT(crowd.refusal().body, Contains("resource_exhausted") && Contains("queued_calls_max = 50") &&
                                       Contains("crowd") && Contains("RetryInfo"));
  CHECK(crowd.refusal().field("grpc-retry-pushback-ms") != "");
}

}  // namespace
}  // namespace sheaf
