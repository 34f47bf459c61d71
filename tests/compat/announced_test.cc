// Rounds that are announced before their broadcast is known, which 0.1 does not know.
#include "proto/methods.h"
#include "tests/compat/released.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(20);
constexpr int kTasks = 12;

v1::RoundSpec AnnouncedRound() {
  v1::RoundSpec spec = OneHotRound({.num_tasks = kTasks, .work = absl::Milliseconds(200), .lease = absl::Seconds(2)});
  spec.set_announced(true);
  return spec;
}

absl::Status Open(Federation& federation, const std::string& round) {
  v1::OpenRoundRequest request;
  request.set_request_id("open " + round);
  request.set_round(round);
  return BlockingCall(federation.transport(), kOpenRound, request).status();
}

// -1 of one that has not called.
int NumLeased(Federation& federation, const std::string& worker) {
  const absl::StatusOr<v1::ListWorkersResponse> listed = BlockingCall(federation.transport(), kListWorkers, {});
  REQUIRE(listed.ok());
  for (const v1::Worker& each : listed->workers()) {
    if (each.name() == worker) return static_cast<int>(each.num_leased());
  }
  return -1;
}

TEST_CASE("A worker of 0.1 is given nothing of an announced round, and works in it once it is open, also after kills") {
  Federation federation({.programs = {.worker = Released().worker}});
  federation.StartWorker("released", {"--concurrency", "2"});
  federation.programs().worker = Programs().worker;
  federation.StartWorker("today", {"--concurrency", "2"});
  const std::string round = StartRound(federation, AnnouncedRound());
  const auto only_today_prepares = [&] {
    return NumLeased(federation, "today") > 0 && NumLeased(federation, "released") == 0;
  };
  WaitUntil("both have called, and today's worker prepares", kSoon, only_today_prepares);
  CHECK(RoundOf(federation.transport(), round).state() == v1::ANNOUNCED);
  federation.KillServer();
  federation.StartServer();
  WaitUntil("both have called again", kSoon, only_today_prepares);

  REQUIRE(Open(federation, round).ok());
  WaitUntil("the worker of 0.1 computes", kSoon, [&] { return NumLeased(federation, "released") > 0; });
  federation.KillServer();
  federation.KillWorker("today");
  federation.StartServer();
  Await(federation, round);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(kTasks, 1));
}

TEST_CASE("A server of 0.1 opens a round at once that was to be announced, which its state says") {
  Federation federation({.programs = {.sheafd = Released().sheafd}});
  const std::string round = StartRound(federation, AnnouncedRound());
  CHECK(RoundOf(federation.transport(), round).state() == v1::COLLECTING);
  CHECK(absl::IsUnimplemented(Open(federation, round)));
  federation.StartWorker("today");
  Await(federation, round);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(kTasks, 1));
}

}  // namespace
}  // namespace sheaf
