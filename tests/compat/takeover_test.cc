// A data directory changes hands, from 0.1 to today's server, in the middle of its rounds; and not back.
#include "tests/compat/released.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

// What a worker of 0.1 says, which the test plays by hand.
v1::SyncRequest APollOf01(const std::string& poll_id, int want) {
  v1::SyncRequest request = APoll("hand", poll_id, want);
  request.set_protocol_version(1);
  return request;
}

constexpr int kTasks = 16;
constexpr int kGated = 6;

TEST_CASE("A store that 0.1 left in the middle of its rounds is taken over by a server of today: each counted once") {
  const Programs released = Released();
  Federation federation({.programs = released});
  // Of one round the test itself holds all tasks: it is the only one there, so far.
  const std::string held = StartRound(federation, OneHotRound({.num_tasks = 4, .lease = absl::Minutes(5)}));
  const v1::SyncResponse granted = SyncOnce(federation.transport(), APollOf01("poll-1", 4));
  REQUIRE(granted.leases_size() == 4);
  v1::SyncRequest first_two = APollOf01("poll-2", 0);
  for (int i = 0; i < 2; ++i) AddResult(granted.leases(i), first_two);
  REQUIRE(VerdictsOf(SyncOnce(federation.transport(), first_two)) == std::vector<std::string>(2, "ACCEPTED"));

  // The others have contributions of some bytes and of 800 kB; the last tasks wait until the store has changed hands.
  const OneHotOptions small = {.num_tasks = kTasks, .work = absl::Milliseconds(20), .num_gated = kGated};
  OneHotOptions large = small;
  large.size = 100'000;
  OneHotOptions ephemeral = small;
  ephemeral.durability = v1::EPHEMERAL;
  std::vector<std::string> rounds;
  for (const OneHotOptions& options : {small, large, ephemeral}) {
    rounds.push_back(StartRound(federation, OneHotRound(options)));
  }
  federation.StartWorker("released-1", {"--concurrency", "2"});
  federation.StartWorker("released-2", {"--concurrency", "2"});
  for (const std::string& round : rounds) {
    WaitUntil("all but the last tasks are done", absl::Seconds(20),
              [&] { return RoundOf(federation.transport(), round).num_contributions() == kTasks - kGated; });
  }
  federation.KillServer();
  federation.programs() = Programs();
  const absl::Duration restart = federation.StartServer();

  // DURABLE rounds have what they had; of an EPHEMERAL one nothing was written down.
  CHECK(RoundOf(federation.transport(), held).num_contributions() == 2);
  CHECK(RoundOf(federation.transport(), rounds[0]).num_contributions() == kTasks - kGated);
  CHECK(RoundOf(federation.transport(), rounds[1]).num_contributions() == kTasks - kGated);
  // A lease that 0.1 granted is one of today's server: held, handed in, known when it is handed in again.
  v1::SyncRequest holds = APollOf01("poll-3", 0);
  for (int i = 2; i < 4; ++i) AddHeld(granted.leases(i), 1, holds);
  const v1::SyncResponse renewed = SyncOnce(federation.transport(), holds);
  REQUIRE(renewed.held_size() == 2);
  for (const v1::LeaseUpdate& update : renewed.held()) CHECK(update.verdict() == v1::LeaseUpdate::HELD);
  v1::SyncRequest all = APollOf01("poll-4", 0);
  for (const v1::Lease& lease : granted.leases()) AddResult(lease, all);
  CHECK(VerdictsOf(SyncOnce(federation.transport(), all)) ==
        std::vector<std::string>{"DUPLICATE", "DUPLICATE", "ACCEPTED", "ACCEPTED"});
  Await(federation, held);
  CHECK(CountsOf(federation.transport(), held) == std::vector<int64_t>(4, 1));

  // The workers of 0.1 go on, and one of today opens the gate.
  federation.StartWorker("today", {"--label", "gate=open"});
  for (const std::string& round : rounds) {
    const v1::Round ended = Await(federation, round);
    CHECK(ended.num_lost_attempts() == 0);
    CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(kTasks, 1));
  }
  Measured(
      "2 of 4, {} of {} and, of an EPHEMERAL round, none were there after the kill; today's server served after {}",
      kTasks - kGated, kTasks, absl::FormatDuration(restart));
}

TEST_CASE("A store that a server of today has opened is refused by 0.1, in a sentence, and left as it was") {
  Federation federation({.programs = Released()});
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 4}));
  federation.StopServer();
  federation.programs() = Programs();
  federation.StartServer();
  federation.StopServer();

  const std::vector<std::vector<std::string>> attempts = {
      {Released().sheafd, "--data-dir", federation.data_directory(), "--listen", "127.0.0.1:0"},
      {Released().sheaf, "store", "inspect", federation.data_directory()},
      {Released().sheaf, "store", "verify", federation.data_directory()},
      {Released().sheaf, "store", "migrate", federation.data_directory()}};
  for (const std::vector<std::string>& words : attempts) {
    const CommandRun run = RunCommand(words);
    INFO(fmt::format("{}\n{}{}", fmt::join(words, " "), run.out, run.err));
    CHECK(run.exit_code != 0);
    CHECK_THAT(run.out + run.err, Contains("newer"));
  }

  federation.StartServer();
  federation.StartWorker("w1");
  Await(federation, round);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(4, 1));
}

}  // namespace
}  // namespace sheaf
