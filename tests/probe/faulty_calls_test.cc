// What happens to a call, counted where it arrives.
#include "probe/faulty_calls.h"

#include <catch2/catch.hpp>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "proto/methods.h"

namespace sheaf {
namespace {

// Answers at once, and keeps what it was asked.
class CountingServer final : public Transport {
 public:
  void CallMethod(std::string_view, const google::protobuf::Message& request, google::protobuf::Message* response,
                  const CallOptions&, Done done) override {
    polls.push_back(static_cast<const v1::SyncRequest&>(request).poll_id());
    static_cast<v1::SyncResponse*>(response)->set_server_version(std::to_string(polls.size()));
    done(absl::OkStatus());
  }
  std::vector<std::string> polls;
};

// Rings when the test says so.
class HandTimer final : public Timer {
 public:
  void After(absl::Duration delay, std::function<void()> callback) override { set.emplace_back(delay, callback); }
  // The first that was set; returns its delay.
  absl::Duration Ring() {
    auto [delay, callback] = std::move(set.front());
    set.pop_front();
    callback();
    return delay;
  }
  std::deque<std::pair<absl::Duration, std::function<void()>>> set;
};

struct Caller {
  explicit Caller(const CallFaults& faults) : calls(server, timer, /*seed=*/1, faults) {
    calls.SetFaults(faults);
    request.set_poll_id("poll");
  }
  void Call() {
    sheaf::Call(calls, kSync, request, {}, [this](absl::StatusOr<v1::SyncResponse> answer) {
      answers.push_back(answer.ok() ? answer->server_version() : "none");
    });
    // The caller may change its request as soon as the call has returned.
    request.set_poll_id("next");
  }
  CountingServer server;
  HandTimer timer;
  FaultyCalls calls;
  v1::SyncRequest request;
  std::vector<std::string> answers;
};

using Texts = std::vector<std::string>;

TEST_CASE("A call that is sent twice arrives twice, and is answered once") {
  Caller caller({.twice = 1});
  caller.Call();
  CHECK(caller.server.polls == Texts{"poll", "poll"});
  CHECK(caller.answers == Texts{"1"});
  CHECK(caller.calls.num_faults() == 1);
}

TEST_CASE("A call that is repeated late is answered at once, and comes again as it was") {
  Caller caller({.repeated_late = 1, .late_by = absl::Seconds(3)});
  caller.Call();
  CHECK(caller.answers == Texts{"1"});
  REQUIRE(caller.timer.set.size() == 1);
  CHECK(caller.timer.Ring() == absl::Seconds(3));
  CHECK(caller.server.polls == Texts{"poll", "poll"});
  CHECK(caller.answers == Texts{"1"});
}

TEST_CASE("A late call arrives when its caller has long been told that nobody answered") {
  Caller caller({.late = 1, .late_by = absl::Seconds(3)});
  caller.Call();
  CHECK(caller.server.polls.empty());
  CHECK(caller.answers.empty());
  REQUIRE(caller.timer.set.size() == 2);
  const absl::Duration arrives = caller.timer.Ring();
  CHECK(caller.server.polls == Texts{"poll"});
  CHECK(caller.timer.Ring() < arrives);
  CHECK(caller.answers == Texts{"none"});
}

TEST_CASE("A lost answer was given, and not heard; a calm transport does nothing of all this") {
  Caller caller({.answer_lost = 1});
  caller.Call();
  CHECK(caller.server.polls == Texts{"poll"});
  CHECK(caller.answers == Texts{"none"});
  caller.calls.Calm();
  caller.Call();
  CHECK(caller.server.polls == Texts{"poll", "next"});
  CHECK(caller.answers == Texts{"none", "2"});
  CHECK(caller.calls.num_faults() == 1);
}

}  // namespace
}  // namespace sheaf
