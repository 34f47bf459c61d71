// Standby: a server whose turn at its store has not come. It lets callers in like any other, by the tokens of the
// store, and forwards their calls to the server that owns it. So all servers of a store can be called, by any load
// balancer.
//
//   ASSIGN_OR_RETURN(auto standby, Standby::Start(tokens, shared_payloads, clock, random, {.listen = "127.0.0.1:0"}));
//   standby->SetOwner(owner);                       // Whenever it has changed.
//   RETURN_IF_ERROR(standby->SetTokens(tokens));    // So have they.
//   Doors doors = standby->TakeDoors();  // Its turn has come; whoever calls now waits for Runtime::Start with these.
//   standby.reset();                     // Its connections close: who has one comes again, too.
//
// It is a Runtime on an empty store in memory, of which nothing but the tokens is used. The bytes of uploads and
// broadcasts it moves itself, between its callers and the payload store that it shares with the owner
// (local_transfers.h). Not thread-safe: main owns it.
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

namespace sheaf {

class Standby {
 public:
  // `clock` and `random` must outlive it; only it uses `random` from now on. Without `payloads` it moves no bytes
  // itself. The codes of Runtime::Start.
  static absl::StatusOr<std::unique_ptr<Standby>> Start(const std::vector<TokenRecord>& tokens,
                                                        std::shared_ptr<PayloadStore> payloads, const Clock& clock,
                                                        Random& random, Runtime::Options options);

  // See Runtime.
  const std::string& address() const { return runtime_->address(); }
  const std::string& http_address() const { return runtime_->http_address(); }

  void SetOwner(std::optional<GrpcForwarder::Owner> owner) { forwarder_.SetOwner(std::move(owner)); }
  absl::Status SetTokens(const std::vector<TokenRecord>& tokens) { return runtime_->SetTokens(tokens); }

  // Takes no more connections; the ports stay open.
  Doors TakeDoors() { return runtime_->TakeDoors(); }

  // Calls that are open are answered UNAVAILABLE, and their connections close. Waits for bytes that are on their way.
  ~Standby();

 private:
  Standby() = default;

  std::shared_ptr<PayloadStore> shared_payloads_;
  MemoryTaskStore store_;
  // Of its core, which has nothing: it must not see the shared ones, whose rounds it does not know.
  MemoryPayloadStore payloads_;
  GrpcForwarder forwarder_;
  std::unique_ptr<Runtime> runtime_;
};

}  // namespace sheaf
