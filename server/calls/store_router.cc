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
  place_ = Place::kHeld;
}

void StoreRouter::Serve(const MethodTable& methods, const Dispatcher& dispatcher) {
  {
    MutexLock lock(mutex_);
    SHEAF_CHECK(num_here_ == 0, "calls are still answered by the store that was here before");
    here_ = {.methods = &methods, .dispatcher = &dispatcher};
    // New calls need not wait for those that have waited.
    place_ = Place::kHere;
  }
  EndWaits();
}

bool StoreRouter::WaitUntilNoneHere(const Clock& clock, absl::Duration timeout) {
  const absl::Time end = clock.Now() + timeout;
  MutexLock lock(mutex_);
  SHEAF_CHECK(place_ != Place::kHere, "new calls still come here");
  for (absl::Duration left = timeout; num_here_ > 0 && left > absl::ZeroDuration(); left = end - clock.Now()) {
    none_here_.WaitFor(mutex_, left);
  }
  if (num_here_ > 0) return false;
  here_ = {};
  return true;
}

void StoreRouter::SendOn() {
  {
    MutexLock lock(mutex_);
    place_ = Place::kElsewhere;
  }
  EndWaits();
}

void StoreRouter::EndWaits() {
  for (;;) {
    CallId id;
    Waiting call;
    {
      MutexLock lock(mutex_);
      if (waiting_.empty()) return;
      auto first = waiting_.extract(waiting_.begin());
      id = first.key();
      call = std::move(first.mapped());
      going_on_.emplace(id, false);
    }
    const MethodRow& method = *call.method;
    const std::string client = call.caller->get().identity->name;
    auto go_on = [this, id, call = std::move(call)] { GoOn(id, call); };
    method.is_in_batch ? go_on() : pool_.Run(client, method.traits.length, std::move(go_on));
  }
}

void StoreRouter::GoOn(CallId id, const Waiting& call) {
  const auto is_abandoned = [&](bool is_over) {
    MutexLock lock(mutex_);
    const auto going_on = going_on_.find(id);
    const bool was_abandoned = going_on->second;
    if (is_over || was_abandoned) going_on_.erase(going_on);
    return was_abandoned;
  };
  if (is_abandoned(false)) return call.done(absl::CancelledError("the caller has gone"));
  const IdentityPtr caller = call.caller->get().identity;
  Forward(id, *call.method, call.caller->get(), *call.request, call.response, call.done);
  if (is_abandoned(true)) Abandon(id, *call.method, *caller);
}

void StoreRouter::Forward(CallId id, const MethodRow& method, const ForwardedCaller& caller,
                          const google::protobuf::Message& request, google::protobuf::Message* response,
                          MethodRow::Done done) {
  Here here;
  {
    MutexLock lock(mutex_);
    if (place_ == Place::kHeld) {
      waiting_.emplace(id, Waiting{.method = &method,
                                   .caller = std::make_shared<const KeptCaller>(caller),
                                   .request = &request,
                                   .response = response,
                                   .done = std::move(done)});
      return;
    }
    if (place_ == Place::kHere) {
      here = here_;
      // Until it was answered, and until nobody is in its dispatch any more: a chunk may be answered before it is
      // written.
      num_here_ += 2;
    }
  }
  if (here.dispatcher != nullptr) {
    Dispatch(here, id, method, caller, request, response, std::move(done));
    return Leave();
  }
  if (caller.forwarded_to) {
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
                            request, response, [this, done = std::move(done)](absl::Status status) {
                              done(std::move(status));
                              Leave();
                            });
}

void StoreRouter::Leave() {
  MutexLock lock(mutex_);
  if (--num_here_ == 0) none_here_.NotifyAll();
}

void StoreRouter::Abandon(CallId call, const MethodRow& method, const Identity& caller) {
  Here here;
  MethodRow::Done done;
  {
    MutexLock lock(mutex_);
    if (const auto going_on = going_on_.find(call); going_on != going_on_.end()) {
      going_on->second = true;
      return;
    }
    if (const auto waiting = waiting_.find(call); waiting != waiting_.end()) {
      done = std::move(waiting->second.done);
      waiting_.erase(waiting);
    } else if (here_.dispatcher != nullptr) {
      here = here_;
      ++num_here_;
    }
  }
  if (done) return done(absl::CancelledError("the caller has gone"));
  if (here.dispatcher != nullptr) {
    here.dispatcher->Abandon(*here.methods->Find(method.name), caller, call);
    Leave();
  }
  // It may have come before the store did.
  elsewhere_.Abandon(call, method, caller);
}

bool StoreRouter::is_here() const {
  MutexLock lock(mutex_);
  return place_ == Place::kHere;
}

}  // namespace sheaf
