// Rounds that are announced ahead, with real processes that are killed while they are.
#include <algorithm>
#include <functional>

#include "sdk/cpp/client/round_client.h"
#include "sdk/cpp/program/program.h"
#include "tests/e2e/rounds.h"
#include "workloads/tags/program.h"

namespace sheaf {
namespace {

constexpr int kRounds = 6;

const TagsDataset& SampleIndex() {
  static const auto dataset = TagsDataset::Load(SHEAF_TEST_DATA "/debian-index-sample.snapshot");
  REQUIRE(dataset.ok());
  return *dataset;
}

// Told of each round that opens, while those after it are announced.
class OnOpening final : public ProgramObserver {
 public:
  explicit OnOpening(std::function<void(int number)> disturb) : disturb_(std::move(disturb)) {}
  void OnRoundStarted(int number, const v1::Round&) override { disturb_(number); }

 private:
  const std::function<void(int number)> disturb_;
};

struct Training {
  std::string model_digest;
  std::vector<std::string> aggregate_digests;
  int64_t num_lost_attempts = 0;
};

void StartWorker(Federation& federation, const std::string& name) {
  federation.StartWorker(
      name, {"--data", "debian-index=" SHEAF_TEST_DATA "/debian-index-sample.snapshot", "--prepare-ahead", "16"});
}

Training Train(
    Federation& federation, int ahead, const std::function<void(int number)>& disturb = [](int) {}) {
  for (const char* name : {"w1", "w2"}) StartWorker(federation, name);
  // What a killed worker has prepared is given to another one soon.
  TagsProgram program(SampleIndex(), {.clients_per_round = 40, .seed = 7, .lease_duration = absl::Seconds(2)});
  OnOpening observer(disturb);
  const auto outcomes =
      RunProgram({federation.transport(), federation.clock(), federation.random()}, program,
                 {.rounds = kRounds, .ahead = ahead, .round_timeout = absl::Seconds(60), .observer = &observer});
  INFO(outcomes.status().ToString());
  REQUIRE(outcomes.ok());
  Training training{.model_digest = program.ModelDigest()};
  for (const RoundOutcome& outcome : *outcomes) {
    CHECK(outcome.round.aggregate().num_contributions() == 40);
    training.aggregate_digests.push_back(outcome.aggregate_digest);
    training.num_lost_attempts += outcome.round.num_lost_attempts();
  }
  return training;
}

const Training& OneByOne() {
  static const Training training = [] {
    Federation federation;
    return Train(federation, 0);
  }();
  return training;
}

TEST_CASE("Four rounds ahead train the same model as none, to the last bit") {
  Federation federation;
  const Training ahead = Train(federation, 4);
  CHECK(ahead.model_digest == OneByOne().model_digest);
  CHECK(ahead.aggregate_digests == OneByOne().aggregate_digests);
}

TEST_CASE("A server killed while four rounds are announced has them when it is back, and releases the same bits") {
  Federation federation;
  int num_kills = 0;
  size_t announced_max = 0;
  const Training ahead = Train(federation, 4, [&](int number) {
    if (number == 1) return;
    federation.KillServer();
    federation.StartServer();
    ++num_kills;
    v1::ListRoundsRequest request;
    request.add_states(v1::ANNOUNCED);
    const auto listed = BlockingCall(federation.transport(), kListRounds, request);
    REQUIRE(listed.ok());
    announced_max = std::max(announced_max, static_cast<size_t>(listed->rounds_size()));
  });
  CHECK(num_kills == kRounds - 1);
  // This round's successors; the fourth is announced after the observer has heard of the opening.
  CHECK(announced_max == 3);
  CHECK(ahead.model_digest == OneByOne().model_digest);
  CHECK(ahead.aggregate_digests == OneByOne().aggregate_digests);
}

TEST_CASE("What a killed worker has prepared is done by another one, and the model is the same") {
  Federation federation;
  const Training ahead = Train(federation, 4, [&](int number) {
    if (number != 2) return;
    // It holds tasks of the rounds that are announced.
    WaitUntil("it has prepared something", absl::Seconds(20), [&] {
      v1::ListTasksRequest request;
      request.add_states(v1::LEASED);
      const auto listed = BlockingCall(federation.transport(), kListTasks, request);
      REQUIRE(listed.ok());
      return std::any_of(listed->tasks().begin(), listed->tasks().end(),
                         [](const v1::Task& task) { return task.worker() == "w1"; });
    });
    // One of the same name would be given back what it held.
    federation.KillWorker("w1");
    StartWorker(federation, "w3");
  });
  CHECK(ahead.model_digest == OneByOne().model_digest);
  CHECK(ahead.aggregate_digests == OneByOne().aggregate_digests);
  Measured("{} attempts were lost with the worker", ahead.num_lost_attempts);
  CHECK(ahead.num_lost_attempts > 0);
}

TEST_CASE("A program that fails leaves no announced round behind") {
  Federation federation;
  OnOpening nobody([](int) {});
  // No worker computes it, so that the first round lasts longer than anybody waits.
  TagsProgram program(SampleIndex(), {.clients_per_round = 4});
  const auto outcomes =
      RunProgram({federation.transport(), federation.clock(), federation.random()}, program,
                 {.rounds = kRounds, .ahead = 2, .round_timeout = absl::Milliseconds(50), .observer = &nobody});
  CHECK(outcomes.status().code() == absl::StatusCode::kDeadlineExceeded);
  const auto listed = BlockingCall(federation.transport(), kListRounds, v1::ListRoundsRequest());
  REQUIRE(listed.ok());
  std::vector<std::string> states;
  for (const v1::Round& round : listed->rounds()) states.push_back(v1::RoundState_Name(round.state()));
  // Newest first. The one that it waited for goes on, as without rounds ahead.
  CHECK(states == std::vector<std::string>{"CANCELLED", "CANCELLED", "COLLECTING"});
}

}  // namespace
}  // namespace sheaf
