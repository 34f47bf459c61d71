// The server as a process that is killed, or told to stop, in the middle of a round.
#include <optional>

#include "aggregation/safetensors.h"
#include "sdk/cpp/methods.h"
#include "sdk/cpp/program.h"
#include "sdk/cpp/workloads/tags_program.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

TEST_CASE("A server killed right after it accepted contributions counts them, and each once, when it is back") {
  Federation federation;
  const std::string round = StartRound(federation, OneHotRound({.num_tasks = 40, .lease = absl::Seconds(60)}));

  // By hand, so that every ACCEPTED that was seen is known.
  const v1::SyncResponse granted = SyncOnce(federation.transport(), APoll("hand", "poll-1", 10));
  REQUIRE(granted.leases_size() == 10);
  v1::SyncRequest results = APoll("hand", "poll-2", 10);
  for (const v1::Lease& lease : granted.leases()) AddResult(lease, results);
  const v1::SyncResponse accepted = SyncOnce(federation.transport(), results);
  federation.KillServer();
  CHECK(VerdictsOf(accepted) == std::vector<std::string>(10, "ACCEPTED"));
  REQUIRE(accepted.leases_size() == 10);
  const absl::Duration restart = federation.StartServer();

  v1::Round found = RoundOf(federation.transport(), round);
  CHECK(found.state() == v1::COLLECTING);
  CHECK(found.num_contributions() == 10);
  CHECK(found.tasks().succeeded() == 10);
  // What was granted before the kill is held after it; the results, handed in again, are known.
  v1::SyncRequest again = APoll("hand", "poll-3", 0);
  for (const v1::Lease& lease : granted.leases()) AddResult(lease, again);
  for (const v1::Lease& lease : accepted.leases()) AddHeld(lease, 1, again);
  const v1::SyncResponse known = SyncOnce(federation.transport(), again);
  CHECK(VerdictsOf(known) == std::vector<std::string>(10, "DUPLICATE"));
  REQUIRE(known.held_size() == 10);
  for (const v1::LeaseUpdate& held : known.held()) CHECK(held.verdict() == v1::LeaseUpdate::HELD);
  v1::SyncRequest more = APoll("hand", "poll-4", 0);
  for (const v1::Lease& lease : accepted.leases()) AddResult(lease, more);
  CHECK(VerdictsOf(SyncOnce(federation.transport(), more)) == std::vector<std::string>(10, "ACCEPTED"));
  federation.KillServer();
  federation.StartServer();

  federation.StartWorker("w1", {"--concurrency", "4"});
  const v1::Round ended = Await(federation, round);
  CHECK(ended.aggregate().num_contributions() == 40);
  CHECK(ended.num_lost_attempts() == 0);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(40, 1));
  Measured("20 of 40 accepted before two kills, 40 counted once; it served again after {}",
           absl::FormatDuration(restart));
}

// --- Training, disturbed and not ---

const TagsDataset& SampleIndex() {
  static const auto dataset = TagsDataset::Load(SHEAF_TEST_DATA "/debian-index-sample.snapshot");
  REQUIRE(dataset.ok());
  return *dataset;
}

// Calls `disturb` once per round, when some contributions are in and some are not.
class Disturber final : public ProgramObserver {
 public:
  explicit Disturber(std::function<void(const v1::Round&)> disturb) : disturb_(std::move(disturb)) {}
  void OnRoundProgress(int number, const v1::Round& round) override {
    if (number == disturbed_ || round.state() != v1::COLLECTING || round.num_contributions() < 4) return;
    disturbed_ = number;
    disturb_(round);
  }

 private:
  const std::function<void(const v1::Round&)> disturb_;
  int disturbed_ = 0;
};

struct Training {
  std::string model_digest;
  std::vector<std::string> aggregate_digests;
  absl::Duration took;
};

Training Train(Federation& federation, ProgramObserver& observer) {
  for (const char* name : {"w1", "w2"}) {
    federation.StartWorker(name, {"--data", "debian-index=" SHEAF_TEST_DATA "/debian-index-sample.snapshot"});
  }
  TagsProgram program(SampleIndex(), {.clients_per_round = 40, .seed = 7});
  const absl::Time start = federation.clock().Now();
  const auto outcomes = RunProgram(federation.transport(), federation.clock(), federation.random(), program,
                                   {.rounds = 2, .round_timeout = absl::Seconds(60)}, observer);
  INFO(outcomes.status().ToString());
  REQUIRE(outcomes.ok());
  Training training{.model_digest = program.ModelDigest(), .took = federation.clock().Now() - start};
  for (const RoundOutcome& outcome : *outcomes) {
    CHECK(outcome.round.aggregate().num_contributions() == 40);
    training.aggregate_digests.push_back(outcome.aggregate_digest);
  }
  return training;
}

const Training& Undisturbed() {
  static const Training training = [] {
    Federation federation;
    ProgramObserver nobody;
    return Train(federation, nobody);
  }();
  return training;
}

// Contributions after the disturbance: in the middle of the round, with nothing lost that was seen before.
void CheckMidRound(Federation& federation, const v1::Round& before) {
  const v1::Round after = RoundOf(federation.transport(), before.id());
  CHECK(after.state() == v1::COLLECTING);
  CHECK(after.num_contributions() >= before.num_contributions());
  CHECK(after.num_contributions() < 40);
}

TEST_CASE("A server killed in the middle of every round releases what an undisturbed one does, to the last bit") {
  const Training& expected = Undisturbed();
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>(), {"--checkpoint-spool-bytes", "64KiB"}}) {
    Federation federation({.server_arguments = arguments});
    int kills = 0;
    absl::Duration restart;
    Disturber disturber([&](const v1::Round& round) {
      federation.KillServer();
      restart = federation.StartServer();
      ++kills;
      CheckMidRound(federation, round);
    });
    const Training disturbed = Train(federation, disturber);
    CHECK(kills == 2);
    CHECK(disturbed.model_digest == expected.model_digest);
    CHECK(disturbed.aggregate_digests == expected.aggregate_digests);
    Measured("{} kills in 2 rounds{}: model digest {:.12} = {:.12}; {} instead of {}; it served again after {}", kills,
             arguments.empty() ? "" : ", with many checkpoints", disturbed.model_digest, expected.model_digest,
             absl::FormatDuration(disturbed.took), absl::FormatDuration(expected.took), absl::FormatDuration(restart));
  }
}

TEST_CASE("A server told to stop in the middle of a round ends well and soon, and goes on where it was") {
  const Training& expected = Undisturbed();
  Federation federation;
  absl::Duration stop;
  Disturber disturber([&](const v1::Round& round) {
    stop = std::max(stop, federation.StopServer());
    federation.StartServer();
    CheckMidRound(federation, round);
  });
  const Training disturbed = Train(federation, disturber);
  CHECK(stop < absl::Seconds(3));
  CHECK(disturbed.model_digest == expected.model_digest);
  CHECK(disturbed.aggregate_digests == expected.aggregate_digests);
  Measured("it ended {} after SIGTERM at most; model digest {:.12} = {:.12}", absl::FormatDuration(stop),
           disturbed.model_digest, expected.model_digest);
}

}  // namespace
}  // namespace sheaf
