// What a round's end waited for: without gaps, and to the nanosecond as long as the round.
#include "server/core/rounds/critical_path.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

#include "proto/time.h"
#include "server/stored/round_release.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Verdict = v1::ResultVerdict;

const absl::Time kCreated = absl::FromUnixSeconds(1'000'000);
absl::Time At(double seconds) { return kCreated + absl::Seconds(seconds); }

// All of a task that was computed at the first try: leased after 2 s, accepted after 8 s.
PathAttempt Accepted() {
  return {.number = 1,
          .worker = "edge-7",
          .leased = At(2),
          .ended = At(8),
          .outcome = AttemptOutcome::kSucceeded,
          .intervals = {{.phase = "wait", .begin = absl::Seconds(-2)},
                        {.phase = "compute", .begin = absl::Seconds(1), .end = absl::Seconds(5)},
                        {.phase = "hand_in", .begin = absl::Seconds(5), .end = absl::Seconds(6)}}};
}
RoundStamps Stamps() {
  return {.created = At(0), .closed = At(8), .committed = At(9), .folded = At(9.5), .ended = At(10)};
}

// "wait 0..2 edge-7#1": in seconds.
std::string Text(const std::vector<Interval>& path) {
  std::string text;
  for (const Interval& interval : path) {
    text += fmt::format("{}{} {:g}..{:g}", text.empty() ? "" : ", ", interval.phase,
                        absl::ToDoubleSeconds(interval.begin), absl::ToDoubleSeconds(interval.end));
    if (interval.attempt > 0) text += fmt::format(" {}#{}", interval.worker, interval.attempt);
  }
  return text;
}

absl::Duration Sum(const v1::RoundPhases& phases) {
  return FromProto(phases.wait()) + FromProto(phases.download()) + FromProto(phases.prepare()) +
         FromProto(phases.compute()) + FromProto(phases.upload()) + FromProto(phases.fold()) +
         FromProto(phases.commit());
}

// Of a round that succeeded: its path has no gaps and is as long as the round, and so are its phases.
void CheckIsWhole(const v1::Round& round) {
  absl::Time at = FromProto(round.create_time());
  for (const v1::PhaseInterval& interval : round.critical_path()) {
    INFO(interval.phase());
    CHECK(FromProto(interval.begin_time()) == at);
    CHECK(FromProto(interval.end_time()) > at);
    at = FromProto(interval.end_time());
  }
  CHECK(at == FromProto(round.end_time()));
  CHECK(Sum(round.phases()) == FromProto(round.end_time()) - FromProto(round.create_time()));
}

absl::Duration TimeOf(const v1::Round& round, std::string_view phase, const std::string& worker) {
  absl::Duration sum;
  for (const v1::PhaseInterval& interval : round.critical_path()) {
    if (interval.phase() != phase || interval.worker() != worker) continue;
    sum += FromProto(interval.end_time()) - FromProto(interval.begin_time());
  }
  return sum;
}

TEST_CASE("The path of a round leads through the attempt that it waited for last, and names what nobody accounts for") {
  CHECK(Text(CriticalPath(Stamps(), {.index = 4, .attempts = {Accepted()}})) ==
        "wait 0..2 edge-7#1, unaccounted 2..3 edge-7#1, compute 3..7 edge-7#1, hand_in 7..8 edge-7#1, commit 8..9, "
        "fold 9..9.5, seal 9.5..10");
}

TEST_CASE("The path of a round leads through the attempts before that, and what was waited between them") {
  PathAttempt lost{.number = 1, .worker = "a", .leased = At(0.5), .ended = At(1), .outcome = AttemptOutcome::kLost};
  PathAttempt accepted = Accepted();
  accepted.number = 2;
  accepted.intervals.front().begin = absl::Seconds(-0.25);
  CHECK(Text(CriticalPath(Stamps(), {.index = 4, .attempts = {lost, accepted}}))
            .starts_with(
                "wait 0..0.5 a#1, lost 0.5..1 a#1, backoff 1..1.75 edge-7#2, wait 1.75..2 edge-7#2, unaccounted"));
}

TEST_CASE("An attempt that ran beside the accepted one held it up only until that was leased") {
  PathAttempt slow{
      .number = 1, .worker = "slow", .leased = At(1), .ended = At(8), .outcome = AttemptOutcome::kCancelled};
  PathAttempt accepted = Accepted();
  accepted.number = 2;
  CHECK(Text(CriticalPath(Stamps(), {.index = 4, .attempts = {slow, accepted}}))
            .starts_with("wait 0..1 slow#1, cancelled 1..2 slow#1, unaccounted 2..3 edge-7#2"));
}

TEST_CASE("Of very many earlier attempts the oldest are one") {
  PathTask task;
  for (int i = 0; i < 1000; ++i) {
    const absl::Time begin = kCreated + absl::Milliseconds(2 * i);
    task.attempts.push_back({.number = i + 1,
                             .worker = "w",
                             .leased = begin,
                             .ended = begin + absl::Milliseconds(1),
                             .outcome = AttemptOutcome::kFailed});
  }
  PathAttempt accepted = Accepted();
  accepted.number = 1001;
  task.attempts.push_back(accepted);
  const std::vector<Interval> path = CriticalPath(Stamps(), task);
  CHECK(path.size() <= 3 * kEarlierAttemptsMax + 8);
  CHECK(path.front().attempt == 992);
  CHECK(Sum(SumPhases(path)) == absl::Seconds(10));
}

