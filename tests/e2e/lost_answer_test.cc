// The open wound of unary pull: the server granted or accepted, and the worker never heard of it.
#include <algorithm>
#include <optional>

#include "base/mutex.h"
#include "probe/faulty_network.h"
#include "proto/methods.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

std::vector<std::string> TokensOf(const v1::SyncResponse& response) {
  std::vector<std::string> tokens;
  for (const v1::Lease& lease : response.leases()) tokens.push_back(lease.lease_token());
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

// What a worker knew and asked when the answer got lost, and what it says next.
struct LostAnswer {
  const char* what;
  // Leases it has heard of before.
  int num_heard = 0;
  // It hands in their results; else it holds them.
  bool has_results = false;
  // It wants so many more.
  int want = 0;
  // There is nothing to be had at first: the answer that is lost is a parked call's.
  bool is_parked = false;
  // The next call keeps the poll_id.
  bool is_retry = false;
  // Of the leases it had heard of, those that it knows no more in the next call.
  int num_forgotten = 0;
};

constexpr LostAnswer kLostAnswers[] = {
    {.what = "leases, asked for again under the same poll_id", .want = 3, .is_retry = true},
    {.what = "leases, asked for anew by a worker that holds none", .want = 3},
    {.what = "leases, asked for anew by a worker that holds others", .num_heard = 2, .want = 3},
    {.what = "verdicts", .num_heard = 3, .has_results = true},
    {.what = "verdicts and leases, under the same poll_id",
     .num_heard = 3,
     .has_results = true,
     .want = 3,
     .is_retry = true},
    {.what = "verdicts and leases, asked for anew", .num_heard = 3, .has_results = true, .want = 3},
    {.what = "a parked call's leases, under the same poll_id", .want = 3, .is_parked = true, .is_retry = true},
    {.what = "a parked call's leases, asked for anew", .want = 3, .is_parked = true},
    {.what = "a parked call's leases, of a worker that holds others", .num_heard = 2, .want = 3, .is_parked = true},
    {.what = "16 leases, under the same poll_id", .want = 16, .is_retry = true},
    {.what = "9 leases of 16, the other 7 held", .num_heard = 7, .want = 9},
    {.what = "nothing, but of 16 leases 9 are forgotten", .num_heard = 16, .num_forgotten = 9},
    {.what = "7 leases, and of 9 others 4 are forgotten", .num_heard = 9, .want = 7, .num_forgotten = 4},
};

// The call whose answer gets lost, or the one after it.
v1::SyncRequest ACall(const LostAnswer& lost, const std::string& poll_id, const v1::SyncResponse& heard,
                      int num_known) {
  v1::SyncRequest request = APoll("unlucky", poll_id, lost.want, lost.is_parked ? absl::Seconds(50) : absl::Duration());
  for (int i = 0; i < num_known; ++i) {
    lost.has_results ? AddResult(heard.leases(i), request) : AddHeld(heard.leases(i), 1, request);
  }
  return request;
}

TEST_CASE("Whatever answer gets lost, the next call has what it said, and no lease has to run out for it") {
  Federation federation;
  Transport& transport = federation.transport();
  int num_rows = 0;
  absl::Duration slowest;
  for (const LostAnswer& lost : kLostAnswers) {
    for (const bool is_killed : {false, true}) {
      INFO(lost.what << (is_killed ? ", and the server is killed" : ""));
      const std::string poll = fmt::format("row-{}", ++num_rows);
      const OneHotOptions of_first = {.num_tasks = lost.num_heard + (lost.is_parked ? 0 : lost.want),
                                      .lease = absl::Minutes(10)};
      std::vector<std::string> rounds;
      if (of_first.num_tasks > 0) rounds.push_back(StartRound(federation, OneHotRound(of_first)));
      v1::SyncResponse heard;
      if (lost.num_heard > 0) heard = SyncOnce(transport, APoll("unlucky", poll + "-heard", lost.num_heard));
      REQUIRE(heard.leases_size() == lost.num_heard);

      const v1::SyncRequest call = ACall(lost, poll, heard, lost.num_heard);
      Mutex mutex;
      CondVar answered;
      std::optional<absl::StatusOr<v1::SyncResponse>> unheard;
      Call(transport, kSync, call, {.timeout = absl::Seconds(60)}, [&](absl::StatusOr<v1::SyncResponse> answer) {
        MutexLock lock(mutex);
        unheard = std::move(answer);
        answered.NotifyOne();
      });
      if (lost.is_parked) {
        WaitUntil("the call is parked", absl::Seconds(10), [&] {
          const auto workers = BlockingCall(transport, kListWorkers, v1::ListWorkersRequest());
          return workers.ok() && std::any_of(workers->workers().begin(), workers->workers().end(),
                                             [](const auto& w) { return w.name() == "unlucky" && w.is_parked(); });
        });
        rounds.push_back(StartRound(federation, OneHotRound({.num_tasks = lost.want, .lease = absl::Minutes(10)})));
      }
      {
        MutexLock lock(mutex);
        while (!unheard) answered.Wait(mutex);
      }
      REQUIRE(unheard->ok());
      REQUIRE((*unheard)->leases_size() == lost.want);
      // From here on nobody has heard of that answer.
      if (is_killed) {
        federation.KillServer();
        federation.StartServer();
      }
      const absl::Time start = federation.clock().Now();
      const int num_known = lost.num_heard - lost.num_forgotten;
      v1::SyncRequest again = ACall(lost, lost.is_retry ? poll : poll + "-anew", heard, num_known);
      again.clear_wait();
      const v1::SyncResponse next = SyncOnce(transport, again);
      slowest = std::max(slowest, federation.clock().Now() - start);

      v1::SyncResponse expected = **unheard;
      for (int i = num_known; i < lost.num_heard; ++i) *expected.add_leases() = heard.leases(i);
      CHECK(TokensOf(next) == TokensOf(expected));
      CHECK(VerdictsOf(next) == std::vector<std::string>(lost.has_results ? num_known : 0, "DUPLICATE"));
      CHECK(next.held_size() == (lost.has_results ? 0 : num_known));
      for (const v1::LeaseUpdate& update : next.held()) CHECK(update.verdict() == v1::LeaseUpdate::HELD);

      v1::SyncRequest results = APoll("unlucky", poll + "-results", 0);
      for (const v1::Lease& lease : next.leases()) AddResult(lease, results);
      for (int i = 0; i < num_known && !lost.has_results; ++i) AddResult(heard.leases(i), results);
      CHECK(VerdictsOf(SyncOnce(transport, results)) == std::vector<std::string>(results.results_size(), "ACCEPTED"));
      for (const std::string& round : rounds) {
        const v1::Round ended = Await(federation, round, absl::Seconds(10));
        CHECK(ended.num_lost_attempts() == 0);
        const std::vector<v1::Task> tasks = TasksOf(transport, round);
        CHECK(CountsOf(transport, round) == std::vector<int64_t>(tasks.size(), 1));
        for (const v1::Task& task : tasks) CHECK(task.num_attempts() == 1);
        CHECK(TaskOf(transport, tasks.front().id()).attempts_size() == 1);
      }
    }
  }
  Measured(
      "{} answers lost, half of them with the server: each known again from the next call, {} at most; no lease of "
      "10 min left to expire",
      num_rows, absl::FormatDuration(slowest));
}

TEST_CASE("A poll that broke off while it was parked leaves no lease behind that nobody hears of") {
  Federation federation;
  const v1::SyncRequest poll = APoll("cut-off", "poll-1", 1, absl::Seconds(50));
  // The connection is gone, as far as the caller knows; the call is cancelled on its way.
  const auto broken = BlockingCall(federation.impatient_transport(), kSync, poll, {.timeout = absl::Milliseconds(200)});
  CHECK(broken.status().code() == absl::StatusCode::kDeadlineExceeded);
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 1, .lease = absl::Minutes(10)}));
  const v1::SyncResponse retry = SyncOnce(federation.transport(), poll);
  REQUIRE(retry.leases_size() == 1);
  CHECK(retry.leases(0).attempt() == 1);
  v1::SyncRequest result = APoll("cut-off", "poll-2", 0);
  AddResult(retry.leases(0), result);
  SyncOnce(federation.transport(), result);
  CHECK(Await(federation, round, absl::Seconds(10)).num_lost_attempts() == 0);
}

