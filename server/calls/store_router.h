// StoreRouter: where the calls go that are about one store, on a server that shares it with others: on to the server
// that owns the store, or, while that is this one, to the dispatcher of the store that is served here.
//
//   StoreRouter router(elsewhere, pool);      // All calls go on to another server.
//   router.Hold();                            // The store is this server's now, and is being read: calls wait.
//   router.Serve(methods, dispatcher);        // It is served here.
//   router.Hold();                            // It will be another server's: calls wait,
//   router.WaitUntilNoneHere(clock, timeout); // and those that are here are answered.
//   router.SendOn();                          // It is: all calls go on.
//   router.Forward(call, method, caller, request, &response, done);
//
// Forward, Abandon and is_here are thread-safe; all else is one thread's. Refers to all it is given.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <map>
#include <memory>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/calls/call_pool.h"
#include "server/calls/dispatcher.h"
#include "server/calls/forwarder.h"
#include "server/calls/kept_caller.h"
#include "server/calls/method_table.h"

namespace sheaf {

class StoreRouter final : public Forwarder {
 public:
  // Calls that have waited, and are for a pool, go on in this one.
  StoreRouter(Forwarder& elsewhere, CallPool& pool) : elsewhere_(elsewhere), pool_(pool) {}
  // Calls that wait are answered UNAVAILABLE.
  ~StoreRouter() override;

  // From here on new calls wait: as many as Admission lets in.
  void Hold() EXCLUDES(mutex_);
  // Both must live until WaitUntilNoneHere has returned true, or no call comes any more. Returns when all that waited
  // have been dispatched.
  void Serve(const MethodTable& methods, const Dispatcher& dispatcher) EXCLUDES(mutex_);
  // After Hold. True if what was dispatched here has been answered, within `timeout`: then nobody uses the dispatcher
  // any more.
  bool WaitUntilNoneHere(const Clock& clock, absl::Duration timeout) EXCLUDES(mutex_);
  // Those that wait, too.
  void SendOn() EXCLUDES(mutex_);

  // UNAVAILABLE, with a hint, for what another server has forwarded and is not for here: the two have not heard yet
  // whose the store is.
  void Forward(CallId call, const MethodRow& method, const ForwardedCaller& caller,
               const google::protobuf::Message& request, google::protobuf::Message* response,
               MethodRow::Done done) override EXCLUDES(mutex_);
  void Abandon(CallId call, const MethodRow& method, const Identity& caller) override EXCLUDES(mutex_);
  bool is_here() const override EXCLUDES(mutex_);

 private:
  enum class Place { kElsewhere, kHeld, kHere };
  struct Here {
    const MethodTable* methods = nullptr;
    const Dispatcher* dispatcher = nullptr;
  };
  // A call that waits. What it points at lives until `done` is called.
  struct Waiting {
    const MethodRow* method;
    std::shared_ptr<const KeptCaller> caller;
    const google::protobuf::Message* request;
    google::protobuf::Message* response;
    MethodRow::Done done;
  };
  // Has those that wait go where calls go now.
  void EndWaits() EXCLUDES(mutex_);
  void GoOn(CallId id, const Waiting& call) EXCLUDES(mutex_);
  // Of a call that is counted as one that is here.
  void Dispatch(const Here& here, CallId call, const MethodRow& method, const ForwardedCaller& caller,
                const google::protobuf::Message& request, google::protobuf::Message* response, MethodRow::Done done);
  void Leave() EXCLUDES(mutex_);

  Forwarder& elsewhere_;
  CallPool& pool_;
  mutable Mutex mutex_;
  CondVar none_here_;
  Place place_ GUARDED_BY(mutex_) = Place::kElsewhere;
  // While it is here; also while calls that were dispatched are still answered.
  Here here_ GUARDED_BY(mutex_);
  int64_t num_here_ GUARDED_BY(mutex_) = 0;
  // In the order in which they came.
  std::map<CallId, Waiting> waiting_ GUARDED_BY(mutex_);
  // Those of them that go on just now, and whether their callers have gone meanwhile.
  std::map<CallId, bool> going_on_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
