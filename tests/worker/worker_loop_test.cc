#include "worker/worker_loop.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <set>

#include "aggregation/wire/safetensors.h"
#include "aggregation/wire/safetensors_patch.h"
#include "base/checksum.h"
#include "base/retry_hint.h"
#include "tests/worker/loop_harness.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using V = v1::ResultVerdict;

v1::SyncResponse WithVerdict(const std::string& token, V::Verdict verdict, const std::string& message = "") {
  v1::SyncResponse response;
  v1::ResultVerdict* v = response.add_verdicts();
  v->set_lease_token(token);
  v->set_verdict(verdict);
  v->set_message(message);
  return response;
}

v1::SyncResponse WithUpdate(const std::string& token, v1::LeaseUpdate::Verdict verdict,
                            absl::Duration remaining = absl::ZeroDuration()) {
  v1::SyncResponse response;
  v1::LeaseUpdate* update = response.add_held();
  update->set_lease_token(token);
  update->set_verdict(verdict);
  Set(update->mutable_remaining(), remaining);
  return response;
}

TEST_CASE("An idle worker says who it is and what it can run, and waits for work in a parked call") {
  LoopHarness test({.worker = "w-7", .population = "cars", .labels = {{"zone", "eu"}}, .concurrency = 3});
  REQUIRE(test.num_syncs() == 1);
  const v1::SyncRequest& sync = test.Sync(0);
  CHECK(sync.worker() == "w-7");
  CHECK(sync.population() == "cars");
  CHECK(sync.labels().at("zone") == "eu");
  CHECK(sync.computations(0).name() == "noop");
  CHECK(sync.want() == 3);
  CHECK_FALSE(sync.poll_id().empty());
  CHECK(sync.wait().seconds() == 30);
  CHECK(test.loop.state() == WorkerState::kPulling);
  CHECK(test.transport.calls[0].options.timeout > absl::Seconds(30));
}

TEST_CASE("A steady worker makes one call per task: the last result and the next wish travel together") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t0"}));
  for (int i = 0; i < 10; ++i) {
    test.FinishRun(i, "result");
    const v1::SyncRequest& sync = test.LastSync();
    CHECK(sync.results_size() == 1);
    CHECK(sync.results(0).task() == "t" + std::to_string(i));
    CHECK(sync.results(0).contribution() == "result");
    CHECK(sync.held_size() == 0);
    CHECK(sync.want() == 1);
    test.AnswerLastSync(Granting({"t" + std::to_string(i + 1)}));
  }
  CHECK(test.num_syncs() == 11);
  CHECK(test.loop.counters().verdicts.at(V::ACCEPTED) == 10);
}

TEST_CASE("A poll whose answer got lost is repeated under the same id, and under a new one once it was answered") {
  LoopHarness test;
  std::string id = test.LastSync().poll_id();
  for (int i = 0; i < 3; ++i) {
    test.FailLastSync(absl::UnavailableError("connection reset"));
    test.Advance(absl::Seconds(10));
    CHECK(test.LastSync().poll_id() == id);
  }
  test.AnswerLastSync();
  test.Advance(absl::Seconds(1));
  CHECK_FALSE(test.LastSync().poll_id().empty());
  CHECK(test.LastSync().poll_id() != id);
}

TEST_CASE("A result whose verdict got lost is handed in again") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1"}));
  test.FinishRun(0, "result");
  test.FailLastSync(absl::DeadlineExceededError("no answer"));
  test.Advance(absl::Seconds(10));
  REQUIRE(test.LastSync().results_size() == 1);
  test.AnswerLastSync(WithVerdict("token-t1", V::DUPLICATE));
  CHECK(test.loop.num_held() == 0);
}

TEST_CASE("A lease that arrives twice is run once") {
  LoopHarness test({.worker = "w", .concurrency = 2});
  test.AnswerLastSync(Granting({"t1"}));
  test.AnswerLastSync(Granting({"t1"}));
  CHECK(test.runner.prepared == std::vector<std::string>{"t1"});
  CHECK(test.loop.num_held() == 1);

  SECTION("even when it arrives after its result was accepted") {
    test.FinishRun(0, "result");
    test.AnswerLastSync(Granting({"t1"}));
    CHECK(test.runner.prepared.size() == 1);
    CHECK(test.loop.num_held() == 0);
  }
}

TEST_CASE("A result that is ready while a poll is parked goes out at once") {
  LoopHarness test({.worker = "w", .concurrency = 2});
  test.AnswerLastSync(Granting({"t1"}));
  REQUIRE(test.SyncIsOpen(1));
  CHECK(test.Sync(1).want() == 1);
  std::string id = test.Sync(1).poll_id();
  test.FinishRun(0, "result");
  REQUIRE(test.num_syncs() == 3);
  CHECK(test.Sync(2).results_size() == 1);
  CHECK(test.Sync(2).want() == 2);
  CHECK(test.Sync(2).poll_id() == id);

  SECTION("and the answer to the older call still counts") {
    test.AnswerSync(1, Granting({"t2"}));
    CHECK(test.runner.prepared == std::vector<std::string>{"t1", "t2"});
    test.AnswerSync(2, Granting({"t2", "t3"}));
    CHECK(test.runner.prepared == std::vector<std::string>{"t1", "t2", "t3"});
    CHECK(test.loop.num_held() == 2);
  }
}

TEST_CASE("Leases beyond what was asked for are given back") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1", "t2"}));
  CHECK(test.runner.prepared == std::vector<std::string>{"t1"});
  REQUIRE(test.LastSync().results_size() == 1);
  CHECK(test.LastSync().results(0).task() == "t2");
  CHECK(test.LastSync().results(0).has_release());
}

TEST_CASE("Every verdict ends the matter, and a rejection is not mistaken for success") {
  for (V::Verdict verdict :
       {V::ACCEPTED, V::DUPLICATE, V::LATE, V::NOT_NEEDED, V::LEASE_LOST, V::REJECTED, V::UNKNOWN_TASK}) {
    LoopHarness test;
    test.AnswerLastSync(Granting({"t1"}));
    test.FinishRun(0, "result");
    test.AnswerLastSync(WithVerdict("token-t1", verdict, "output \"w\" has NaN at 3"));
    CHECK(test.loop.num_held() == 0);
    CHECK(test.loop.counters().verdicts == std::map<V::Verdict, int64_t>{{verdict, 1}});
    test.Advance(absl::Seconds(1));
    CHECK(test.LastSync().results_size() == 0);
  }
}

TEST_CASE("A computation that fails is reported with its reason, and only a wrong task is beyond retrying") {
  for (bool permanent : {false, true}) {
    LoopHarness test;
    test.AnswerLastSync(Granting({"t1"}));
    test.FinishRun(0, permanent ? absl::InvalidArgumentError("no such client") : absl::InternalError("out of luck"));
    REQUIRE(test.LastSync().results(0).has_failure());
    CHECK(test.LastSync().results(0).failure().permanent() == permanent);
    CHECK_THAT(test.LastSync().results(0).failure().message(), Catch::Contains(permanent ? "no such client" : "luck"));
  }
}