TEST_CASE("A worker whose connection breaks again and again loses no lease, and nothing counts twice") {
  Federation federation;
  auto network = FaultyNetwork::Start(federation.address(), federation.clock(), /*seed=*/7);
  REQUIRE(network.ok());
  // Ten minutes: a lease that nobody knows of would hold the round up for longer than the test waits.
  const std::string round = StartRound(
      federation, OneHotRound({.num_tasks = 120, .work = absl::Milliseconds(20), .lease = absl::Minutes(10)}));
  (*network)->SetFaults({.calm_max = absl::Milliseconds(200), .kinds = {NetworkFault::kResetAfterRequest}});
  ChildProcess& worker = federation.StartWorker("far", {"--concurrency", "2"}, (*network)->address());
  const v1::Round ended = Await(federation, round);
  CHECK(ended.num_lost_attempts() == 0);
  CHECK(ended.num_failed_attempts() == 0);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(120, 1));
  const int64_t breaks = (*network)->counts()[static_cast<size_t>(NetworkFault::kResetAfterRequest)];
  CHECK(breaks >= 3);
  CHECK_THAT(worker.LogTail(1000), Catch::Contains("trying again"));
  Measured("120 tasks, {} connections reset with an answer on them, no attempt lost, each counted once", breaks);
}

}  // namespace
}  // namespace sheaf
