// When workers come back that did not wait (server/core/sync/pace_steering.h). What that makes of a fleet: fleet_test.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "base/retry_hint.h"
#include "proto/time.h"
#include "server/core/sync/arrival_calendar.h"
#include "server/core/sync/pace_steering.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

constexpr absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

Limits Idle(int64_t calls_per_second) {
  Limits limits;
  limits.idle_calls_per_second = calls_per_second;
  return limits;
}

std::string Name(int number) { return "w" + std::to_string(number); }

// The longest that any of so many workers, who all call now, is told to stay away.
absl::Duration LongestPause(CoreFederation& server, int num_workers) {
  absl::Duration longest;
  for (int i = 0; i < num_workers; ++i) {
    longest = std::max(longest, FromProto(server.Sync(Ask(Name(i), 1)).next_max()));
  }
  return longest;
}

TEST_CASE("A few workers that do not wait come back within a second, and of many so many in each second as may") {
  CoreFederation few(Idle(20));
  CHECK(LongestPause(few, 10) == absl::Seconds(1));

  CoreFederation many(Idle(2));
  std::map<int64_t, int> by_second;
  for (int i = 0; i < 40; ++i) {
    const v1::SyncResponse response = many.Sync(Ask(Name(i), 1));
    CHECK(FromProto(response.next_min()) >= absl::Milliseconds(500));
    CHECK(FromProto(response.next_max()) <= FromProto(response.next_min()) + absl::Seconds(1));
    ++by_second[absl::ToInt64Seconds(FromProto(response.next_max()))];
  }
  // The first come within the same second or the next.
  CHECK(by_second.size() >= 19);
  for (const auto& [second, count] : by_second) CHECK(count <= 4);
}

TEST_CASE("Workers come as often as the tasks need, if that is more than when there are none") {
  CoreFederation idle(Idle(1));
  CoreFederation busy(Idle(1));
  busy.CreateRound(SumRound(600));
  // Nobody computes anything here but "noop", so that the tasks stay.
  v1::SyncRequest other;
  absl::Duration longest_idle;
  absl::Duration longest_busy;
  for (int i = 0; i < 100; ++i) {
    v1::SyncRequest request = Ask(Name(i), 1);
    request.clear_computations();
    longest_idle = std::max(longest_idle, FromProto(idle.Sync(request).next_max()));
    const v1::SyncResponse response = busy.Sync(request);
    REQUIRE(response.leases().empty());
    longest_busy = std::max(longest_busy, FromProto(response.next_max()));
  }
  CHECK(longest_idle >= absl::Seconds(99));
  // 600 tasks within a minute: ten calls a second.
  CHECK(longest_busy <= absl::Seconds(12));
}

TEST_CASE("A worker that calls again and again has one appointment, and keeps nobody else away") {
  CoreFederation server(Idle(2));
  for (int i = 0; i < 1000; ++i) server.Sync(Ask("hasty", 1));
  CHECK(FromProto(server.Sync(Ask("other", 1)).next_max()) <= absl::Seconds(4));
}

TEST_CASE(
    "Who hands in its last result and wants no more is told when to come, and who renews a lease is not sent away") {
  CoreFederation server(Idle(1));
  server.CreateRound(SumRound(2));
  const v1::Lease mine = server.Sync(Ask("w", 1)).leases(0);
  const v1::Lease slow = server.Sync(Ask("slow", 1)).leases(0);
  LongestPause(server, 30);
  v1::SyncRequest last = Ask("w", 0);
  *last.add_results() = Result(mine, 1);
  CHECK(FromProto(server.Sync(last).next_min()) > absl::Seconds(10));
  v1::SyncRequest renewal = Ask("slow", 0);
  *renewal.add_held() = Held(slow, 1);
  CHECK(FromProto(server.Sync(renewal).next_max()) == absl::Seconds(1));
}

TEST_CASE("A worker that waits is parked and gets its task at once, however many were told to come later") {
  CoreFederation server(Idle(1));
  LongestPause(server, 100);
  v1::SyncRequest waiting = Ask("waits", 1);
  waiting.mutable_wait()->set_seconds(30);
  const auto parked = server.CallLater<v1::SyncResponse>("WorkService/Sync", waiting);
  REQUIRE_FALSE(parked->has_value());
  server.CreateRound(SumRound(1));
  REQUIRE(parked->has_value());
  CHECK((**parked)->leases_size() == 1);
}