TEST_CASE("A contribution larger than the round allows is a failure that says so, and is not sent") {
  LoopHarness test;
  v1::SyncResponse response = Granting({"t1"});
  response.mutable_leases(0)->set_contribution_bytes_max(10);
  test.AnswerLastSync(response);
  test.FinishRun(0, std::string(11, 'x'));
  REQUIRE(test.LastSync().results(0).has_failure());
  CHECK_THAT(test.LastSync().results(0).failure().message(), Catch::Contains("11 bytes") && Catch::Contains("most 10"));
}

// The reason with which the newest call reports a failure.
std::string ReportedFailure(const LoopHarness& h) {
  REQUIRE(h.LastSync().results_size() == 1);
  return h.LastSync().results(0).failure().message();
}

TEST_CASE("What a server may have a worker return is the worker's to limit, and is checked before it is computed") {
  LoopHarness h({.worker = "w", .contribution_bytes_max = 1000});
  v1::SyncResponse granting = Granting({"t1"});
  v1::OutputSpec& output = *granting.mutable_leases(0)->mutable_aggregate()->add_outputs();
  output.set_operator_("sum");
  output.set_dtype(v1::FLOAT64);
  output.add_dense_shape(GENERATE(int64_t{126}, int64_t{1} << 60));
  h.AnswerSync(0, granting);
  CHECK(h.runner.prepared.empty());
  CHECK_THAT(ReportedFailure(h), Contains("at most 1000") && Contains("--contribution-megabytes"));
  output.set_dense_shape(0, 125);
  granting.mutable_leases(0)->set_lease_token("another");
  h.AnswerLastSync(granting);
  REQUIRE(h.runner.runs.size() == 1);
  h.FinishRun(0, std::string(1001, 'x'));
  CHECK_THAT(ReportedFailure(h), Contains("has 1001 bytes") && Contains("at most 1000"));
}

TEST_CASE("A broadcast that is larger than the worker takes is given up at its first piece") {
  LoopHarness h({.worker = "w", .broadcast_bytes_max = 1000});
  h.runner.needs.whole_broadcast = true;
  h.AnswerSync(0, Granting({"t1"}));
  v1::ReadBlobResponse piece;
  piece.set_data(std::string(10, 'x'));
  piece.set_size_bytes(int64_t{1} << 50);
  h.AnswerLastCall(piece);
  CHECK_THAT(ReportedFailure(h), Contains("no more than 1000"));
  CHECK(h.Calls(kReadBlob.name).size() == 1);
}

std::string PatchOf(const std::string& base, const std::vector<int64_t>& rows, char fill) {
  const std::string values(rows.size(), fill);
  const TensorChange change = {
      .tensor = "w", .rows = rows, .dtype = v1::UINT8, .shape = {static_cast<int64_t>(rows.size())}, .data = values};
  return EncodeSafetensorsPatch(Sha256Hex(base), {&change, 1});
}

v1::SyncResponse GrantingWith(const std::string& task, const std::string& broadcast) {
  v1::SyncResponse response = Granting({task});
  response.mutable_leases(0)->set_broadcast_digest(Sha256Hex(broadcast));
  return response;
}

// The loop asks for these bytes, and gets them.
void AnswerRead(LoopHarness& h, const std::string& bytes) {
  const auto& asked = h.LastCall<v1::ReadBlobRequest>();
  CHECK(asked.digest() == Sha256Hex(bytes));
  CHECK(asked.takes_patches());
  v1::ReadBlobResponse piece;
  piece.set_data(bytes);
  piece.set_size_bytes(static_cast<int64_t>(bytes.size()));
  h.AnswerLastCall(piece);
}

TEST_CASE("A computation gets the whole model of a broadcast that is a patch, and the next patch alone is read") {
  LoopHarness h;
  h.runner.needs.whole_broadcast = true;
  const std::string base = EncodeSafetensors(std::vector<NamedTensor>{{"w", v1::UINT8, {4}, "mmmm"}}, {});
  const std::string first = PatchOf(base, {1, 2}, 'x');
  const std::string second = PatchOf(first, {2}, 'y');
  std::string whole = base;
  REQUIRE(ApplySafetensorsPatch(first, whole).ok());

  h.AnswerLastSync(GrantingWith("t1", first));
  AnswerRead(h, first);
  AnswerRead(h, base);
  REQUIRE(h.runner.runs.size() == 1);
  CHECK(h.runner.runs[0].inputs->broadcast_digest == Sha256Hex(first));
  CHECK(*h.runner.runs[0].inputs->broadcast == whole);
  h.FinishRun(0, "result");
  CHECK(h.LastSync().results(0).timings().bytes_down() == static_cast<int64_t>(base.size() + first.size()));

  const std::shared_ptr<const std::string> kept = h.runner.runs[0].inputs->broadcast;
  h.AnswerLastSync(GrantingWith("t2", second));
  AnswerRead(h, second);
  REQUIRE(h.runner.runs.size() == 2);
  CHECK(*kept == whole);
  REQUIRE(ApplySafetensorsPatch(second, whole).ok());
  CHECK(*h.runner.runs[1].inputs->broadcast == whole);
  h.FinishRun(1, "result");
  CHECK(h.LastSync().results(0).timings().bytes_down() == static_cast<int64_t>(second.size()));

  for (const std::string& known : {first, second}) {
    h.AnswerLastSync(GrantingWith("again-" + Sha256Hex(known), known));
    h.FinishRun(static_cast<int>(h.runner.runs.size()) - 1, "result");
  }
  CHECK(h.runner.runs.size() == 4);
  CHECK(h.Calls(kReadBlob.name).size() == 3);
}

TEST_CASE("A task whose broadcast is a patch that does not fit fails, and says which") {
  LoopHarness h;
  h.runner.needs.whole_broadcast = true;
  const std::string base = EncodeSafetensors(std::vector<NamedTensor>{{"w", v1::UINT8, {4}, "mmmm"}}, {});
  const std::string patch = PatchOf(base, {4}, 'x');
  h.AnswerLastSync(GrantingWith("t1", patch));
  AnswerRead(h, patch);
  AnswerRead(h, base);
  CHECK(h.runner.runs.empty());
  CHECK_THAT(ReportedFailure(h), Contains(Sha256Hex(patch)) && Contains("\"w\""));
  CHECK(h.cache.Find(Sha256Hex(patch)) == nullptr);
}

TEST_CASE("Rows that never end are given up when they are more than the worker takes") {
  LoopHarness h({.worker = "w", .broadcast_bytes_max = 1000});
  h.runner.needs.selections.emplace_back().set_tensor("x");
  h.runner.needs.selections.back().set_all(true);
  h.AnswerSync(0, Granting({"t1"}));
  for (int i = 0; i < 11; ++i) {
    REQUIRE(h.transport.calls.back().method == kSelectRows.name);
    v1::SelectRowsResponse response;
    v1::SelectRowsResponse::Piece& piece = *response.add_pieces();
    piece.set_first_row(100 * i);
    piece.mutable_rows()->set_dtype(v1::UINT8);
    piece.mutable_rows()->add_shape(100);
    piece.mutable_rows()->set_data(std::string(100, 'x'));
    response.set_next_cursor("0:" + std::to_string(100 * (i + 1)));
    h.AnswerLastCall(response);
  }
  CHECK_THAT(ReportedFailure(h), Contains("more than 1000 bytes"));
}

