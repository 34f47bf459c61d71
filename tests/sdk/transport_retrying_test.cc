#include <catch2/catch.hpp>
#include <deque>
#include <vector>

#include "base/retry_hint.h"
#include "sdk/cpp/client/retrying_transport.h"

namespace sheaf {
namespace {

// Answers each call with the next of a list of statuses, at once.
class ScriptedTransport final : public Transport {
 public:
  explicit ScriptedTransport(std::deque<absl::Status> statuses) : statuses_(std::move(statuses)) {}

  void CallMethod(std::string_view, const google::protobuf::Message& request, google::protobuf::Message*,
                  const CallOptions& options, Done done) override {
    request_ids.push_back(static_cast<const v1::CancelRoundRequest&>(request).request_id());
    timeouts.push_back(options.timeout);
    absl::Status status = statuses_.front();
    if (statuses_.size() > 1) statuses_.pop_front();
    done(status);
  }

  std::vector<std::string> request_ids;
  std::vector<absl::Duration> timeouts;

 private:
  std::deque<absl::Status> statuses_;
};

// Turns the clock instead of waiting.
class ManualTimer final : public Timer {
 public:
  explicit ManualTimer(ManualClock& clock) : clock_(clock) {}
  void After(absl::Duration delay, std::function<void()> callback) override {
    pauses.push_back(delay);
    clock_.Advance(delay);
    callback();
  }
  std::vector<absl::Duration> pauses;

 private:
  ManualClock& clock_;
};

struct Fixture {
  explicit Fixture(std::deque<absl::Status> statuses) : inner(std::move(statuses)) {}

  absl::Status Cancel(absl::Duration timeout) {
    v1::CancelRoundRequest request;
    request.set_request_id("once");
    return BlockingCall(transport, kCancelRound, request, {.timeout = timeout}).status();
  }

  ManualClock clock;
  ManualTimer timer{clock};
  SeededRandom random{7};
  ScriptedTransport inner;
  RetryingTransport transport{inner, timer, clock, random, {}};
};

TEST_CASE("A call that finds no server is repeated, with the same request, until it is answered") {
  Fixture test({absl::UnavailableError("down"), absl::UnavailableError("down"), absl::OkStatus()});
  CHECK(test.Cancel(absl::Seconds(30)).ok());
  CHECK(test.inner.request_ids == std::vector<std::string>{"once", "once", "once"});
}

TEST_CASE("An answer that is an error is an answer, and is not asked for again") {
  for (const absl::Status& status : {absl::NotFoundError("no such round"), absl::DeadlineExceededError("slow"),
                                     absl::InternalError("bug"), absl::ResourceExhaustedError("full")}) {
    Fixture test({status});
    CHECK(test.Cancel(absl::Seconds(30)) == status);
    CHECK(test.inner.request_ids.size() == 1);
  }
}

TEST_CASE("An overloaded server is asked again when it said, or later") {
  const absl::Status refused = WithRetryAfter(absl::ResourceExhaustedError("overloaded"), absl::Seconds(2));
  Fixture test({refused, refused, absl::OkStatus()});
  CHECK(test.Cancel(absl::Seconds(30)).ok());
  REQUIRE(test.timer.pauses.size() == 2);
  for (const absl::Duration pause : test.timer.pauses) {
    CHECK(pause >= absl::Seconds(2));
    CHECK(pause <= absl::Seconds(4));
  }
  CHECK(test.timer.pauses[0] != test.timer.pauses[1]);
}

TEST_CASE("The pauses between attempts stay under a bound that doubles, and end with the call's timeout") {
  Fixture test({absl::UnavailableError("down")});
  absl::Time start = test.clock.Now();
  absl::Status status = test.Cancel(absl::Seconds(60));
  CHECK(status == absl::UnavailableError("down"));
  CHECK(test.clock.Now() - start <= absl::Seconds(60));
  REQUIRE(test.timer.pauses.size() > 8);
  absl::Duration bound = absl::Milliseconds(100);
  for (absl::Duration pause : test.timer.pauses) {
    CHECK(pause >= absl::ZeroDuration());
    CHECK(pause <= std::min(bound, absl::Seconds(5)));
    bound *= 2;
  }
}

TEST_CASE("Each attempt is given what is left of the call's timeout") {
  Fixture test({absl::UnavailableError("down"), absl::UnavailableError("down"), absl::OkStatus()});
  CHECK(test.Cancel(absl::Seconds(30)).ok());
  REQUIRE(test.inner.timeouts.size() == 3);
  CHECK(test.inner.timeouts[0] == absl::Seconds(30));
  CHECK(test.inner.timeouts[1] == absl::Seconds(30) - test.timer.pauses[0]);
  CHECK(test.inner.timeouts[2] == absl::Seconds(30) - test.timer.pauses[0] - test.timer.pauses[1]);
}

}  // namespace
}  // namespace sheaf