TEST_CASE("Stamps in any order, or without an attempt, make a path that is as long as the round") {
  for (const double closed : {-5.0, 0.0, 7.0, 100.0}) {
    for (const double committed : {-5.0, 7.0, 100.0}) {
      for (const double folded : {-5.0, 8.0, 100.0}) {
        for (const bool has_attempt : {true, false}) {
          const RoundStamps stamps{.created = At(0),
                                   .closed = At(closed),
                                   .committed = At(committed),
                                   .folded = At(folded),
                                   .ended = At(10)};
          PathTask task;
          if (has_attempt) task.attempts.push_back(Accepted());
          absl::Duration at;
          for (const Interval& interval : CriticalPath(stamps, task)) {
            REQUIRE(interval.begin == at);
            REQUIRE(interval.end > at);
            at = interval.end;
          }
          REQUIRE(at == absl::Seconds(10));
        }
      }
    }
  }
  CHECK(CriticalPath({.created = At(1), .closed = At(0), .committed = At(0), .folded = At(0), .ended = At(0)}, {})
            .empty());
}

TEST_CASE("Times finer than a nanosecond, as clocks may have them, make no gap and no interval of nothing") {
  const absl::Duration half = absl::Nanoseconds(1) / 2;
  PathAttempt accepted = Accepted();
  accepted.ended += half;
  const RoundStamps stamps{.created = At(0) + half,
                           .closed = At(8) + half,
                           .committed = At(9) + half / 2,
                           .folded = At(9) + half,
                           .ended = At(10) + half};
  const std::vector<Interval> path = CriticalPath(stamps, {.index = 4, .attempts = {accepted}});
  absl::Duration at;
  for (const Interval& interval : path) {
    INFO(interval.phase);
    CHECK(interval.begin == at);
    CHECK(interval.end - interval.begin >= absl::Nanoseconds(1));
    at = interval.end;
  }
  CHECK(at == absl::Seconds(10));
  RoundRelease release{.critical_path = path};
  CHECK(DecodeRelease({.aggregate = EncodeRelease(release)})->critical_path == path);
}

TEST_CASE("A phase that a worker names itself is its computing") {
  const std::vector<Interval> path{{.phase = "train_2", .begin = absl::ZeroDuration(), .end = absl::Seconds(3)}};
  CHECK(FromProto(SumPhases(path).compute()) == absl::Seconds(3));
}

TEST_CASE("A round names its critical path, exactly, through an attempt that was lost") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(2);
  *spec.mutable_lease_duration() = ToProto(absl::Seconds(30));
  const std::string round = server.CreateRound(spec);
  server.Advance(absl::Seconds(1));
  REQUIRE(server.Sync(Ask("gone", 1)).leases_size() == 1);
  REQUIRE(Contribute(server, "quick", 1) == Verdict::ACCEPTED);
  // Its lease runs out, and nobody comes for as long again.
  server.Advance(absl::Seconds(30));
  server.Advance(absl::Seconds(30));
  const v1::SyncResponse granted = server.Sync(Ask("edge-7", 1));
  REQUIRE(granted.leases_size() == 1);
  CHECK(granted.has_grant_time());
  server.Advance(absl::Seconds(10));
  v1::SyncRequest request = Ask("edge-7", 0);
  *request.add_results() = Result(granted.leases(0), 1);
  v1::AttemptTimings& timings = *request.mutable_results(0)->mutable_timings();
  // Half a second on the way in each direction, by a clock that counts from the lease's arrival.
  v1::AttemptTimings::Interval& compute = *timings.add_intervals();
  compute.set_phase("compute");
  *compute.mutable_end() = ToProto(absl::Seconds(9));
  *timings.mutable_handed_in() = ToProto(absl::Seconds(9));
  *timings.mutable_grant_time() = granted.grant_time();
  REQUIRE(server.Sync(request).verdicts(0).verdict() == Verdict::ACCEPTED);

  const v1::Round done = server.GetRound(round);
  REQUIRE(done.state() == v1::SUCCEEDED);
  CheckIsWhole(done);
  CHECK(TimeOf(done, "wait", "gone") == absl::Seconds(1));
  CHECK(TimeOf(done, "lost", "gone") == absl::Seconds(30));
  CHECK(TimeOf(done, "wait", "edge-7") == absl::Seconds(30));
  CHECK(TimeOf(done, "grant", "edge-7") == absl::Milliseconds(500));
  CHECK(TimeOf(done, "compute", "edge-7") == absl::Seconds(9));
  CHECK(TimeOf(done, "hand_in", "edge-7") == absl::Milliseconds(500));
  CHECK(TimeOf(done, "unaccounted", "edge-7") == absl::ZeroDuration());
  // The same of the attempt, on the server's clock.
  const v1::Task task = server.GetTask(granted.leases(0).task());
  REQUIRE(task.attempts_size() == 2);
  CHECK(task.attempts(1).intervals_size() == 4);
  CHECK(task.attempts(1).timings().intervals().empty());
}

TEST_CASE("A round that its deadline ended waited for more contributions until then") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(2);
  spec.set_min_goal(1);
  *spec.mutable_deadline() = ToProto(absl::Seconds(100));
  const std::string round = server.CreateRound(spec);
  server.Advance(absl::Seconds(10));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  server.Advance(absl::Seconds(95));
  const v1::Round done = server.GetRound(round);
  REQUIRE(done.state() == v1::SUCCEEDED);
  CheckIsWhole(done);
  CHECK(TimeOf(done, "closing", "") >= absl::Seconds(90));
}

}  // namespace
}  // namespace sheaf
