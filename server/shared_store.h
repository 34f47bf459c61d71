// SharedStore: a store that several servers share, as one of them has it: it belongs to another server, to which calls
// go on, or it is served here.
//
//   SharedStore store(front, payloads, clock, options);           // Another server's, which is not known yet.
//   store.SetOwner(owner);                                        // Whenever it has changed.
//   store.Hold();                                                 // The turn has come; who calls now waits.
//   RETURN_IF_ERROR(store.Serve(tasks, stored, random));
//   RETURN_IF_ERROR(store.HandOver(absl::Seconds(1)));            // The two can be given away; who calls waits.
//   store.SetOwner(successor);
//
// While the store is another server's, the bytes of uploads and broadcasts are moved here all the same, between the
// callers and the payload store that is shared with the owner (local_transfers.h). Calls are any thread's
// (`forwarder`), all else is one thread's, unless said otherwise.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/random.h"
#include "server/calls/forwarder.h"
#include "server/calls/store_router.h"
#include "server/handlers/local_transfers.h"
#include "server/rpc/grpc_forwarder.h"
#include "server/runtime.h"
#include "server/server_parts.h"
#include "server/store_threads.h"
#include "storage/payload_store.h"
#include "storage/records.h"
#include "storage/shard.h"
#include "storage/task_store.h"

namespace sheaf {

class SharedStore {
 public:
  struct Options {
    // As Runtime::Options. Of the core: limits, the shard, and what people are told of the store.
    Core::Options core;
    absl::Duration idle_max = absl::InfiniteDuration();
  };
  // What the two name must outlive it. Without `payloads` it moves no bytes itself.
  SharedStore(Runtime& front, std::shared_ptr<PayloadStore> payloads, const Clock& clock, const Options& options);
  // Takes its calls.
  Forwarder& forwarder() { return router_; }
  bool is_here() const { return served_ != nullptr; }

  // Calls go to it from now on, those that wait, too; those that are open at another are given up. None: there is no
  // owner now, and all calls are UNAVAILABLE.
  void SetOwner(std::optional<GrpcForwarder::Owner> owner);

  // Calls that are open at the owner before are answered UNAVAILABLE; others wait from now on. Returns at once.
  void Hold();
  // Recovers the store, and serves it: calls go there, and those that wait. The codes of Core::Recover. All must live
  // until HandOver or Finish.
  absl::Status Serve(TaskStore& store, PayloadStore& payloads, Random& random);
  // Of the one that is served.
  Core& core() { return served_->parts.core; }
  // Tokens of the first shard, of which this is another one: whoever waits by one that is void is sent away.
  absl::Status SetTokens(const std::vector<TokenRecord>& tokens);
  // Whoever waits here for work of this population, which was placed elsewhere, is answered, and calls again. Any
  // thread's.
  void SendAway(const std::string& population) EXCLUDES(served_mutex_);

  // Whoever waits is answered, what was accepted is checkpointed, and nothing of the store is used any more. New calls
  // wait from now on. DEADLINE_EXCEEDED while calls that are open are not answered within `grace`: to be called again.
  // Another error is that of the last checkpoint; the store is not used all the same.
  absl::Status HandOver(absl::Duration grace);

  // At the end of the process: whoever waits here or at the owner is answered; and, when nobody calls any more, what
  // was accepted is checkpointed. The second finishes once.
  absl::Status BeginDrain();
  absl::Status Finish();

 private:
  struct Served {
    Served(TaskStore& its_store, PayloadStore& payloads, Random& random, const Clock& clock, Runtime& front,
           const Options& options)
        : store(its_store),
          threads(clock, options.idle_max),
          parts(its_store, payloads, threads.core, random, threads.CoreOptions(options.core), front.parts(),
                &front.pool()) {}
    // What runs knows the parts.
    ~Served() { threads.Stop(); }

    TaskStore& store;
    StoreThreads threads;
    StoreParts parts;
  };

  // Of the first store: the front itself knows again who may call.
  absl::Status GiveAccessBack();

  Runtime& front_;
  const Clock& clock_;
  const Options options_;
  const std::shared_ptr<PayloadStore> shared_payloads_;
  GrpcForwarder owner_;
  std::optional<LocalTransfers> transfers_;
  StoreRouter router_;
  // Of the one thread, but for SendAway: what that thread changes it changes under the mutex.
  Mutex served_mutex_;
  std::unique_ptr<Served> served_;
  bool is_finished_ = false;
};

}  // namespace sheaf
