// SharedServer: a server whose store several servers share. It lets callers in like any other, by the tokens of the
// store. While another server owns the store it forwards their calls there, and once the store is its own it serves
// them itself: over the same connections, so that its callers see nothing of it but a pause. So all servers of a store
// can be called, by any load balancer.
//
//   ASSIGN_OR_RETURN(auto server, SharedServer::Start(tokens, shared_payloads, clock, random,
//                                                     {.listen = "127.0.0.1:0"}));
//   server->SetOwner(owner);                      // Whenever it has changed.
//   RETURN_IF_ERROR(server->SetTokens(tokens));   // So have they.
//   server->Hold();                               // Its turn has come; whoever calls now waits for Serve.
//   RETURN_IF_ERROR(server->Serve(store, payloads, random));
//   RETURN_IF_ERROR(server->Stop());
//
// It is a Runtime that begins on an empty store in memory, of which nothing but the tokens is used. While it waits, it
// moves the bytes of uploads and broadcasts itself, between its callers and the payload store that it shares with the
// owner (local_transfers.h). Not thread-safe: main owns it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/random.h"
#include "server/rpc/grpc_forwarder.h"
#include "server/runtime.h"
#include "storage/memory/memory_payload_store.h"
#include "storage/memory/memory_task_store.h"
#include "storage/payload_store.h"
#include "storage/records.h"
#include "storage/task_store.h"

namespace sheaf {

class SharedServer {
 public:
  // `clock` and `random` must outlive it; only it uses `random` from now on. Without `payloads` it moves no bytes
  // itself. The codes of Runtime::Start.
  static absl::StatusOr<std::unique_ptr<SharedServer>> Start(const std::vector<TokenRecord>& tokens,
                                                             std::shared_ptr<PayloadStore> payloads, const Clock& clock,
                                                             Random& random, Runtime::Options options);

  // See Runtime.
  const std::string& address() const { return runtime_->address(); }
  const std::string& http_address() const { return runtime_->http_address(); }
  std::string Metrics() const { return runtime_->Metrics(); }

  void SetOwner(std::optional<GrpcForwarder::Owner> owner) { forwarder_.SetOwner(std::move(owner)); }
  absl::Status SetTokens(const std::vector<TokenRecord>& tokens) { return runtime_->SetTokens(tokens); }

  // Calls that are open at the owner before are answered UNAVAILABLE; others wait from now on. Returns at once.
  void Hold();
  // As Runtime::Serve.
  absl::Status Serve(TaskStore& store, PayloadStore& payloads, Random& random) {
    return runtime_->Serve(store, payloads, random);
  }

  // As Runtime::Stop; calls that are open at the owner are answered UNAVAILABLE.
  absl::Status Stop();
  // At once if Stop was not called. Waits for bytes that are on their way.
  ~SharedServer();

 private:
  SharedServer() = default;

  std::shared_ptr<PayloadStore> shared_payloads_;
  MemoryTaskStore store_;
  // Of its core, which has nothing: it must not see the shared ones, whose rounds it does not know.
  MemoryPayloadStore payloads_;
  GrpcForwarder forwarder_;
  std::unique_ptr<Runtime> runtime_;
};

}  // namespace sheaf