TEST_CASE(
    "A worker that an overloaded server turned away keeps what it has and comes back when it was told, or later") {
  LoopHarness h;
  h.AnswerSync(0, Granting({"t1"}));
  h.FinishRun(0, "contribution");
  REQUIRE(h.num_syncs() == 2);
  h.FailLastSync(WithRetryAfter(absl::ResourceExhaustedError("the server is overloaded"), absl::Seconds(3)));
  h.Advance(absl::Seconds(2.9));
  CHECK(h.num_syncs() == 2);
  h.Advance(absl::Seconds(3.2));
  REQUIRE(h.num_syncs() == 3);
  CHECK(h.LastSync().results_size() == 1);
  CHECK(h.LastSync().results(0).lease_token() == "token-t1");
}

TEST_CASE("A lease is renewed when a third of it has passed, with the progress the computation reported") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1"}, absl::Seconds(30)));
  REQUIRE(test.num_syncs() == 1);
  test.Advance(absl::Milliseconds(9999));
  CHECK(test.num_syncs() == 1);
  test.runner.runs[0].control->ReportProgress(500);
  test.Advance(absl::Milliseconds(1));
  REQUIRE(test.num_syncs() == 2);
  REQUIRE(test.LastSync().held_size() == 1);
  CHECK(test.LastSync().want() == 0);
  int64_t progress = test.LastSync().held(0).progress();
  CHECK(progress >= 500);

  test.AnswerLastSync();
  test.runner.runs[0].control->ReportProgress();
  test.Advance(absl::Seconds(10));
  CHECK(test.LastSync().held(0).progress() == progress + 1);
}

TEST_CASE("A lease's time counts from when the request was sent, not from when the answer came") {
  LoopHarness test;
  test.Advance(absl::Seconds(8));
  test.AnswerLastSync(Granting({"t1"}, absl::Seconds(30)));
  test.Advance(absl::Seconds(2));
  CHECK(test.LastSync().held_size() == 1);
  // The renewal gets no answer; 30 s after the poll was sent the attempt ends.
  test.Advance(absl::Milliseconds(19'999));
  CHECK_FALSE(test.runner.runs[0].control->is_cancelled());
  test.Advance(absl::Milliseconds(1));
  CHECK(test.runner.runs[0].control->is_cancelled());
  CHECK(test.loop.counters().stopped == 1);
}

TEST_CASE("A lease that lapsed before its grant arrived is not started") {
  LoopHarness test;
  test.Advance(absl::Seconds(31));
  test.AnswerLastSync(Granting({"t1"}, absl::Seconds(30)));
  CHECK(test.runner.prepared.empty());
}

TEST_CASE("A lease that lapsed here, and that the server still holds for this worker's, is run again") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1"}, absl::Seconds(30)));
  test.Advance(absl::Seconds(31));
  CHECK(test.runner.runs[0].control->is_cancelled());
  CHECK(test.loop.num_held() == 0);
  test.FinishRun(0, "too late");
  test.AnswerLastSync(Granting({"t1"}, absl::Seconds(30)));
  CHECK(test.runner.prepared == std::vector<std::string>{"t1", "t1"});
  CHECK(test.loop.num_held() == 1);
}

TEST_CASE("One renewal that fails does not cost the lease") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1"}, absl::Seconds(30)));
  test.Advance(absl::Seconds(10));
  test.FailLastSync(absl::UnavailableError("gone for a moment"));
  test.Advance(absl::Seconds(7));
  CHECK(test.LastSync().held_size() == 1);
  test.AnswerLastSync();
  test.Advance(absl::Seconds(20));
  CHECK_FALSE(test.runner.runs[0].control->is_cancelled());
}

TEST_CASE("A cancelled or lost lease stops its run, and nothing is reported") {
  for (auto verdict : {v1::LeaseUpdate::CANCELLED, v1::LeaseUpdate::LOST}) {
    LoopHarness test;
    test.AnswerLastSync(Granting({"t1"}));
    test.Advance(absl::Seconds(10));
    test.AnswerLastSync(WithUpdate("token-t1", verdict));
    CHECK(test.runner.runs[0].control->is_cancelled());
    CHECK(test.loop.num_held() == 0);
    // The slot is free only when the computation has noticed.
    test.Advance(absl::Seconds(1));
    int syncs = test.num_syncs();
    test.FinishRun(0, absl::CancelledError("stopped"));
    CHECK(test.num_syncs() == syncs + 1);
    CHECK(test.LastSync().results_size() == 0);
    CHECK(test.LastSync().want() == 1);
  }
}

TEST_CASE("A result under way is not forgotten because its lease is gone: its own verdict decides") {
  LoopHarness test({.worker = "w", .concurrency = 2});
  test.AnswerLastSync(Granting({"t1", "t2"}));
  test.FinishRun(0, "first");
  int carrying = test.num_syncs() - 1;
  // The verdict on t1 is late; meanwhile a renewal names it among the held and hears that it is lost.
  test.Advance(absl::Seconds(10));
  REQUIRE(test.num_syncs() == carrying + 2);
  REQUIRE(test.LastSync().held_size() == 2);
  test.AnswerLastSync(WithUpdate("token-t1", v1::LeaseUpdate::LOST));
  test.AnswerSync(carrying);
  CHECK(test.loop.counters().verdicts.at(V::ACCEPTED) == 1);
}

TEST_CASE("A result that cannot be handed in is dropped when its lease is over and a moment has passed") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1"}, absl::Seconds(30)));
  test.FinishRun(0, "result");
  absl::Time granted = test.clock.Now();
  while (test.loop.num_held() == 1) {
    if (test.SyncIsOpen(test.num_syncs() - 1)) test.FailLastSync(absl::UnavailableError("down"));
    test.Advance(absl::Seconds(1));
  }
  CHECK(test.clock.Now() - granted >= absl::Seconds(30));
  CHECK(test.clock.Now() - granted <= absl::Seconds(40));
  CHECK(test.loop.counters().undelivered == 1);
}

TEST_CASE("While there is no room for a result, it and whatever else the worker holds is renewed without it") {
  LoopHarness test({.worker = "w", .concurrency = 3});
  test.AnswerLastSync(Granting({"t1", "t2"}, absl::Seconds(30)));
  test.FinishRun(0, "result");
  const absl::Status refusal = WithRetryAfter(absl::ResourceExhaustedError("the spool is full"), absl::Seconds(1));
  const absl::Time full_until = test.clock.Now() + absl::Minutes(5);
  int num_refused = 0;
  while (test.clock.Now() < full_until) {
    if (!test.SyncIsOpen(test.num_syncs() - 1)) {
      test.Advance(absl::Milliseconds(100));
    } else if (test.LastSync().results_size() > 0) {
      ++num_refused;
      test.FailLastSync(refusal);
    } else {
      test.AnswerLastSync();
    }
    REQUIRE(test.loop.num_held() == 2);
    REQUIRE_FALSE(test.runner.runs[1].control->is_cancelled());
  }
  // Neither hammered nor left alone.
  CHECK(num_refused > 20);
  CHECK(num_refused < 300);
  while (test.loop.counters().verdicts.empty()) {
    if (test.SyncIsOpen(test.num_syncs() - 1)) test.AnswerLastSync();
    test.Advance(absl::Milliseconds(100));
  }
  CHECK(test.loop.counters().verdicts.at(V::ACCEPTED) == 1);
  CHECK(test.loop.counters().stopped == 0);
}

