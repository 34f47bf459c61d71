// Goal: calls about a store that moves between servers come to it wherever it is, once each, and none is left behind.
#include "server/calls/store_router.h"

#include <fmt/format.h>
#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/retry_hint.h"
#include "server/threads/call_threads.h"
#include "tests/server/noted_calls.h"

namespace sheaf {
namespace {

using Strings = std::vector<std::string>;

constexpr absl::Duration kShort = absl::Milliseconds(20);

// A store that is served here: it notes its calls, and answers them at once or when a test says so.
class ServedStore {
 public:
  explicit ServedStore(Notes& notes, std::string name = "here") : notes_(notes), name_(std::move(name)) {}
  ~ServedStore() { is_alive_ = false; }

  void Serve(StoreRouter& router) const { router.Serve(table_, dispatcher_); }
  void AnswerAtOnce() { answers_at_once_ = true; }
  // The one that waits longest.
  void Answer(absl::Status status) {
    MethodRow::Done done;
    {
      MutexLock lock(mutex_);
      SHEAF_CHECK(!waiting_.empty(), "no call waits here");
      done = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
    done(std::move(status));
  }
  // Called in each dispatch, behind the answer, if that came at once.
  void AtTheEndOfDispatch(std::function<void()> then) { then_ = std::move(then); }

 private:
  // Runs events as they come.
  struct AtOnce final : Executor {
    void Post(Event event) override { event(absl::UnixEpoch()); }
    void Defer(Deferred deferred) override { deferred(absl::OkStatus()); }
  };

  std::vector<MethodRow> Rows() {
    std::vector<MethodRow> rows = front_.table().rows();
    for (MethodRow& row : rows) {
      row.check_scope = [](const google::protobuf::Message&, const Identity&, Core&) { return absl::OkStatus(); };
      row.look_up = nullptr;
      row.run = [this, name = ShortName(row)](const google::protobuf::Message&, const CallContext& call,
                                              google::protobuf::Message*, MethodRow::Done done) {
        SHEAF_CHECK(is_alive_, "{} came to a store that has gone", name);
        notes_.Add(fmt::format("{}: {} {}", name_, name, call.id.value()));
        if (answers_at_once_) {
          done(absl::OkStatus());
        } else {
          MutexLock lock(mutex_);
          waiting_.emplace(call.id, std::move(done));
        }
        if (then_) then_();
      };
      row.abandon = [this, name = ShortName(row)](CallId call) {
        SHEAF_CHECK(is_alive_, "{} is abandoned in a store that has gone", name);
        MethodRow::Done done;
        {
          MutexLock lock(mutex_);
          const auto found = waiting_.find(call);
          if (found == waiting_.end()) return;
          done = std::move(found->second);
          waiting_.erase(found);
        }
        notes_.Add(fmt::format("{}: {} {} is abandoned", name_, name, call.value()));
        done(absl::CancelledError("the caller has gone"));
      };
    }
    return rows;
  }

  Notes& notes_;
  const std::string name_;
  std::atomic<bool> is_alive_ = true;
  std::atomic<bool> answers_at_once_ = false;
  std::function<void()> then_;
  Mutex mutex_;
  std::map<CallId, MethodRow::Done> waiting_ GUARDED_BY(mutex_);
  TableOfMethods front_;
  AtOnce executor_;
  const MethodTable table_{Rows()};
  const Dispatcher dispatcher_{table_, executor_, front_.parts().core, front_.parts().admission};
};

struct Routed {
  // A Sync, or what `method` says.
  ACall& Call(const ForwardedCaller& by = {}) { return Call(kSync, by); }
  template <typename M>
  ACall& Call(const M& method, const ForwardedCaller& by = {}) {
    calls.push_back(std::make_unique<ACall>(CallId(static_cast<int64_t>(calls.size()) + 1), table.Row(method),
                                            typename M::Request()));
    calls.back()->GoTo(router, by);
    return *calls.back();
  }

