// Where a worker's times lie on the server's clock, whatever its own clock shows or it says.
#include "server/core/rounds/attempt_placement.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "proto/time.h"

namespace sheaf {
namespace {

const absl::Time kLeased = absl::FromUnixSeconds(1'000'000);

// Available a second before the lease, received ten seconds after it, judged at once.
AttemptStamps TenSeconds() {
  return {.available = kLeased - absl::Seconds(1),
          .leased = kLeased,
          .received = kLeased + absl::Seconds(10),
          .ended = kLeased + absl::Seconds(10)};
}

void Add(std::string_view phase, absl::Duration begin, absl::Duration end, v1::AttemptTimings& timings) {
  v1::AttemptTimings::Interval& added = *timings.add_intervals();
  added.set_phase(std::string(phase));
  *added.mutable_begin() = ToProto(begin);
  *added.mutable_end() = ToProto(end);
}

// "wait -1..0, grant 0..1": in seconds.
std::string Text(const std::vector<Interval>& intervals) {
  std::string text;
  for (const Interval& interval : intervals) {
    text += fmt::format("{}{} {:g}..{:g}", text.empty() ? "" : ", ", interval.phase,
                        absl::ToDoubleSeconds(interval.begin), absl::ToDoubleSeconds(interval.end));
  }
  return text;
}

TEST_CASE("A worker's times are put between the calls that brought the lease and took the result, in their middle") {
  v1::AttemptTimings reported;
  Add("prepare", absl::ZeroDuration(), absl::Seconds(2), reported);
  Add("compute", absl::Seconds(2), absl::Seconds(7), reported);
  *reported.mutable_handed_in() = ToProto(absl::Seconds(8));
  CHECK(Text(PlaceAttempt(reported, TenSeconds()).intervals) ==
        "wait -1..0, grant 0..1, prepare 1..3, compute 3..8, hand_in 8..10");
}

TEST_CASE("What the server reads and checks after the call is its own time") {
  v1::AttemptTimings reported;
  Add("compute", absl::ZeroDuration(), absl::Seconds(10), reported);
  *reported.mutable_handed_in() = ToProto(absl::Seconds(10));
  AttemptStamps stamps = TenSeconds();
  stamps.ended += absl::Seconds(3);
  CHECK(Text(PlaceAttempt(reported, stamps).intervals) == "wait -1..0, compute 0..10, receive 10..13");
}

TEST_CASE("A lease that was sent again was there from then on, not halfway to when it was granted first") {
  v1::AttemptTimings reported;
  Add("compute", absl::ZeroDuration(), absl::Seconds(2), reported);
  *reported.mutable_handed_in() = ToProto(absl::Seconds(2));
  *reported.mutable_grant_time() = ToProto(kLeased + absl::Seconds(7));
  CHECK(Text(PlaceAttempt(reported, TenSeconds()).intervals) ==
        "wait -1..0, grant 0..7.5, compute 7.5..9.5, hand_in 9.5..10");
}

TEST_CASE("A worker that names only durations has them placed one after the other from the lease on") {
  v1::AttemptTimings reported;
  *reported.mutable_download() = ToProto(absl::Seconds(1));
  *reported.mutable_prepare() = ToProto(absl::Seconds(2));
  *reported.mutable_compute() = ToProto(absl::Seconds(3));
  const std::string placed = "prepare 0..2, download 2..3, compute 3..6, hand_in 6..10";
  const AttemptTimings timings = PlaceAttempt(reported, TenSeconds());
  CHECK(Text(timings.intervals) == "wait -1..0, " + placed);
  // As one that a server before 0.2 stored is shown.
  CHECK(Text(IntervalsOf({.durations = timings.durations, .intervals = {}}, absl::Seconds(10))) == placed);
}

TEST_CASE("Of an attempt of which its worker says nothing only the wait is known") {
  CHECK(Text(PlaceAttempt({}, TenSeconds()).intervals) == "wait -1..0");
  CHECK(IntervalsOf({}, absl::Seconds(10)).empty());
}

TEST_CASE("No clock of a worker, however wrong, puts anything outside of its lease or out of order") {
  const absl::Duration times[] = {-absl::Hours(1),   absl::ZeroDuration(),    absl::Nanoseconds(1),
                                  absl::Seconds(3),  absl::Seconds(10),       absl::Seconds(11),
                                  absl::Hours(9000), absl::InfiniteDuration()};
  const AttemptStamps stamps = TenSeconds();
  for (const absl::Duration handed_in : times) {
    for (const absl::Duration granted : times) {
      for (const absl::Duration begin : times) {
        for (const absl::Duration end : times) {
          v1::AttemptTimings reported;
          Add("prepare", begin, end, reported);
          Add("compute", end, begin, reported);
          Add("compute", begin, end, reported);
          *reported.mutable_handed_in() = ToProto(handed_in);
          if (granted < absl::Hours(9000)) *reported.mutable_grant_time() = ToProto(kLeased + granted);
          absl::Duration at = -absl::Seconds(1);
          for (const Interval& interval : PlaceAttempt(reported, stamps).intervals) {
            INFO(interval.phase);
            REQUIRE(interval.begin >= at);
            REQUIRE(interval.end > interval.begin);
            at = interval.end;
          }
          REQUIRE(at == absl::Seconds(10));
        }
      }
    }
  }
}

TEST_CASE("A worker names phases of its own, but none of the server's, nothing unprintable, and not without end") {
  v1::AttemptTimings reported;
  Add("seal", absl::ZeroDuration(), absl::Seconds(1), reported);
  Add("Compute", absl::Seconds(1), absl::Seconds(2), reported);
  Add(std::string(33, 'a'), absl::Seconds(2), absl::Seconds(3), reported);
  Add("", absl::Seconds(3), absl::Seconds(4), reported);
  Add("train_2", absl::Seconds(4), absl::Seconds(10), reported);
  *reported.mutable_handed_in() = ToProto(absl::Seconds(10));
  CHECK(Text(PlaceAttempt(reported, TenSeconds()).intervals) == "wait -1..0, train_2 4..10");
  for (int i = 0; i < 1000; ++i) {
    Add("compute", absl::Seconds(10) + absl::Nanoseconds(i), absl::Seconds(10) + absl::Nanoseconds(i + 1), reported);
  }
  AttemptStamps stamps = TenSeconds();
  stamps.received = stamps.ended = kLeased + absl::Seconds(20);
  // Five of the 64 are above; wait, grant and hand_in are the server's.
  CHECK(PlaceAttempt(reported, stamps).intervals.size() == 1 + kWorkerIntervalsMax - 5 + 3);
}

TEST_CASE("A server's clock that was set back makes no time negative") {
  v1::AttemptTimings reported;
  Add("compute", absl::ZeroDuration(), absl::Seconds(2), reported);
  AttemptStamps stamps = TenSeconds();
  stamps.available = kLeased + absl::Seconds(5);
  stamps.received = stamps.ended = kLeased - absl::Seconds(5);
  CHECK(PlaceAttempt(reported, stamps).intervals.empty());
}

TEST_CASE("To the nanosecond, placed intervals are stored as they were placed") {
  v1::AttemptTimings reported;
  Add("compute", absl::ZeroDuration(), absl::Nanoseconds(3'000'000'001), reported);
  *reported.mutable_handed_in() = ToProto(absl::Nanoseconds(3'000'000'002));
  const AttemptTimings placed = PlaceAttempt(reported, TenSeconds());
  REQUIRE(placed.intervals.size() == 4);
  const AttemptRecord record{.number = 1, .timings = EncodeTimings(placed)};
  CHECK(DecodeTimings(TaskId{RoundId("r-1"), 0}, record)->intervals == placed.intervals);
}

}  // namespace
}  // namespace sheaf