TEST_CASE("A server that is down is asked again after pauses that grow to ten seconds at most, and never for ever") {
  LoopHarness test;
  absl::Duration longest;
  for (int i = 0; i < 200; ++i) {
    absl::Time failed = test.clock.Now();
    test.FailLastSync(absl::UnavailableError("down"));
    int syncs = test.num_syncs();
    while (test.num_syncs() == syncs) {
      absl::Time next = test.Step();
      REQUIRE(next > test.clock.Now());
      test.clock.Set(next);
      test.Step();
    }
    absl::Duration pause = test.clock.Now() - failed;
    CHECK(pause <= std::min(absl::Seconds(10), absl::Milliseconds(100) * (1 << std::min(i, 10))));
    longest = std::max(longest, pause);
  }
  CHECK(longest > absl::Seconds(8));
  // Once it answers, all is forgotten.
  test.AnswerLastSync(Granting({"t1"}));
  CHECK(test.runner.prepared.size() == 1);
}

TEST_CASE("A server that speaks another protocol ends the worker with the server's sentence") {
  LoopHarness test({.worker = "w", .protocol_version_max = 1});
  test.FailLastSync(absl::FailedPreconditionError("protocol 1 is not served; upgrade to 3..5"));
  CHECK(test.loop.is_done());
  CHECK(test.loop.exit_status() == absl::FailedPreconditionError("protocol 1 is not served; upgrade to 3..5"));
  CHECK(test.Advance(absl::Hours(1)) == absl::InfiniteFuture());
}

TEST_CASE(
    "A worker that speaks later protocols than its server speaks the server's, and a later one once it is served") {
  const absl::Status refused = absl::FailedPreconditionError("the server serves 1 to 1; upgrade the server first");
  LoopHarness test({.worker = "w", .protocol_version_max = 3});
  const auto serves = [&](int highest) {
    v1::SyncResponse response = Granting({});
    response.set_protocol_version_max(highest);
    test.AnswerLastSync(response);
  };
  CHECK(test.LastSync().protocol_version() == 3);
  test.FailLastSync(refused);
  CHECK(test.LastSync().protocol_version() == 2);
  test.FailLastSync(refused);
  CHECK(test.LastSync().protocol_version() == 1);
  CHECK(test.LastSync().want() == 1);
  CHECK(test.num_syncs() == 3);
  serves(1);
  test.Advance(absl::Minutes(1));
  CHECK(test.LastSync().protocol_version() == 1);
  // The server was upgraded, and later to one that serves more than the worker speaks.
  serves(2);
  test.Advance(absl::Minutes(1));
  CHECK(test.LastSync().protocol_version() == 2);
  serves(7);
  test.Advance(absl::Minutes(1));
  CHECK(test.LastSync().protocol_version() == 3);
  // Nothing that it speaks is served.
  for (int i = 0; i < 3; ++i) {
    CHECK(!test.loop.is_done());
    test.FailLastSync(refused);
  }
  CHECK(test.loop.is_done());
  CHECK(test.loop.exit_status() == refused);
}

TEST_CASE("A worker that is refused comes back rarely") {
  for (const absl::Status& status : {absl::InvalidArgumentError("bad name"), absl::PermissionDeniedError("no")}) {
    LoopHarness test;
    test.FailLastSync(status);
    test.Advance(absl::Seconds(29));
    CHECK(test.num_syncs() == 1);
    test.Advance(absl::Seconds(31));
    CHECK(test.num_syncs() == 2);
  }
}

TEST_CASE("The server says when to call again, and the worker picks an instant in between") {
  std::set<absl::Duration> pauses;
  LoopHarness test;
  for (int i = 0; i < 20; ++i) {
    v1::SyncResponse response;
    Set(response.mutable_next_min(), absl::Seconds(2));
    Set(response.mutable_next_max(), absl::Seconds(4));
    test.AnswerLastSync(response);
    absl::Duration pause = test.Step() - test.clock.Now();
    CHECK(pause >= absl::Seconds(2));
    CHECK(pause <= absl::Seconds(4));
    pauses.insert(pause);
    test.Advance(pause);
    REQUIRE(test.num_syncs() == i + 2);
  }
  CHECK(pauses.size() > 10);
}

TEST_CASE("The server may make a worker hold fewer tasks than it could") {
  LoopHarness test({.worker = "w", .concurrency = 8});
  v1::SyncResponse response;
  response.set_suggested_concurrency(2);
  test.AnswerLastSync(response);
  test.Advance(absl::Seconds(1));
  CHECK(test.LastSync().want() == 2);
}

TEST_CASE("A worker told to stop hands in what it has and is done") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1"}));
  test.loop.RequestDrain();
  CHECK(test.wakes > 0);
  test.Step();
  CHECK(test.loop.state() == WorkerState::kDraining);
  CHECK(test.LastSync().draining());
  CHECK(test.LastSync().want() == 0);
  test.AnswerLastSync();
  CHECK_FALSE(test.loop.is_done());
  test.FinishRun(0, "result");
  REQUIRE(test.LastSync().results_size() == 1);
  CHECK(test.LastSync().draining());
  CHECK(test.LastSync().want() == 0);
  test.AnswerLastSync();
  CHECK(test.loop.is_done());
  CHECK(test.loop.exit_status().ok());
}

TEST_CASE("An idle worker told to stop first takes its wish back, so that no lease is granted to nobody") {
  LoopHarness test;
  test.loop.RequestDrain();
  test.Step();
  REQUIRE(test.num_syncs() == 2);
  CHECK(test.LastSync().draining());
  CHECK_FALSE(test.loop.is_done());
  // The poll was granted a lease at this very moment, and the server sends it again.
  test.AnswerLastSync(Granting({"t1"}));
  CHECK_FALSE(test.loop.is_done());
  REQUIRE(test.LastSync().results_size() == 1);
  CHECK(test.LastSync().results(0).has_release());
  test.AnswerLastSync();
  CHECK(test.loop.is_done());
}

TEST_CASE("What still runs when the grace time is over is given back") {
  LoopHarness test({.worker = "w", .grace = absl::Seconds(5)});
  test.AnswerLastSync(Granting({"t1"}));
  test.loop.RequestDrain();
  test.Step();
  test.AnswerLastSync();
  test.Advance(absl::Milliseconds(4999));
  CHECK_FALSE(test.runner.runs[0].control->is_cancelled());
  test.Advance(absl::Milliseconds(1));
  CHECK(test.runner.runs[0].control->is_cancelled());
  REQUIRE(test.LastSync().results_size() == 1);
  CHECK(test.LastSync().results(0).has_release());
  test.AnswerLastSync();
  CHECK(test.loop.is_done());
}

v1::SyncResponse Draining(v1::SyncResponse response = {}) {
  response.set_drain(true);
  return response;
}