TEST_CASE("Workers that find no room to wait are spread as well, and come no sooner than before") {
  Limits limits = Idle(1);
  limits.parked_polls_max = 1;
  CoreFederation server(limits);
  absl::Duration longest;
  for (int i = 0; i < 100; ++i) {
    v1::SyncRequest waiting = Ask(Name(i), 1);
    waiting.mutable_wait()->set_seconds(30);
    const auto answer = server.CallLater<v1::SyncResponse>("WorkService/Sync", waiting);
    if (!answer->has_value()) continue;
    CHECK(FromProto((**answer)->next_min()) >= absl::Seconds(5));
    longest = std::max(longest, FromProto((**answer)->next_max()));
  }
  CHECK(longest >= absl::Seconds(95));
}

TEST_CASE("Workers that are refused because too many are known are not told to come back all at once") {
  Limits limits = Idle(1);
  limits.workers_max = 1;
  CoreFederation server(limits);
  server.Sync(Ask("first", 1));
  absl::Duration longest;
  for (int i = 0; i < 200; ++i) {
    const auto refused = server.Call<v1::SyncResponse>("WorkService/Sync", Ask(Name(i), 1));
    REQUIRE(refused.status().code() == absl::StatusCode::kResourceExhausted);
    const absl::Duration pause = RetryAfter(refused.status()).value();
    CHECK(pause >= absl::Seconds(30));
    longest = std::max(longest, pause);
  }
  CHECK(longest >= absl::Seconds(100));
}

TEST_CASE("A population among more than are steered is told what it always was, until one of the others is quiet") {
  const Limits limits = Idle(1);
  PaceSteering steering(limits);
  const PaceRange soon = RangeOf(Pace::kLater);
  const auto longest = [&](const std::string& population, absl::Time now) {
    absl::Duration pause;
    for (int i = 0; i < 10; ++i) pause = std::max(pause, steering.NextCall(population, soon, now).range.max);
    return pause;
  };
  for (size_t i = 0; i < PaceSteering::kPopulationsMax; ++i) {
    CHECK(longest("p" + std::to_string(i), kStart) > absl::Seconds(5));
  }
  CHECK(longest("late", kStart) == soon.max);
  CHECK(longest("late", kStart + absl::Minutes(2)) > absl::Seconds(5));
}

TEST_CASE("A calendar fills the first second that has room, and beyond the last one each of the later half in turn") {
  ArrivalCalendar calendar(absl::Seconds(100), kStart);
  calendar.Advance(kStart + absl::Seconds(1), 3);
  const absl::Time now = kStart + absl::Seconds(1);
  std::map<absl::Time, int> booked;
  for (int i = 0; i < 3 * 100; ++i) ++booked[calendar.Book(now + absl::Seconds(1))];
  CHECK(booked.size() == 100);
  for (const auto& [second, count] : booked) CHECK(count == 3);
  CHECK(booked.rbegin()->first == now + absl::Seconds(100));
  for (int i = 0; i < 2 * 50; ++i) {
    const absl::Time beyond = calendar.Book(now + absl::Seconds(1));
    CHECK(beyond > now + absl::Seconds(50));
    ++booked[beyond];
  }
  for (const auto& [second, count] : booked) CHECK(count == (second > now + absl::Seconds(50) ? 5 : 3));
  CHECK(calendar.num_expected() == 400);
  // One that is given back is there for the next.
  calendar.Cancel(now + absl::Seconds(7));
  CHECK(calendar.Book(now + absl::Seconds(2)) == now + absl::Seconds(7));
}

TEST_CASE("Fewer calls than were expected make room for more, and more make room for fewer, within bounds") {
  ArrivalCalendar calendar(absl::Hours(1), kStart);
  absl::Time now = kStart;
  const auto booked_in_a_second = [&] {
    const absl::Time first = calendar.Book(now + absl::Seconds(30));
    int count = 1;
    while (calendar.Book(now + absl::Seconds(30)) == first) ++count;
    return count;
  };
  const auto run = [&](int seconds, int calls) {
    for (int i = 0; i < seconds; ++i) {
      now += absl::Seconds(1);
      calendar.Advance(now, 10);
      for (int call = 0; call < calls; ++call) calendar.CountCall();
    }
  };
  run(600, 3);
  CHECK(calendar.surprise() == Approx(3).margin(0.1));
  // Ten, but for the three that come unasked.
  CHECK(booked_in_a_second() == 7);
  // A crowd: half is still given out.
  run(60, 1000);
  CHECK(booked_in_a_second() >= 5);
  // A clock that is set back changes nothing, and one that is set far ahead empties the calendar.
  calendar.Advance(now - absl::Hours(1), 10);
  CHECK(calendar.num_expected() > 0);
  calendar.Advance(now + absl::Hours(100), 10);
  CHECK(calendar.num_expected() == 0);
  CHECK(calendar.Book(now + absl::Hours(100)) == now + absl::Hours(100));
}

}  // namespace
}  // namespace sheaf
