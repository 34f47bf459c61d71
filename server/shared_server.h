// SharedServer: a server of stores that several servers share. It lets callers in like any other, by the tokens of the
// first store. What another server owns it forwards there, and what is its own it serves itself: over the same
// connections, so that its callers see nothing of it but a pause. So all servers of a database can be called, by any
// load balancer.
//
//   ASSIGN_OR_RETURN(auto server, SharedServer::Start(tokens, shared_payloads, &directory, clock, random,
//                                                     {.listen = "127.0.0.1:0"}));
//   server->store(kHomeShard).SetOwner(owner);    // Whenever it has changed.
//   RETURN_IF_ERROR(server->SetTokens(tokens));   // So have they.
//   server->store(kHomeShard).Hold();             // Its turn has come; whoever calls now waits for Serve.
//   RETURN_IF_ERROR(server->store(kHomeShard).Serve(store, payloads, random));
//   SharedStore& other = server->AddStore(1, shared_payloads_of_1);
//   RETURN_IF_ERROR(server->Stop());
//
// It is a Runtime on an empty store in memory, of which nothing but the tokens is used, and all calls of which a
// ShardRouter sends to the stores. Calls are any thread's. One thread each may use a store, and one add stores.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/random.h"
#include "server/calls/shard_router.h"
#include "server/runtime.h"
#include "server/shared_store.h"
#include "storage/memory/memory_payload_store.h"
#include "storage/memory/memory_task_store.h"
#include "storage/payload_store.h"
#include "storage/records.h"
#include "storage/shard.h"
#include "storage/shard_directory.h"

namespace sheaf {

class SharedServer {
 public:
  // All must outlive it; only it uses `random` from now on. The first store is another server's, which is not known
  // yet; without `payloads` this server moves no bytes of it itself, and without a directory there is no other. The
  // codes of Runtime::Start.
  static absl::StatusOr<std::unique_ptr<SharedServer>> Start(const std::vector<TokenRecord>& tokens,
                                                             std::shared_ptr<PayloadStore> payloads,
                                                             ShardDirectory* directory, const Clock& clock,
                                                             Random& random, Runtime::Options options);

  // See Runtime.
  const std::string& address() const { return runtime_->address(); }
  const std::string& http_address() const { return runtime_->http_address(); }
  std::string Metrics() const { return runtime_->Metrics(); }

  // Of the first store while it is another server's.
  absl::Status SetTokens(const std::vector<TokenRecord>& tokens) { return runtime_->SetTokens(tokens); }

  // One of those that are there.
  SharedStore& store(Shard shard) EXCLUDES(mutex_);
  // Of another shard, and another server's.
  SharedStore& AddStore(Shard shard, std::shared_ptr<PayloadStore> payloads) EXCLUDES(mutex_) {
    return AddStore(*runtime_, shard, std::move(payloads));
  }
  ShardRouter& router() { return router_; }

  // As Runtime::Stop, with what it serves; calls that are open at others are answered UNAVAILABLE.
  absl::Status Stop() EXCLUDES(mutex_);
  // At once if Stop was not called. Waits for bytes that are on their way.
  ~SharedServer();

 private:
  explicit SharedServer(const Clock& clock) : clock_(clock) {}

  SharedStore& AddStore(Runtime& runtime, Shard shard, std::shared_ptr<PayloadStore> payloads) EXCLUDES(mutex_);
  std::vector<SharedStore*> stores() EXCLUDES(mutex_);

  const Clock& clock_;
  MemoryTaskStore tokens_;
  MemoryPayloadStore nothing_;
  ShardRouter router_;
  SharedStore::Options store_options_;
  Mutex mutex_;
  std::map<Shard, std::unique_ptr<SharedStore>> stores_ GUARDED_BY(mutex_);
  // Its threads call the stores until it is destroyed.
  std::unique_ptr<Runtime> runtime_;
};

}  // namespace sheaf