TEST_CASE("A drained worker finishes what it holds, stays, and wants tasks again when it is taken back") {
  LoopHarness test({.worker = "w", .concurrency = 2});
  test.AnswerLastSync(Granting({"t1"}));
  REQUIRE(test.LastSync().want() == 1);
  test.AnswerLastSync(Draining());
  // It waits to be taken back, in a parked call, and goes on with what it holds.
  CHECK(test.LastSync().want() == 0);
  CHECK(test.LastSync().drained());
  CHECK(test.LastSync().wait().seconds() >= 5);
  CHECK_FALSE(test.LastSync().draining());
  CHECK_FALSE(test.runner.runs[0].control->is_cancelled());
  test.FinishRun(0, "result");
  REQUIRE(test.LastSync().results_size() == 1);
  CHECK(test.LastSync().want() == 0);
  test.AnswerLastSync(Draining());
  test.Advance(absl::Seconds(10));
  CHECK(test.loop.state() == WorkerState::kDrained);
  for (int i = 0; i < 20; ++i) {
    CHECK(test.LastSync().want() == 0);
    CHECK(test.LastSync().wait().seconds() == 30);
    test.Advance(absl::Seconds(30));
    test.AnswerLastSync(Draining());
  }
  CHECK_FALSE(test.loop.is_done());
  CHECK(test.num_syncs() < 26);
  test.AnswerLastSync();
  CHECK(test.LastSync().want() == 2);
  CHECK(test.loop.state() == WorkerState::kPulling);
  test.AnswerLastSync(Granting({"t2"}));
  CHECK(test.runner.runs.size() == 2);
}

TEST_CASE("A drained worker does not hammer a server that does not park its calls") {
  LoopHarness test;
  test.AnswerLastSync(Draining());
  for (int i = 0; i < 100; ++i) {
    if (test.SyncIsOpen(test.num_syncs() - 1)) test.AnswerLastSync(Draining());
    test.Advance(absl::Seconds(1));
  }
  CHECK(test.num_syncs() > 8);
  CHECK(test.num_syncs() < 25);
  // Such a server would keep a call that waits, when the worker is in service again, and say nothing.
  CHECK_FALSE(test.LastSync().has_wait());
}

TEST_CASE("A lease that reaches a worker when it was drained is given back, not run") {
  LoopHarness test;
  test.AnswerLastSync(Draining(Granting({"t1"})));
  CHECK(test.runner.runs.empty());
  REQUIRE(test.LastSync().results_size() == 1);
  CHECK_THAT(test.LastSync().results(0).release().reason(), Contains("drained"));
}

TEST_CASE("A drained worker that is told to stop is done") {
  LoopHarness test;
  test.AnswerLastSync(Draining());
  test.loop.RequestDrain();
  test.Step();
  CHECK(test.LastSync().draining());
  test.AnswerLastSync(Draining());
  CHECK(test.loop.is_done());
}

TEST_CASE("A refused worker that holds a lease asks again long before it runs out") {
  for (const absl::Status& refusal :
       {absl::UnauthenticatedError("revoked"), absl::PermissionDeniedError("somebody else's name")}) {
    LoopHarness test;
    test.AnswerLastSync(Granting({"t1"}));
    test.Advance(absl::Seconds(10));
    REQUIRE(test.LastSync().held_size() == 1);
    // Refused for three seconds; then the new token is there.
    const absl::Time end = test.clock.Now() + absl::Seconds(3);
    while (test.clock.Now() < end) {
      if (test.SyncIsOpen(test.num_syncs() - 1)) test.FailLastSync(refusal);
      test.Advance(absl::Milliseconds(100));
    }
    for (int i = 0; i < 100 && !test.SyncIsOpen(test.num_syncs() - 1); ++i) test.Advance(absl::Milliseconds(100));
    REQUIRE(test.SyncIsOpen(test.num_syncs() - 1));
    CHECK(test.LastSync().held_size() == 1);
    test.AnswerLastSync();
    CHECK_FALSE(test.runner.runs[0].control->is_cancelled());
    test.Advance(absl::Seconds(15));
    CHECK(test.loop.counters().stopped == 0);
  }
}

TEST_CASE("A refused worker asks again at once when the refusal says that it has a new token") {
  LoopHarness test;
  test.FailLastSync(WithRetryAfter(absl::UnauthenticatedError("revoked"), absl::Milliseconds(1)));
  test.Advance(absl::Milliseconds(200));
  CHECK(test.num_syncs() == 2);
}

TEST_CASE("A pause ends within half a second when there is reason to") {
  for (const absl::Status& failure : {absl::UnauthenticatedError("revoked"), absl::UnavailableError("down")}) {
    LoopHarness test;
    for (int i = 0; i < 12; ++i) {
      test.FailLastSync(failure);
      while (!test.SyncIsOpen(test.num_syncs() - 1)) test.Advance(absl::Milliseconds(100));
    }
    test.FailLastSync(failure);
    REQUIRE(test.loop.is_pausing(test.clock.Now()));
    const int syncs = test.num_syncs();
    test.loop.EndPause();
    test.Step();
    test.Advance(absl::Milliseconds(500));
    CHECK(test.num_syncs() == syncs + 1);
    // And changes nothing where there is none.
    test.loop.EndPause();
    test.Step();
    CHECK(test.num_syncs() == syncs + 1);
  }
}

TEST_CASE("A call of an upload or a fetch that is refused for want of a token is repeated, and costs no attempt") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1"}));
  test.FinishRun(0, std::string(1001, 'x'));
  test.Answer(test.Calls(kStartUpload.name).back(), absl::UnauthenticatedError("revoked"));
  test.Advance(absl::Milliseconds(100));
  REQUIRE(test.Calls(kStartUpload.name).size() == 2);
  CHECK(test.LastSync().results_size() == 0);
}

TEST_CASE("A worker that leaves when it is drained hands in what it has first") {
  LoopHarness test({.worker = "w", .exit_when_drained = true});
  v1::SyncResponse response;
  response.set_drain(true);
  test.AnswerLastSync(response);
  CHECK(test.LastSync().draining());
  test.AnswerLastSync();
  CHECK(test.loop.is_done());
}

TEST_CASE("A worker that is told to stop while the server is away does not wait for it when it holds nothing") {
  LoopHarness test;
  test.FailLastSync(absl::UnavailableError("down"));
  test.loop.RequestDrain();
  test.Step();
  CHECK(test.loop.is_done());
}

TEST_CASE("Only the rows a task asks for are fetched, and the run gets them") {
  LoopHarness test;
  v1::RowSelection selection;
  selection.set_tensor("w");
  selection.add_rows(3);
  test.runner.needs.selections = {selection};
  test.AnswerLastSync(Granting({"t1"}));
  CHECK(test.loop.state() == WorkerState::kFetching);
  const auto& request = test.LastCall<v1::SelectRowsRequest>();
  CHECK(request.digest() == std::string(64, 'a'));
  REQUIRE(request.selections_size() == 1);
  CHECK(request.selections(0).rows(0) == 3);

  v1::SelectRowsResponse response;
  auto* piece = response.add_pieces();
  piece->mutable_rows()->set_dtype(v1::FLOAT32);
  piece->mutable_rows()->add_shape(1);
  piece->mutable_rows()->add_shape(2);
  piece->mutable_rows()->set_data(std::string(8, '\1'));

  SECTION("also when the first answer gets lost") {
    size_t calls = test.transport.calls.size();
    test.Answer(calls - 1, absl::UnavailableError("reset"));
    test.Advance(absl::Milliseconds(100));
    REQUIRE(test.transport.calls.size() == calls + 1);
  }
  test.AnswerLastCall(response);
  CHECK(test.loop.state() == WorkerState::kRunning);
  REQUIRE(test.runner.runs.size() == 1);
  REQUIRE(test.runner.runs[0].inputs->selected.size() == 1);
  CHECK(test.runner.runs[0].inputs->selected[0].data == std::string(8, '\1'));
  test.FinishRun(0, "result");
  CHECK(test.LastSync().results(0).timings().bytes_down() == 8);
}

