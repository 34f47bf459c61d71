#include "server/calls/store_router.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "base/retry_hint.h"

namespace sheaf {
namespace {

// Whose the store is, is known to all servers after a tenth of a second.
constexpr absl::Duration kComeBackAfter = absl::Milliseconds(100);

}  // namespace

StoreRouter::~StoreRouter() {
  std::map<CallId, Waiting> left;
  {
    MutexLock lock(mutex_);
    left.swap(waiting_);
  }
  for (const auto& [id, call] : left) call.done(absl::UnavailableError("the server is stopping"));
}

void StoreRouter::Hold() {
  MutexLock lock(mutex_);
  SHEAF_CHECK(place_ == Place::kElsewhere, "a store comes to a server once");
  place_ = Place::kComing;
}

void StoreRouter::Serve(const MethodTable& methods, const Dispatcher& dispatcher) {
  const Here here = {.methods = &methods, .dispatcher = &dispatcher};
  {
    MutexLock lock(mutex_);
    here_ = here;
    // New calls need not wait for those that have waited.
    place_ = Place::kHere;
  }
  for (;;) {
    CallId id;
    Waiting call;
    {
      MutexLock lock(mutex_);
      if (waiting_.empty()) return;
      auto first = waiting_.extract(waiting_.begin());
      dispatched_ = id = first.key();
      is_abandoned_ = false;
      call = std::move(first.mapped());
    }
    const MethodRow& method = *call.method;
    const IdentityPtr caller = call.caller->get().identity;
    auto dispatch = [here, id, call = std::move(call)] {
      Dispatch(here, id, *call.method, call.caller->get(), *call.request, call.response, call.done);
    };
    method.is_in_batch ? dispatch() : pool_.Run(std::string(caller->name), method.traits.length, std::move(dispatch));
    bool is_abandoned = false;
    {
      MutexLock lock(mutex_);
      dispatched_ = CallId();
      is_abandoned = is_abandoned_;
    }
    if (is_abandoned) Abandon(id, method, *caller);
  }
}

void StoreRouter::Forward(CallId id, const MethodRow& method, const ForwardedCaller& caller,
                          const google::protobuf::Message& request, google::protobuf::Message* response,
                          MethodRow::Done done) {
  Here here;
  {
    MutexLock lock(mutex_);
    if (place_ == Place::kComing) {
      waiting_.emplace(id, Waiting{.method = &method,
                                   .caller = std::make_shared<const KeptCaller>(caller),
                                   .request = &request,
                                   .response = response,
                                   .done = std::move(done)});
      return;
    }
    here = here_;
  }
  if (here.dispatcher != nullptr) return Dispatch(here, id, method, caller, request, response, std::move(done));
  if (caller.was_forwarded) {
    return done(WithRetryAfter(absl::UnavailableError("this server does not own the store"), kComeBackAfter));
  }
  elsewhere_.Forward(id, method, caller, request, response, std::move(done));
}

void StoreRouter::Dispatch(const Here& here, CallId call, const MethodRow& method, const ForwardedCaller& caller,
                           const google::protobuf::Message& request, google::protobuf::Message* response,
                           MethodRow::Done done) {
  // The same method in the table of the store that is here, whose rows know its handlers.
  const MethodRow* const row = here.methods->Find(method.name);
  SHEAF_CHECK(row != nullptr, "there is no method {}", method.name);
  here.dispatcher->Dispatch(*row,
                            {.id = call,
                             .caller = caller.identity,
                             .client = std::string(caller.client),
                             .answer_bytes_max = caller.answer_bytes_max,
                             .asks_only = caller.asks_only,
                             .log_source = caller.log_source},
                            request, response, std::move(done));
}

void StoreRouter::Abandon(CallId call, const MethodRow& method, const Identity& caller) {
  Here here;
  MethodRow::Done done;
  {
    MutexLock lock(mutex_);
    here = here_;
    if (call == dispatched_) {
      is_abandoned_ = true;
      return;
    }
    if (const auto waiting = waiting_.find(call); waiting != waiting_.end()) {
      done = std::move(waiting->second.done);
      waiting_.erase(waiting);
    }
  }
  if (done) return done(absl::CancelledError("the caller has gone"));
  if (here.dispatcher != nullptr) {
    const MethodRow* const row = here.methods->Find(method.name);
    if (row != nullptr) here.dispatcher->Abandon(*row, caller, call);
  }
  // It may have come before the store did.
  elsewhere_.Abandon(call, method, caller);
}

bool StoreRouter::is_here() const {
  MutexLock lock(mutex_);
  return place_ == Place::kHere;
}

}  // namespace sheaf
