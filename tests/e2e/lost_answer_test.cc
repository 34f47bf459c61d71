// The open wound of unary pull: the server granted or accepted, and the worker never heard of it.
#include "cli/files.h"
#include "sdk/cpp/methods.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

std::vector<std::string> TokensOf(const v1::SyncResponse& response) {
  std::vector<std::string> tokens;
  for (const v1::Lease& lease : response.leases()) tokens.push_back(lease.lease_token());
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

TEST_CASE("A lost answer costs one call: the retry under the same poll_id gets the same leases") {
  Federation federation;
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 6, .lease = absl::Minutes(10)}));
  const absl::Time start = federation.clock().Now();

  const v1::SyncRequest poll = APoll("unlucky", "poll-1", 3);
  const v1::SyncResponse lost = SyncOnce(federation.transport(), poll);
  const v1::SyncResponse retry = SyncOnce(federation.transport(), poll);
  REQUIRE(retry.leases_size() == 3);
  CHECK(TokensOf(retry) == TokensOf(lost));
  CHECK(RoundOf(federation.transport(), round).tasks().leased() == 3);

  // That one is lost, too, and the worker asks anew: what it does not list it does not know of.
  v1::SyncRequest anew = APoll("unlucky", "poll-2", 3);
  AddHeld(retry.leases(0), 1, anew);
  const v1::SyncResponse unheard = SyncOnce(federation.transport(), anew);
  CHECK(unheard.leases_size() == 3);
  const std::vector<std::string> tokens = TokensOf(unheard);
  for (int i : {1, 2}) CHECK(std::count(tokens.begin(), tokens.end(), retry.leases(i).lease_token()) == 1);
  for (const v1::Lease& lease : unheard.leases()) CHECK(lease.attempt() == 1);

  // The answer that accepts is lost as well: handed in again, it counts once, and the next lease comes along.
  v1::SyncRequest results = APoll("unlucky", "poll-3", 3);
  AddResult(retry.leases(0), results);
  for (const v1::Lease& lease : unheard.leases()) AddResult(lease, results);
  const v1::SyncResponse accepted = SyncOnce(federation.transport(), results);
  CHECK(VerdictsOf(accepted) == std::vector<std::string>(4, "ACCEPTED"));
  const v1::SyncResponse repeated = SyncOnce(federation.transport(), results);
  CHECK(VerdictsOf(repeated) == std::vector<std::string>(4, "DUPLICATE"));
  CHECK(TokensOf(repeated) == TokensOf(accepted));

  v1::SyncRequest last = APoll("unlucky", "poll-4", 0);
  for (const v1::Lease& lease : repeated.leases()) AddResult(lease, last);
  SyncOnce(federation.transport(), last);
  const v1::Round ended = Await(federation, round, absl::Seconds(10));
  CHECK(ended.num_lost_attempts() == 0);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(6, 1));
  for (const v1::Task& task : TasksOf(federation.transport(), round)) CHECK(task.num_attempts() == 1);
  Measured("three answers lost, {} in all, no lease of 10 min left to expire",
           absl::FormatDuration(federation.clock().Now() - start));
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
  constexpr int kCuts = 12;
  Federation federation;
  const std::string port_file = federation.directory() + "/proxy-port";
  const std::string server_port = federation.address().substr(federation.address().find(':') + 1);
  auto proxy =
      ChildProcess::Start({.argv = {"/usr/bin/env", "python3", "-B", SHEAF_SOURCE "/tests/e2e/cutting_proxy.py",
                                    server_port, port_file, std::to_string(kCuts)},
                           .log_path = federation.directory() + "/proxy.log"});
  REQUIRE(proxy.ok());
  WaitUntil("the proxy listens", absl::Seconds(10), [&] { return FileExists(port_file); });
  // Ten minutes: a lease that nobody knows of would hold the round up for longer than the test waits.
  const std::string round = StartRound(
      federation, OneHotRound({.num_tasks = 120, .work = absl::Milliseconds(20), .lease = absl::Minutes(10)}));
  ChildProcess& worker = federation.StartWorker("far", {"--concurrency", "2"}, "127.0.0.1:" + *ReadFile(port_file));
  const v1::Round ended = Await(federation, round);
  CHECK(ended.num_lost_attempts() == 0);
  CHECK(ended.num_failed_attempts() == 0);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(120, 1));
  const std::string log = worker.LogTail(1000);
  int breaks = 0;
  for (size_t at = log.find("trying again"); at != std::string::npos; at = log.find("trying again", at + 1)) ++breaks;
  CHECK(breaks >= 1);
  Measured("120 tasks, {} unanswered calls of the worker, no attempt lost, each counted once", breaks);
}

}  // namespace
}  // namespace sheaf