TEST_CASE("A run that asks for more has it fetched and goes on, as often as it asks, and all of it is counted") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1"}, absl::Minutes(5)));
  REQUIRE(test.runner.runs.size() == 1);
  const auto ask = [&](int run, int64_t row) {
    v1::RowSelection selection;
    selection.set_tensor("w");
    selection.add_rows(row);
    test.clock.Advance(absl::Seconds(2));
    test.EndRun(run, InputRequest{.whole_broadcast = false, .selections = {selection}});
    CHECK(test.loop.state() == WorkerState::kFetching);
    REQUIRE(test.LastCall<v1::SelectRowsRequest>().selections_size() == 1);
    CHECK(test.LastCall<v1::SelectRowsRequest>().selections(0).rows(0) == row);
    v1::SelectRowsResponse response;
    v1::SelectRowsResponse::Piece& piece = *response.add_pieces();
    piece.mutable_rows()->set_dtype(v1::FLOAT32);
    piece.mutable_rows()->add_shape(1);
    piece.mutable_rows()->add_shape(1);
    piece.mutable_rows()->set_data(std::string(4, static_cast<char>(row)));
    test.clock.Advance(absl::Seconds(1));
    test.AnswerLastCall(response);
    CHECK(test.loop.state() == WorkerState::kRunning);
    REQUIRE(test.runner.runs.size() == static_cast<size_t>(run) + 2);
    REQUIRE(test.runner.runs.back().inputs->selected.size() == 1);
    CHECK(test.runner.runs.back().inputs->selected[0].data == std::string(4, static_cast<char>(row)));
  };
  const int64_t before = test.loop.num_busy();
  ask(0, 3);
  ask(1, 5);
  CHECK(test.loop.num_busy() == before);
  // It is one task all the time, prepared once.
  CHECK(test.runner.prepared.size() == 1);
  test.clock.Advance(absl::Seconds(4));
  test.FinishRun(2, "result");
  REQUIRE(test.LastSync().results_size() == 1);
  const v1::TaskResult& result = test.LastSync().results(0);
  CHECK(result.contribution() == "result");
  CHECK(result.timings().download().seconds() == 2);
  CHECK(result.timings().compute().seconds() == 8);
  CHECK(result.timings().bytes_down() == 8);
  // When that was, by its own clock since it had the lease, and until the result went out.
  std::string intervals;
  for (const v1::AttemptTimings::Interval& interval : result.timings().intervals()) {
    intervals += fmt::format("{} {}..{} ", interval.phase(), interval.begin().seconds(), interval.end().seconds());
  }
  CHECK(intervals == "compute 0..2 download 2..3 compute 3..5 download 5..6 compute 6..10 ");
  CHECK(result.timings().handed_in().seconds() == 10);
}

TEST_CASE("A result says when the answer came from the server that brought its lease, the first if it came twice") {
  LoopHarness test;
  v1::SyncResponse granting = Granting({"t1"}, absl::Minutes(5));
  granting.mutable_grant_time()->set_seconds(1234);
  test.AnswerLastSync(granting);
  test.clock.Advance(absl::Seconds(2));
  test.FinishRun(0, "result");
  REQUIRE(test.LastSync().results_size() == 1);
  const v1::AttemptTimings timings = test.LastSync().results(0).timings();
  CHECK(timings.grant_time().seconds() == 1234);
  CHECK(timings.handed_in().seconds() == 2);
  // The answer is lost, the result goes out again, and so says another time.
  test.Answer(test.transport.calls.size() - 1, absl::UnavailableError("reset"));
  test.Advance(absl::Seconds(30));
  REQUIRE(test.LastSync().results_size() == 1);
  CHECK(test.LastSync().results(0).timings().handed_in().seconds() == 32);
  CHECK(test.LastSync().results(0).timings().intervals_size() == timings.intervals_size());
}

TEST_CASE("A run that asks for more without end has as many intervals as are shown, and the last is of all the rest") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1"}, absl::Minutes(50)));
  for (int run = 0; run < 100; ++run) {
    test.clock.Advance(absl::Seconds(1));
    test.EndRun(run, InputRequest());
  }
  test.clock.Advance(absl::Seconds(1));
  test.FinishRun(100, "result");
  REQUIRE(test.LastSync().results_size() == 1);
  const v1::AttemptTimings& timings = test.LastSync().results(0).timings();
  REQUIRE(timings.intervals_size() == 64);
  CHECK(timings.intervals(63).phase() == "various");
  CHECK(timings.intervals(63).end().seconds() == 101);
  CHECK(timings.compute().seconds() == 101);
}

TEST_CASE("A run that asks for what the round does not have fails for good, and one that asks for nothing goes on") {
  LoopHarness test;
  v1::SyncResponse granting = Granting({"t1"});
  granting.mutable_leases(0)->clear_broadcast_digest();
  test.AnswerLastSync(granting);
  test.EndRun(0, InputRequest());
  REQUIRE(test.runner.runs.size() == 2);
  test.EndRun(1, InputRequest{.whole_broadcast = true, .selections = {}});
  REQUIRE(test.LastSync().results_size() == 1);
  CHECK(test.LastSync().results(0).failure().permanent());
  CHECK_THAT(test.LastSync().results(0).failure().message(),
             Contains("needs a broadcast") && Contains("create the round with one"));
}

TEST_CASE("A lease that is lost while a run waits for what it asked for stops it, and nothing is run again") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1"}));
  test.EndRun(0, InputRequest{.whole_broadcast = true, .selections = {}});
  const size_t call = test.transport.calls.size() - 1;
  const auto control = test.runner.runs[0].control;
  test.Advance(absl::Seconds(11));
  test.AnswerLastSync(WithUpdate("token-t1", v1::LeaseUpdate::CANCELLED));
  CHECK(control->is_cancelled());
  if (test.transport.calls[call].done != nullptr) test.Answer(call, absl::CancelledError("late"));
  CHECK(test.runner.runs.size() == 1);
  CHECK(test.loop.num_held() == 0);
}

TEST_CASE("A task that is declined is given back, which is no failure, and the worker goes on") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1"}));
  test.EndRun(0, Declined{"there is no data for it here"});
  REQUIRE(test.LastSync().results_size() == 1);
  const v1::TaskResult& result = test.LastSync().results(0);
  CHECK(result.task() == "t1");
  CHECK(result.has_release());
  CHECK_FALSE(result.has_failure());
  CHECK(result.release().reason() == "there is no data for it here");
  // In the same call.
  CHECK(test.LastSync().want() == 1);
  test.AnswerLastSync(Granting({"t2"}));
  CHECK(test.loop.num_held() == 1);
  CHECK(test.runner.prepared == std::vector<std::string>{"t1", "t2"});
}