  const SystemClock clock;
  Notes notes;
  TableOfMethods table;
  NotedCalls elsewhere{notes, "elsewhere"};
  HeldPool pool;
  std::vector<std::unique_ptr<ACall>> calls;
  ServedStore store{notes};
  StoreRouter router{elsewhere, pool};
};

TEST_CASE("Calls about another server's store go on to it") {
  Routed routed;
  CHECK_FALSE(routed.router.is_here());
  routed.elsewhere.AnswerWith(absl::NotFoundError("there is no such round"));
  CHECK(absl::IsNotFound(routed.Call(kGetRound).status()));
  routed.elsewhere.AnswerWith(std::nullopt);
  ACall& waits = routed.Call();
  CHECK_FALSE(waits.is_answered());
  waits.Leave(routed.router);
  CHECK(absl::IsCancelled(waits.status()));
  CHECK(routed.notes.Take() == Strings{"elsewhere: GetRound", "elsewhere: Sync", "elsewhere: Sync is abandoned"});
}

TEST_CASE("Calls wait while the store is read, and are served in the order in which they came") {
  Routed routed;
  routed.store.AnswerAtOnce();
  routed.router.Hold();
  CHECK_FALSE(routed.router.is_here());
  std::vector<ACall*> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(&routed.Call());
    calls.push_back(&routed.Call(kWriteChunk));
  }
  for (const ACall* call : calls) CHECK_FALSE(call->is_answered());
  CHECK(routed.notes.Take().empty());
  routed.store.Serve(routed.router);
  CHECK(routed.router.is_here());
  for (const ACall* call : calls) CHECK(call->status().ok());
  CHECK(routed.notes.Take() == Strings{"here: Sync 1", "here: WriteChunk 2", "here: Sync 3", "here: WriteChunk 4",
                                       "here: Sync 5", "here: WriteChunk 6"});
  CHECK(routed.Call().status().ok());
  CHECK(routed.notes.Take() == Strings{"here: Sync 7"});
}

TEST_CASE("Of calls that have waited, those for the pool go on in it") {
  Routed routed;
  routed.store.AnswerAtOnce();
  routed.router.Hold();
  ACall& chunk = routed.Call(kWriteChunk);
  ACall& poll = routed.Call();
  routed.pool.Hold();
  routed.store.Serve(routed.router);
  CHECK(poll.status().ok());
  CHECK_FALSE(chunk.is_answered());
  routed.pool.Go();
  CHECK(chunk.status().ok());
}

TEST_CASE("A store goes to another server when what is open here was answered, and what waits goes after it") {
  Routed routed;
  routed.router.Hold();
  routed.store.Serve(routed.router);
  ACall& open = routed.Call();
  routed.router.Hold();
  CHECK_FALSE(routed.router.is_here());
  CHECK_FALSE(routed.router.WaitUntilNoneHere(routed.clock, absl::ZeroDuration()));
  CHECK_FALSE(routed.router.WaitUntilNoneHere(routed.clock, kShort));
  ACall& held = routed.Call(kGetRound);
  ACall& held_too = routed.Call(kWriteChunk);
  // That is another's to wait for.
  CHECK_FALSE(held.is_answered());
  std::thread answers([&] {
    ::poll(nullptr, 0, 20);
    routed.store.Answer(absl::OkStatus());
  });
  CHECK(routed.router.WaitUntilNoneHere(routed.clock, absl::Seconds(10)));
  answers.join();
  CHECK(open.status().ok());
  CHECK_FALSE(held.is_answered());
  CHECK(routed.router.WaitUntilNoneHere(routed.clock, absl::ZeroDuration()));
  CHECK(routed.notes.Take() == Strings{"here: Sync 1"});

  routed.router.SendOn();
  CHECK(held.status().ok());
  CHECK(held_too.status().ok());
  CHECK(routed.notes.Take() == Strings{"elsewhere: GetRound", "elsewhere: WriteChunk"});
  CHECK(routed.elsewhere.last().id == held_too.id());
  CHECK(routed.Call().status().ok());
  CHECK(routed.notes.Take() == Strings{"elsewhere: Sync"});
}

TEST_CASE("A store comes back, as another one") {
  Routed routed;
  routed.store.AnswerAtOnce();
  routed.router.Hold();
  routed.store.Serve(routed.router);
  CHECK(routed.Call().status().ok());
  routed.router.Hold();
  CHECK(routed.router.WaitUntilNoneHere(routed.clock, kShort));
  ServedStore again(routed.notes, "here again");
  again.AnswerAtOnce();
  ACall& held = routed.Call();
  again.Serve(routed.router);
  CHECK(held.status().ok());
  CHECK(routed.notes.Take() == Strings{"here: Sync 1", "here again: Sync 2"});
  routed.router.Hold();
  CHECK(routed.router.WaitUntilNoneHere(routed.clock, kShort));
}

TEST_CASE("A call that is answered before it has ended is here until it has") {
  Routed routed;
  routed.store.AnswerAtOnce();
  routed.router.Hold();
  routed.store.Serve(routed.router);
  bool was_here = false;
  const ACall* call = nullptr;
  routed.store.AtTheEndOfDispatch([&] {
    // As a chunk that is written when its caller has heard that it will be.
    was_here = routed.calls.back()->is_answered();
    routed.router.Hold();
    CHECK_FALSE(routed.router.WaitUntilNoneHere(routed.clock, absl::ZeroDuration()));
  });
  call = &routed.Call(kWriteChunk);
  CHECK(was_here);
  CHECK(call->status().ok());
  CHECK(routed.router.WaitUntilNoneHere(routed.clock, absl::ZeroDuration()));
}

TEST_CASE("A caller who goes away takes their call along, wherever it is") {
  Routed routed;
  routed.router.Hold();
  SECTION("while it waits: nobody hears of it any more") {
    ACall& first = routed.Call();
    ACall& gone = routed.Call();
    ACall& last = routed.Call(kWriteChunk);
    gone.Leave(routed.router);
    CHECK(absl::IsCancelled(gone.status()));
    gone.Leave(routed.router);
    CHECK(gone.num_answers() == 1);
    routed.notes.Take();
    routed.store.AnswerAtOnce();
    routed.store.Serve(routed.router);
    CHECK(first.status().ok());
    CHECK(last.status().ok());
    CHECK(routed.notes.Take() == Strings{"here: Sync 1", "here: WriteChunk 3"});
  }
  SECTION("while it is here") {
    routed.store.Serve(routed.router);
    ACall& other = routed.Call();
    ACall& gone = routed.Call();
    gone.Leave(routed.router);
    CHECK(absl::IsCancelled(gone.status()));
    CHECK_FALSE(other.is_answered());
    routed.store.Answer(absl::OkStatus());
    CHECK(other.status().ok());
  }
  SECTION("while it is here and the store is about to go") {
    routed.store.Serve(routed.router);
    ACall& gone = routed.Call();
    routed.router.Hold();
    ACall& held = routed.Call();
    gone.Leave(routed.router);
    CHECK(absl::IsCancelled(gone.status()));
    CHECK(routed.router.WaitUntilNoneHere(routed.clock, absl::ZeroDuration()));
    held.Leave(routed.router);
    CHECK(absl::IsCancelled(held.status()));
  }
  SECTION("while it is elsewhere, also when it came there before the store came here") {
    routed.router.SendOn();
    routed.elsewhere.AnswerWith(std::nullopt);
    ACall& gone = routed.Call();
    ACall& goes_later = routed.Call();
    gone.Leave(routed.router);
    CHECK(absl::IsCancelled(gone.status()));
    routed.router.Hold();
    routed.store.Serve(routed.router);
    goes_later.Leave(routed.router);
    CHECK(absl::IsCancelled(goes_later.status()));
  }
  SECTION("after it was answered: nothing happens") {
    routed.store.AnswerAtOnce();
    routed.store.Serve(routed.router);
    ACall& done = routed.Call();
    done.Leave(routed.router);
    CHECK(done.status().ok());
    routed.router.Hold();
    CHECK(routed.router.WaitUntilNoneHere(routed.clock, absl::ZeroDuration()));
    done.Leave(routed.router);
    routed.router.SendOn();
    done.Leave(routed.router);
    CHECK(done.num_answers() == 1);
  }
  routed.router.Hold();
  CHECK(routed.router.WaitUntilNoneHere(routed.clock, absl::ZeroDuration()));
}

TEST_CASE("A call that goes on just now can be abandoned") {
  Routed routed;
  routed.router.Hold();
  ACall& first = routed.Call();
  ACall& second = routed.Call();
  bool has_left = false;
  routed.store.AtTheEndOfDispatch([&] {
    if (std::exchange(has_left, true)) return;
    first.Leave(routed.router);
    // One that waits behind it, too.
    second.Leave(routed.router);
  });
  routed.store.Serve(routed.router);
  CHECK(absl::IsCancelled(first.status()));
  CHECK(absl::IsCancelled(second.status()));
  CHECK(routed.notes.Take() == Strings{"here: Sync 1", "here: Sync 1 is abandoned", "elsewhere: Sync is abandoned"});
}

TEST_CASE("A call that has waited, and must wait again, can be abandoned") {
  Routed routed;
  routed.store.AnswerAtOnce();
  routed.router.Hold();
  ACall& chunk = routed.Call(kWriteChunk);
  routed.pool.Hold();
  routed.store.Serve(routed.router);
  CHECK(routed.pool.num_held() == 1);
  // The store goes before the pool has come to it, and so does its caller.
  routed.router.Hold();
  CHECK(routed.router.WaitUntilNoneHere(routed.clock, absl::ZeroDuration()));
  chunk.Leave(routed.router);
  routed.pool.Go();
  CHECK(absl::IsCancelled(chunk.status()));
}

TEST_CASE("What another server has forwarded goes no further, but waits for a store that comes") {
  Routed routed;
  routed.store.AnswerAtOnce();
  const ForwardedCaller by_server = {.forwarded_to = kHomeShard};
  const absl::Status refused = routed.Call(by_server).status();
  CHECK(absl::IsUnavailable(refused));
  CHECK(RetryAfter(refused).has_value());
  routed.router.Hold();
  ACall& served = routed.Call(by_server);
  CHECK_FALSE(served.is_answered());
  routed.store.Serve(routed.router);
  CHECK(served.status().ok());
  CHECK(routed.Call(by_server).status().ok());
  routed.router.Hold();
  ACall& sent_back = routed.Call(by_server);
  CHECK(routed.router.WaitUntilNoneHere(routed.clock, kShort));
  routed.router.SendOn();
  CHECK(absl::IsUnavailable(sent_back.status()));
  CHECK(RetryAfter(sent_back.status()).has_value());
  CHECK(routed.notes.Take() == Strings{"here: Sync 2", "here: Sync 3"});
}

TEST_CASE("A call that waits keeps what its caller has shown") {
  Routed routed;
  routed.router.Hold();
  const std::string shown = "Bearer swordfish, and more than fits into a short text";
  {
    std::string secret = shown;
    routed.Call({.shown = {.authorization = secret}});
    std::fill(secret.begin(), secret.end(), 'x');
  }
  routed.router.SendOn();
  CHECK(routed.elsewhere.last().authorization == shown);
}

TEST_CASE("Calls that wait for a store that never comes are answered when the server ends") {
  Notes notes;
  const TableOfMethods table;
  NotedCalls elsewhere(notes, "elsewhere");
  HeldPool pool;
  ACall call(CallId(1), table.Row(kSync), v1::SyncRequest());
  {
    StoreRouter router(elsewhere, pool);
    router.Hold();
    call.GoTo(router);
    CHECK_FALSE(call.is_answered());
  }
  CHECK(absl::IsUnavailable(call.status()));
}

TEST_CASE(
    "While a store comes and goes again and again, each call is answered once, and none comes to one that has gone") {
  constexpr int kThreads = 4;
  constexpr int kTurns = 60;
  const SystemClock clock;
  Notes notes;
  const TableOfMethods table;
  NotedCalls elsewhere(notes, "elsewhere");
  CallThreads pool(2);
  StoreRouter router(elsewhere, pool);
  std::atomic<bool> is_over = false;
  std::atomic<int64_t> num_calls = 0;
  std::atomic<int64_t> num_wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t i = 0; !is_over; ++i) {
        const CallId id(1 + thread + i * kThreads);
        ACall call(id, i % 3 == 0 ? table.Row(kWriteChunk) : table.Row(kSync),
                   i % 3 == 0 ? static_cast<const google::protobuf::Message&>(v1::WriteChunkRequest::default_instance())
                              : v1::SyncRequest::default_instance());
        call.GoTo(router);
        if (i % 5 == 0) call.Leave(router);
        while (!call.is_answered()) ::poll(nullptr, 0, 0);
        const absl::Status status = call.status();
        if (!status.ok() && !(i % 5 == 0 && absl::IsCancelled(status))) ++num_wrong;
        ++num_calls;
      }
    });
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    router.Hold();
    ServedStore store(notes, "here");
    store.AnswerAtOnce();
    store.Serve(router);
    ::poll(nullptr, 0, 1);
    router.Hold();
    REQUIRE(router.WaitUntilNoneHere(clock, absl::Seconds(20)));
    if (turn % 2 == 0) router.SendOn();
  }
  router.SendOn();
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  pool.Stop();
  CHECK(num_wrong == 0);
  CHECK(num_calls > kTurns);
}

}  // namespace
}  // namespace sheaf
