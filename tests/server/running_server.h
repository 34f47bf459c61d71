// RunningServer: a whole server on a free port, in memory; and the calls tests make of it.
//
//   RunningServer server;
//   auto info = BlockingCall(server.transport(), kGetServerInfo, {});
//
// Create rounds and lease tasks with the builders below.
#pragma once

#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "sdk/cpp/client/grpc_transport.h"
#include "sdk/cpp/client/transport.h"
#include "server/runtime.h"
#include "storage/memory/memory_payload_store.h"
#include "storage/memory/memory_task_store.h"

namespace sheaf {

class RunningServer {
 public:
  explicit RunningServer(const Limits& limits = {}) : RunningServer(Runtime::Options{.limits = limits}) {}
  // `listen` is not the options' to say.
  explicit RunningServer(Runtime::Options options) {
    options.listen = "127.0.0.1:0";
    auto started = Runtime::Start(store_, *payloads_, clock_, random_, std::move(options));
    INFO(started.status().ToString());
    REQUIRE(started.ok());
    runtime_ = *std::move(started);
    transport_ = std::make_unique<GrpcTransport>(runtime_->address(), ChannelOptions{.own_connection = true});
  }

  Runtime& runtime() { return *runtime_; }
  Transport& transport() { return *transport_; }
  const std::string& address() const { return runtime_->address(); }
  const std::string& http_address() const { return runtime_->http_address(); }
  // As another server of the same store has them.
  const std::shared_ptr<MemoryPayloadStore>& payloads() { return payloads_; }
  // As if the client's process ended.
  void Disconnect() { transport_.reset(); }

 private:
  SystemClock clock_;
  SystemRandom random_;
  MemoryTaskStore store_;
  const std::shared_ptr<MemoryPayloadStore> payloads_ = std::make_shared<MemoryPayloadStore>();
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<GrpcTransport> transport_;
};

// A worker that asks for one task and waits for it.
inline v1::SyncRequest AParkedPoll(const std::string& worker, int wait_seconds = 50) {
  v1::SyncRequest request;
  request.set_protocol_version(1);
  request.set_worker(worker);
  request.set_poll_id("poll-1");
  request.set_want(1);
  request.mutable_wait()->set_seconds(wait_seconds);
  auto& computation = *request.add_computations();
  computation.set_name("noop");
  computation.set_version(1);
  return request;
}

// A round of `num_tasks` tasks that sums one scalar.
inline v1::CreateRoundRequest ARound(const std::string& request_id, int num_tasks = 1) {
  v1::CreateRoundRequest request;
  request.set_request_id(request_id);
  v1::RoundSpec& spec = *request.mutable_spec();
  spec.mutable_computation()->set_name("noop");
  v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
  output.set_name("x");
  output.set_operator_("sum");
  output.set_dtype(v1::FLOAT32);
  for (int i = 0; i < num_tasks; ++i) spec.mutable_listed()->add_tasks();
  return request;
}

// A call whose answer comes later.
template <typename M>
std::future<absl::StatusOr<typename M::Response>> CallLater(Transport& transport, const M& method,
                                                            const typename M::Request& request) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<typename M::Response>>>();
  Call(transport, method, request, {.timeout = absl::Seconds(60)},
       [promise](absl::StatusOr<typename M::Response> response) { promise->set_value(std::move(response)); });
  return promise->get_future();
}

// Waits until the server says that `count` polls are parked.
inline void WaitForParkedPolls(Transport& transport, int count) {
  for (int tries = 0; tries < 100'000; ++tries) {
    const auto queue = BlockingCall(transport, kDescribeQueue, {});
    REQUIRE(queue.ok());
    if (queue->num_parked_polls() == count) return;
  }
  FAIL("the poll was never parked");
}

}  // namespace sheaf