TEST_CASE("A call that asks for work waits no longer than until there is more to offer") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1"}));
  test.runner.pause = absl::Milliseconds(100);
  test.EndRun(0, Declined{"there is no data for it here"});
  CHECK(test.LastSync().want() == 1);
  CHECK(test.LastSync().wait().seconds() == 0);
  CHECK(test.LastSync().wait().nanos() >= 100'000'000);
  CHECK(test.LastSync().wait().nanos() < 200'000'000);
  test.runner.pause = absl::InfiniteDuration();
  test.AnswerLastSync();
  test.Advance(absl::Milliseconds(100));
  CHECK(test.LastSync().wait().seconds() == 30);
}

TEST_CASE("Fetching counts as progress, so that a slow link does not cost the lease") {
  LoopHarness test;
  v1::RowSelection selection;
  selection.set_tensor("w");
  for (int i = 0; i < 4; ++i) selection.add_rows(i);
  test.runner.needs.selections = {selection};
  test.AnswerLastSync(Granting({"t1"}));
  std::set<int64_t> progress;
  for (int i = 0; i < 3; ++i) {
    test.Advance(absl::Seconds(10));
    progress.insert(test.LastSync().held(0).progress());
    test.AnswerLastSync();
    v1::SelectRowsResponse response;
    auto* piece = response.add_pieces();
    piece->set_first_row(i);
    piece->mutable_rows()->set_dtype(v1::FLOAT32);
    piece->mutable_rows()->add_shape(1);
    piece->mutable_rows()->set_data(std::string(4, '\1'));
    response.set_next_cursor("row " + std::to_string(i + 1));
    test.Answer(test.Calls(kSelectRows.name).back(), std::make_unique<v1::SelectRowsResponse>(response));
  }
  CHECK(progress.size() == 3);
}

TEST_CASE(
    "A chunk that a slow link does not carry in time is sent again in smaller ones, and so is the next upload's") {
  LoopHarness test({.worker = "w", .concurrency = 2});
  test.AnswerLastSync(Granting({"t1", "t2"}));
  const auto begin = [&](int run) {
    test.FinishRun(run, std::string(3 << 20, 'x'));
    v1::StartUploadResponse started;
    started.set_verdict(v1::StartUploadResponse::SEND);
    started.set_upload_id("u" + std::to_string(run));
    started.set_chunk_bytes_max(2 << 20);
    test.AnswerLastCall(started);
  };
  const auto time_out = [&] {
    test.Answer(test.Calls(kWriteChunk.name).back(), absl::DeadlineExceededError("no answer"));
    test.Advance(absl::Seconds(1));
  };
  const auto sent = [&] {
    const size_t call = test.Calls(kWriteChunk.name).back();
    return static_cast<const v1::WriteChunkRequest&>(*test.transport.calls[call].request);
  };
  begin(0);
  CHECK(sent().data().size() == 2 << 20);
  time_out();
  CHECK(sent().data().size() == 256 << 10);
  v1::WriteChunkResponse written;
  written.set_committed_bytes(256 << 10);
  test.Answer(test.Calls(kWriteChunk.name).back(), std::make_unique<v1::WriteChunkResponse>(written));
  CHECK(sent().offset() == 256 << 10);
  CHECK(sent().data().size() == 256 << 10);
  // Never less than 64 KiB.
  for (int i = 0; i < 3; ++i) time_out();
  CHECK(sent().offset() == 256 << 10);
  CHECK(sent().data().size() == 64 << 10);
  begin(1);
  CHECK(sent().upload_id() == "u1");
  CHECK(sent().data().size() == 64 << 10);
}

TEST_CASE("A piece of a broadcast that a slow link does not carry in time is asked for in smaller ones") {
  LoopHarness test;
  test.runner.needs.whole_broadcast = true;
  test.AnswerLastSync(Granting({"t1"}));
  const auto asked = [&] { return test.LastCall<v1::ReadBlobRequest>(); };
  // As much as the server gives.
  CHECK(asked().length() == 0);
  test.Answer(test.transport.calls.size() - 1, absl::UnavailableError("no server"));
  test.Advance(absl::Seconds(1));
  CHECK(asked().length() == 0);
  test.Answer(test.transport.calls.size() - 1, absl::DeadlineExceededError("no answer"));
  test.Advance(absl::Seconds(1));
  CHECK(asked().length() == 256 << 10);
  CHECK(asked().offset() == 0);
  v1::ReadBlobResponse piece;
  piece.set_data(std::string(256 << 10, 'x'));
  piece.set_size_bytes(1 << 20);
  test.AnswerLastCall(piece);
  CHECK(asked().offset() == 256 << 10);
  CHECK(asked().length() == 256 << 10);
}

TEST_CASE("A large contribution is asked about before it is sent, and then handed in by name") {
  LoopHarness test;
  test.AnswerLastSync(Granting({"t1"}));
  int syncs = test.num_syncs();
  test.FinishRun(0, std::string(1001, 'x'));
  CHECK(test.num_syncs() == syncs);
  CHECK(test.loop.state() == WorkerState::kSubmitting);
  const auto& start = test.LastCall<v1::StartUploadRequest>();
  CHECK(start.contribution().task() == "t1");
  CHECK(start.contribution().lease_token() == "token-t1");
  CHECK(start.size_bytes() == 1001);
  v1::StartUploadResponse started;

  SECTION("sent in chunks of the size the server takes") {
    started.set_verdict(v1::StartUploadResponse::SEND);
    started.set_upload_id("u1");
    started.set_chunk_bytes_max(600);
    test.AnswerLastCall(started);
    CHECK(test.LastCall<v1::WriteChunkRequest>().data().size() == 600);
    v1::WriteChunkResponse written;
    written.set_committed_bytes(600);
    test.AnswerLastCall(written);
    CHECK(test.LastCall<v1::WriteChunkRequest>().data().size() == 401);
    written.set_committed_bytes(1001);
    test.AnswerLastCall(written);
    CHECK(test.LastCall<v1::FinishUploadRequest>().upload_id() == "u1");
    test.AnswerLastCall(v1::FinishUploadResponse());
    REQUIRE(test.LastSync().results_size() == 1);
    CHECK(test.LastSync().results(0).upload_id() == "u1");
    CHECK(test.LastSync().want() == 1);
  }
  SECTION("not sent when nobody needs it") {
    started.set_verdict(v1::StartUploadResponse::NOT_NEEDED);
    test.AnswerLastCall(started);
    CHECK(test.Calls(kWriteChunk.name).empty());
    CHECK(test.loop.num_held() == 0);
    CHECK(test.LastSync().results_size() == 0);
    CHECK(test.LastSync().want() == 1);
  }
  SECTION("not sent when the lease is lost") {
    started.set_verdict(v1::StartUploadResponse::LEASE_LOST);
    test.AnswerLastCall(started);
    CHECK(test.Calls(kWriteChunk.name).empty());
    CHECK(test.loop.num_held() == 0);
  }
}

