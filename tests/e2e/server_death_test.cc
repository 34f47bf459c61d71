// The server as a process that is killed, or told to stop, in the middle of a round.
#include <optional>

#include "aggregation/wire/safetensors.h"
#include "proto/methods.h"
#include "sdk/cpp/program/program.h"
#include "tests/e2e/rounds.h"
#include "tests/e2e/wire.h"
#include "workloads/tags/program.h"

namespace sheaf {
namespace {

TEST_CASE("A server killed right after it accepted contributions counts them, and each once, when it is back") {
  const Wire wire(GENERATE(from_range(kEveryWire)));
  Federation federation(wire.Options());
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

TEST_CASE("A server killed right after the last contribution still releases the aggregate, once") {
  const Wire wire(GENERATE(from_range(kEveryWire)));
  Federation federation(wire.Options());
  int unfinished = 0;
  for (int trial = 0; trial < 5; ++trial) {
    const std::string round = StartRound(federation, OneHotRound({.num_tasks = 2, .size = 100'000}));
    const v1::SyncResponse granted =
        SyncOnce(federation.transport(), APoll("hand", fmt::format("poll-{}", trial), 2, absl::Seconds(5)));
    REQUIRE(granted.leases_size() == 2);
    v1::SyncRequest results = APoll("hand", "last", 0);
    for (const v1::Lease& lease : granted.leases()) AddResult(lease, results);
    const v1::SyncResponse accepted = SyncOnce(federation.transport(), results);
    federation.KillServer();
    CHECK(VerdictsOf(accepted) == std::vector<std::string>(2, "ACCEPTED"));
    federation.StartServer();
    if (RoundOf(federation.transport(), round).state() != v1::SUCCEEDED) ++unfinished;
    CHECK(Await(federation, round, absl::Seconds(10)).aggregate().num_contributions() == 2);
    CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(2, 1));
  }
  Measured("5 kills, {} of them seen while it was still sealing after the restart; 5 aggregates", unfinished);
}

// Kills the server and starts it again once some contributions are in, then opens the gate; returns how many were in.
int64_t KillMidRound(Federation& federation, const std::string& round) {
  int64_t seen = 0;
  WaitUntil("some contributions are in", absl::Seconds(20), [&] {
    seen = RoundOf(federation.transport(), round).num_contributions();
    return seen >= 3;
  });
  federation.KillServer();
  federation.StartServer();
  CHECK(RoundOf(federation.transport(), round).state() == v1::COLLECTING);
  federation.StartWorker("gate", {"--label", "gate=open"});
  return seen;
}

TEST_CASE("Contributions too large for a Sync are uploaded, and survive the server like any other") {
  const Wire wire(GENERATE(from_range(kGrpcAndHttps)));
  Federation federation(wire.Options());
  federation.StartWorker("w1");
  federation.StartWorker("w2");
  // 3.2 MB each.
  const std::string round = StartRound(
      federation, OneHotRound({.num_tasks = 16, .work = absl::Milliseconds(50), .size = 400'000, .num_gated = 8}));
  const int64_t seen = KillMidRound(federation, round);
  CHECK(RoundOf(federation.transport(), round).num_contributions() >= seen);
  const v1::Round ended = Await(federation, round);
  CHECK(ended.bytes_up() >= 16 * int64_t{3'200'000});
  CHECK(ended.num_lost_attempts() == 0);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(16, 1));
  Measured("killed after {} of 16; {} MB counted once", seen, ended.bytes_up() / 1'000'000);
}

TEST_CASE("An ephemeral round writes no contribution down: after a kill it asks for them again, and counts each once") {
  const Wire wire(GENERATE(from_range(kEveryWire)));
  Federation federation(wire.Options());
  federation.StartWorker("w1");
  federation.StartWorker("w2");
  const std::string round = StartRound(
      federation,
      OneHotRound({.num_tasks = 16, .work = absl::Milliseconds(50), .durability = v1::EPHEMERAL, .num_gated = 8}));
  const int64_t seen = KillMidRound(federation, round);
  const v1::Round ended = Await(federation, round);
  CHECK(ended.aggregate().num_contributions() == 16);
  CHECK(CountsOf(federation.transport(), round) == std::vector<int64_t>(16, 1));
  int repeated = 0;
  for (const v1::Task& task : TasksOf(federation.transport(), round)) repeated += task.num_attempts() > 1 ? 1 : 0;
  CHECK(repeated >= seen);
  Measured("killed after {} of 16; {} tasks ran again", seen, repeated);
}

// --- Training, disturbed and not ---

const TagsDataset& SampleIndex() {
  static const auto dataset = TagsDataset::Load(SHEAF_TEST_DATA "/debian-index-sample.snapshot");
  REQUIRE(dataset.ok());
  return *dataset;
}

constexpr int kClients = 40;

std::vector<std::string> WithIndex(std::vector<std::string> arguments = {}) {
  arguments.insert(arguments.end(), {"--data", "debian-index=" SHEAF_TEST_DATA "/debian-index-sample.snapshot"});
  return arguments;
}

// A program whose rounds stop halfway until a worker with the label gate=NUMBER comes.
class GatedProgram final : public Program {
 public:
  explicit GatedProgram(Program& program) : program_(program) {}
  absl::StatusOr<v1::RoundSpec> Plan(int number) override {
    absl::StatusOr<v1::RoundSpec> spec = program_.Plan(number);
    if (!spec.ok()) return spec;
    for (int i = kClients / 2; i < kClients; ++i) {
      (*spec->mutable_listed()->mutable_tasks(i)->mutable_requirements())["gate"] = std::to_string(number);
    }
    return spec;
  }
  absl::StatusOr<std::string> Broadcast(int number) override { return program_.Broadcast(number); }
  absl::Status Apply(int number, const SafetensorsView& aggregate, const v1::Round& round) override {
    return program_.Apply(number, aggregate, round);
  }
  absl::StatusOr<std::map<std::string, double>> Evaluate(int number) override { return program_.Evaluate(number); }

 private:
  Program& program_;
};

// Calls `disturb` once per round, when some contributions are in and some are not, then opens the gate.
class Disturber final : public ProgramObserver {
 public:
  Disturber(Federation& federation, std::function<void()> disturb)
      : federation_(federation), disturb_(std::move(disturb)) {}
  void OnRoundProgress(int number, const v1::Round& round) override {
    if (number == num_disturbed_ || round.num_contributions() < 4) return;
    ++num_disturbed_;
    disturb_();
    const v1::Round after = RoundOf(federation_.transport(), round.id());
    CHECK(after.state() == v1::COLLECTING);
    CHECK(after.num_contributions() >= round.num_contributions());
    CHECK(after.num_contributions() <= kClients / 2);
    federation_.StartWorker(fmt::format("gate-{}", number), WithIndex({"--label", fmt::format("gate={}", number)}));
  }
  int num_disturbed() const { return num_disturbed_; }

 private:
  Federation& federation_;
  const std::function<void()> disturb_;
  int num_disturbed_ = 0;
};

struct Training {
  std::string model_digest;
  std::vector<std::string> aggregate_digests;
  absl::Duration took;
};

// Two rounds; gated if there is a disturber.
Training Train(Federation& federation, Disturber* disturber) {
  for (const char* name : {"w1", "w2"}) federation.StartWorker(name, WithIndex());
  TagsProgram program(SampleIndex(), {.clients_per_round = kClients, .seed = 7});
  GatedProgram gated(program);
  const absl::Time start = federation.clock().Now();
  const auto outcomes = RunProgram({federation.transport(), federation.clock(), federation.random()},
                                   disturber == nullptr ? static_cast<Program&>(program) : gated,
                                   {.rounds = 2, .round_timeout = absl::Seconds(60), .observer = disturber});
  INFO(outcomes.status().ToString());
  REQUIRE(outcomes.ok());
  Training training{.model_digest = program.ModelDigest(), .took = federation.clock().Now() - start};
  for (const RoundOutcome& outcome : *outcomes) {
    CHECK(outcome.round.aggregate().num_contributions() == kClients);
    training.aggregate_digests.push_back(outcome.aggregate_digest);
  }
  return training;
}

const Training& Undisturbed() {
  static const Training training = [] {
    Federation federation;
    return Train(federation, nullptr);
  }();
  return training;
}

TEST_CASE("A server killed in the middle of every round releases what an undisturbed one does, to the last bit") {
  const Wire wire(GENERATE(from_range(kGrpcAndHttps)));
  const Training& expected = Undisturbed();
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>(), {"--checkpoint-spool-bytes", "64KiB"}}) {
    Federation federation(wire.Options(arguments));
    absl::Duration restart;
    Disturber disturber(federation, [&] {
      federation.KillServer();
      restart = std::max(restart, federation.StartServer());
    });
    const Training disturbed = Train(federation, &disturber);
    CHECK(disturber.num_disturbed() == 2);
    CHECK(disturbed.model_digest == expected.model_digest);
    CHECK(disturbed.aggregate_digests == expected.aggregate_digests);
    Measured("{} kills in 2 rounds{}: model digest {:.12} = {:.12}; {} instead of {}; it served again after {}",
             disturber.num_disturbed(), arguments.empty() ? "" : ", with many checkpoints", disturbed.model_digest,
             expected.model_digest, absl::FormatDuration(disturbed.took), absl::FormatDuration(expected.took),
             absl::FormatDuration(restart));
  }
}

TEST_CASE("A server told to stop in the middle of a round ends well and soon, and goes on where it was") {
  const Training& expected = Undisturbed();
  const Wire wire(GENERATE(from_range(kGrpcAndHttps)));
  Federation federation(wire.Options());
  absl::Duration stop;
  Disturber disturber(federation, [&] {
    stop = std::max(stop, federation.StopServer());
    federation.StartServer();
  });
  const Training disturbed = Train(federation, &disturber);
  CHECK(disturber.num_disturbed() == 2);
  CHECK(stop < absl::Seconds(3));
  CHECK(disturbed.model_digest == expected.model_digest);
  CHECK(disturbed.aggregate_digests == expected.aggregate_digests);
  Measured("it ended {} after SIGTERM at most; model digest {:.12} = {:.12}", absl::FormatDuration(stop),
           disturbed.model_digest, expected.model_digest);
}

}  // namespace
}  // namespace sheaf
