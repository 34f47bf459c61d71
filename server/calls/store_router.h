// StoreRouter: where the calls go that come to a server which shares its store with others: on to the server that owns
// the store, or, once that is this one, to the dispatcher of the store that is served here.
//
//   StoreRouter router(elsewhere, pool);      // All calls go on to another server.
//   router.Hold();                            // The store is this server's now, and is being read: calls wait.
//   router.Serve(methods, dispatcher);        // It is served here.
//   router.Forward(call, method, caller, request, &response, done);
//
// Thread-safe; Hold and Serve are one thread's, each once. Refers to all it is given.
#pragma once

#include <google/protobuf/message.h>

#include <map>
#include <memory>

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

  // From here on calls wait until Serve: as many as Admission lets in.
  void Hold() EXCLUDES(mutex_);
  // Both must live as long as calls come. Returns when all that waited have been dispatched.
  void Serve(const MethodTable& methods, const Dispatcher& dispatcher) EXCLUDES(mutex_);

  // UNAVAILABLE, with a hint, for what another server has forwarded and is not for here: the two have not heard yet
  // whose the store is.
  void Forward(CallId call, const MethodRow& method, const ForwardedCaller& caller,
               const google::protobuf::Message& request, google::protobuf::Message* response,
               MethodRow::Done done) override EXCLUDES(mutex_);
  void Abandon(CallId call, const MethodRow& method, const Identity& caller) override EXCLUDES(mutex_);
  bool is_here() const override EXCLUDES(mutex_);

 private:
  enum class Place { kElsewhere, kComing, kHere };
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
  static void Dispatch(const Here& here, CallId call, const MethodRow& method, const ForwardedCaller& caller,
                       const google::protobuf::Message& request, google::protobuf::Message* response,
                       MethodRow::Done done);

  Forwarder& elsewhere_;
  CallPool& pool_;
  mutable Mutex mutex_;
  Place place_ GUARDED_BY(mutex_) = Place::kElsewhere;
  Here here_ GUARDED_BY(mutex_);
  // In the order in which they came.
  std::map<CallId, Waiting> waiting_ GUARDED_BY(mutex_);
  // The one of them that is being dispatched, and whether its caller has gone meanwhile.
  CallId dispatched_ GUARDED_BY(mutex_);
  bool is_abandoned_ GUARDED_BY(mutex_) = false;
};

}  // namespace sheaf