TEST_CASE("An upload that is refused for the moment is tried again when the server said, and costs no attempt") {
  for (const bool has_hint : {true, false}) {
    INFO((has_hint ? "for the moment" : "for good"));
    LoopHarness test;
    test.AnswerLastSync(Granting({"t1"}));
    test.FinishRun(0, std::string(1001, 'x'));
    absl::Status refusal = absl::ResourceExhaustedError("uploads are under way");
    if (has_hint) refusal = WithRetryAfter(std::move(refusal), absl::Seconds(2));
    const size_t first = test.Calls(kStartUpload.name).back();
    test.Answer(first, refusal);
    if (!has_hint) {
      CHECK(test.LastSync().results(0).failure().message().find("uploads are under way") != std::string::npos);
      continue;
    }
    test.Advance(absl::Seconds(1.9));
    CHECK(test.Calls(kStartUpload.name).size() == 1);
    test.Advance(absl::Seconds(2.2));
    REQUIRE(test.Calls(kStartUpload.name).size() == 2);
    v1::StartUploadResponse started;
    started.set_verdict(v1::StartUploadResponse::SEND);
    started.set_upload_id("u1");
    started.set_chunk_bytes_max(2000);
    test.Answer(test.Calls(kStartUpload.name).back(), std::make_unique<v1::StartUploadResponse>(started));
    CHECK(test.LastCall<v1::WriteChunkRequest>().upload_id() == "u1");
    CHECK(test.LastSync().results_size() == 0);
  }
}

TEST_CASE("A worker that vanishes leaves calls and runs behind that hurt nobody") {
  ScriptedTransport transport;
  ScriptedRunner runner;
  BlobCache cache(1 << 20);
  SeededRandom random(1);
  ManualClock clock;
  int wakes = 0;
  {
    WorkerLoop loop({.worker = "w", .concurrency = 2}, {transport, runner, cache, random, [&wakes] { ++wakes; }});
    loop.Step(clock.Now());
    static_cast<v1::SyncResponse*>(transport.calls[0].response)->CopyFrom(Granting({"t1"}));
    transport.calls[0].done(absl::OkStatus());
    while (loop.Step(clock.Now()) <= clock.Now()) {
    }
  }
  int wakes_alive = wakes;
  REQUIRE(runner.runs.size() == 1);
  CHECK(runner.runs[0].control->is_cancelled());
  runner.runs[0].done("too late");
  transport.calls.back().done(absl::OkStatus());
  CHECK(wakes == wakes_alive);
}

TEST_CASE("A server that hands out leases without end gets no more of a worker than one call can name") {
  LoopHarness test(WorkerOptions{.worker = "w", .concurrency = 2});
  std::vector<std::string> tasks;
  for (int i = 0; i < 5000; ++i) tasks.push_back("t" + std::to_string(i));
  v1::SyncResponse response = Granting(tasks);
  for (v1::Lease& lease : *response.mutable_leases()) lease.set_payload(std::string(1000, 'p'));
  test.AnswerLastSync(response);
  CHECK(test.runner.prepared.size() == 2);
  CHECK(test.loop.counters().leases == 256);
  // What it cannot do is given back, and nothing is kept of the rest.
  CHECK(test.LastSync().results_size() == 254);
  for (const v1::TaskResult& result : test.LastSync().results()) CHECK(result.has_release());
}

TEST_CASE("A lease whose names are longer than any server's is left alone") {
  for (const auto lengthen : {+[](v1::Lease& lease) { lease.set_lease_token(std::string(300, 't')); },
                              +[](v1::Lease& lease) { lease.set_task(std::string(300, 't')); },
                              +[](v1::Lease& lease) { lease.set_round(std::string(300, 'r')); }}) {
    LoopHarness test;
    v1::SyncResponse response = Granting({"long", "t"});
    lengthen(*response.mutable_leases(0));
    test.AnswerLastSync(response);
    CHECK(test.runner.prepared == std::vector<std::string>{"t"});
  }
}

TEST_CASE(
    "A server that says to come back in a century is asked again within hours, and one that says yesterday not at "
    "once") {
  LoopHarness test;
  v1::SyncResponse century;
  Set(century.mutable_next_min(), absl::Hours(24 * 365 * 100));
  Set(century.mutable_next_max(), absl::Hours(24 * 365 * 100));
  test.AnswerLastSync(century);
  const int num_syncs = test.num_syncs();
  test.Advance(absl::Hours(4));
  CHECK(test.num_syncs() > num_syncs);
  v1::SyncResponse yesterday;
  Set(yesterday.mutable_next_min(), -absl::Hours(24));
  Set(yesterday.mutable_next_max(), -absl::Hours(24));
  test.AnswerLastSync(yesterday);
  test.Advance(absl::Seconds(1));
  CHECK(test.num_syncs() == num_syncs + 2);
}

v1::SyncResponse GrantingAhead(const std::string& task, absl::Duration lease = absl::Seconds(30)) {
  v1::SyncResponse response = Granting({task}, lease);
  response.set_has_announced(true);
  response.mutable_leases(0)->set_announced(true);
  response.mutable_leases(0)->clear_broadcast_digest();
  return response;
}

TEST_CASE("A task that is prepared ahead is renewed while it waits, and runs when OPENED is heard, not before") {
  LoopHarness test({.worker = "w", .prepare_ahead = 1});
  CHECK(test.LastSync().want_announced() == 1);
  test.AnswerLastSync(GrantingAhead("t"));
  CHECK(test.runner.prepared == std::vector<std::string>{"t"});
  int64_t progress = 0;
  for (int i = 0; i < 5; ++i) {
    test.Advance(absl::Seconds(11));
    REQUIRE(test.LastSync().held_size() == 1);
    CHECK(test.LastSync().held(0).announced());
    CHECK(test.LastSync().held(0).progress() > progress);
    progress = test.LastSync().held(0).progress();
    CHECK(test.LastSync().want_announced() == 0);
    test.AnswerLastSync(WithUpdate("token-t", v1::LeaseUpdate::HELD, absl::Seconds(30)));
    CHECK(test.runner.runs.empty());
  }
  test.Advance(absl::Seconds(11));
  test.AnswerLastSync(WithUpdate("token-t", v1::LeaseUpdate::OPENED, absl::Seconds(30)));
  CHECK(test.runner.runs.size() == 1);
  test.Advance(absl::Seconds(11));
  CHECK_FALSE(test.LastSync().held(0).announced());
}

TEST_CASE("A task of an open round that waits for runs that do not stop is not kept from others") {
  LoopHarness test({.worker = "w", .prepare_ahead = 1});
  v1::SyncResponse both = GrantingAhead("ahead");
  *both.add_leases() = Granting({"t"}).leases(0);
  test.AnswerLastSync(both);
  REQUIRE(test.runner.runs.size() == 1);
  // The one that runs is not needed any more, and does not notice; the other's round opens.
  test.Advance(absl::Seconds(11));
  v1::SyncResponse told = WithUpdate("token-t", v1::LeaseUpdate::CANCELLED);
  *told.add_held() = WithUpdate("token-ahead", v1::LeaseUpdate::OPENED, absl::Seconds(30)).held(0);
  test.AnswerLastSync(told);
  CHECK(test.runner.runs.size() == 1);
  test.Advance(absl::Seconds(11));
  REQUIRE(test.LastSync().held_size() == 1);
  const int64_t progress = test.LastSync().held(0).progress();
  test.AnswerLastSync(WithUpdate("token-ahead", v1::LeaseUpdate::HELD, absl::Seconds(19)));
  test.Advance(absl::Seconds(7));
  REQUIRE(test.LastSync().held_size() == 1);
  CHECK(test.LastSync().held(0).progress() == progress);
  // It notices after all: there is a place again.
  test.FinishRun(0, absl::CancelledError("at last"));
  CHECK(test.runner.runs.size() == 2);
}

}  // namespace
}  // namespace sheaf
