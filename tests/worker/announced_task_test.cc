// Tasks of announced rounds, from the worker's side: prepared ahead, and run when their rounds have opened.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/worker/loop_harness.h"

namespace sheaf {
namespace {

v1::SyncResponse Announcing(const std::vector<std::string>& tasks) {
  v1::SyncResponse response = Granting(tasks);
  response.set_has_announced(true);
  for (v1::Lease& lease : *response.mutable_leases()) {
    lease.set_announced(true);
    lease.clear_broadcast_digest();
  }
  return response;
}

// For each lease that the newest call says is held.
v1::SyncResponse Opening(const LoopHarness& test) {
  v1::SyncResponse response;
  response.set_has_announced(true);
  for (const v1::HeldLease& held : test.LastSync().held()) {
    v1::LeaseUpdate* update = response.add_held();
    update->set_lease_token(held.lease_token());
    update->set_verdict(held.announced() ? v1::LeaseUpdate::OPENED : v1::LeaseUpdate::HELD);
    Set(update->mutable_remaining(), absl::Seconds(30));
  }
  return response;
}

TEST_CASE("A worker prepares a task of an announced round at once, and runs it when it hears that the round is open") {
  LoopHarness test({.worker = "w", .prepare_ahead = 1});
  CHECK(test.LastSync().want() == 1);
  CHECK(test.LastSync().want_announced() == 1);
  test.AnswerLastSync(Announcing({"t1"}));
  CHECK(test.runner.prepared == std::vector<std::string>{"t1"});
  CHECK(test.runner.runs.empty());
  // It still wants a task to run, and says what it holds.
  CHECK(test.LastSync().want() == 1);
  CHECK(test.LastSync().want_announced() == 0);
  REQUIRE(test.LastSync().held_size() == 1);
  CHECK(test.LastSync().held(0).announced());
  test.AnswerLastSync(Opening(test));
  REQUIRE(test.runner.runs.size() == 1);
  test.FinishRun(0, "result");
  REQUIRE(test.LastSync().results_size() == 1);
  CHECK(test.LastSync().results(0).contribution() == "result");
}

TEST_CASE("The time that a prepared task waited for its round has an interval of its own, and is in no other") {
  LoopHarness test({.worker = "w", .prepare_ahead = 1});
  test.AnswerLastSync(Announcing({"t1"}));
  test.clock.Advance(absl::Seconds(5));
  test.AnswerLastSync(Opening(test));
  test.clock.Advance(absl::Seconds(2));
  test.FinishRun(0, "result");
  const v1::AttemptTimings& timings = test.LastSync().results(0).timings();
  REQUIRE(timings.intervals_size() == 2);
  CHECK(timings.intervals(0).phase() == "prepared");
  CHECK(timings.intervals(0).end().seconds() == 5);
  CHECK(timings.intervals(1).phase() == "compute");
  CHECK(timings.intervals(1).begin().seconds() == 5);
  CHECK(timings.compute().seconds() == 2);
  CHECK(timings.upload().seconds() == 0);
}

TEST_CASE("A worker that waits for its round to open makes progress") {
  LoopHarness test({.worker = "w", .prepare_ahead = 1});
  test.AnswerLastSync(Announcing({"t1"}));
  int64_t progress = test.LastSync().held(0).progress();
  for (int i = 0; i < 3; ++i) {
    test.AnswerLastSync();
    test.Advance(absl::Seconds(11));
    REQUIRE(test.LastSync().held_size() == 1);
    CHECK(test.LastSync().held(0).progress() > progress);
    progress = test.LastSync().held(0).progress();
  }
}

TEST_CASE("Of tasks whose rounds have opened only as many run as there are places, before anything new is asked for") {
  LoopHarness test({.worker = "w", .concurrency = 1, .prepare_ahead = 3});
  test.AnswerLastSync(Announcing({"t1", "t2", "t3"}));
  test.AnswerLastSync(Opening(test));
  CHECK(test.runner.runs.size() == 1);
  CHECK(test.LastSync().want() == 0);
  // Those that wait for their turn keep their places ahead; who runs has left its.
  CHECK(test.LastSync().want_announced() == 1);
  for (const v1::HeldLease& held : test.LastSync().held()) CHECK_FALSE(held.announced());
  test.FinishRun(0, "r1");
  CHECK(test.runner.runs.size() == 2);
  CHECK(test.LastSync().want() == 0);
  test.AnswerLastSync();
  test.FinishRun(1, "r2");
  CHECK(test.runner.runs.size() == 3);
  test.AnswerLastSync();
  test.FinishRun(2, "r3");
  CHECK(test.LastSync().want() == 1);
  CHECK(test.LastSync().want_announced() == 3);
}

TEST_CASE("A worker that computes keeps no call parked for tasks to prepare unless rounds are announced") {
  LoopHarness test({.worker = "w", .prepare_ahead = 2});
  test.AnswerLastSync(Granting({"t1"}));
  CHECK(test.num_syncs() == 1);
  test.FinishRun(0, "r1");
  v1::SyncResponse response = Granting({"t2"});
  response.set_has_announced(true);
  test.AnswerLastSync(response);
  CHECK(test.num_syncs() == 3);
  CHECK(test.LastSync().want() == 0);
  CHECK(test.LastSync().want_announced() == 2);
}

TEST_CASE("A task that fails while it is prepared is reported before its round opens") {
  LoopHarness test({.worker = "w", .prepare_ahead = 1});
  test.runner.prepare_error = absl::NotFoundError("no such data");
  test.AnswerLastSync(Announcing({"t1"}));
  REQUIRE(test.LastSync().results_size() == 1);
  CHECK(test.LastSync().results(0).failure().message() == "NOT_FOUND: no such data");
}

TEST_CASE("A worker that is told to stop gives back what it has only prepared, and finishes what has opened") {
  LoopHarness test({.worker = "w", .concurrency = 1, .prepare_ahead = 2});
  test.AnswerLastSync(Announcing({"t1"}));
  test.AnswerLastSync(Opening(test));
  REQUIRE(test.runner.runs.size() == 1);
  test.AnswerLastSync(Announcing({"t2"}));
  test.loop.RequestDrain();
  test.Step();
  REQUIRE(test.LastSync().results_size() == 1);
  CHECK(test.LastSync().results(0).task() == "t2");
  CHECK(test.LastSync().results(0).release().reason() == "the worker is stopping");
  test.AnswerLastSync();
  test.FinishRun(0, "r1");
  CHECK(test.LastSync().results(0).contribution() == "r1");
}

TEST_CASE("More tasks to prepare than were asked for are given back") {
  LoopHarness test({.worker = "w", .prepare_ahead = 1});
  test.AnswerLastSync(Announcing({"t1", "t2"}));
  CHECK(test.runner.prepared == std::vector<std::string>{"t1"});
  REQUIRE(test.LastSync().results_size() == 1);
  CHECK(test.LastSync().results(0).task() == "t2");
  CHECK(test.LastSync().results(0).has_release());
}

}  // namespace
}  // namespace sheaf
