#include "sdk/cpp/program/program.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "sdk/cpp/client/round_client.h"
#include "tests/sdk/program_local_server.h"

namespace sheaf {
namespace {

v1::Tensor Floats(const std::vector<float>& values) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::FLOAT32);
  tensor.add_shape(static_cast<int64_t>(values.size()));
  tensor.set_data(values.data(), values.size() * sizeof(float));
  return tensor;
}

// Every task adds its selector's number to the one number of the model.
v1::Contribution AddSelector(const v1::RoundSpec&, const v1::TaskSpec& task, const std::string&) {
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name("x");
  *output.mutable_dense() = Floats({std::stof(task.data_selector())});
  return contribution;
}

v1::RoundSpec SumSpec() {
  v1::RoundSpec spec;
  v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
  output.set_name("x");
  output.set_operator_("sum");
  output.set_dtype(v1::FLOAT32);
  output.add_dense_shape(1);
  for (const char* selector : {"1", "2", "4"}) spec.mutable_listed()->add_tasks()->set_data_selector(selector);
  return spec;
}

class SumProgram : public Program {
 public:
  absl::StatusOr<v1::RoundSpec> Plan(int number) override {
    steps.push_back("plan " + std::to_string(number));
    v1::RoundSpec spec = SumSpec();
    spec.set_population(population);
    return spec;
  }
  absl::StatusOr<std::string> Broadcast(int) override { return broadcast; }
  absl::Status Apply(int number, const SafetensorsView& aggregate, const v1::Round&) override {
    steps.push_back("apply " + std::to_string(number));
    float x = 0;
    std::memcpy(&x, aggregate.Find("x").value()->data.data(), sizeof(x));
    total += x;
    return absl::OkStatus();
  }
  absl::StatusOr<std::map<std::string, double>> Evaluate(int number) override {
    steps.push_back("evaluate " + std::to_string(number));
    return std::map<std::string, double>{{"total", total}};
  }

  std::string population;
  std::string broadcast;
  double total = 0;
  std::vector<std::string> steps;
};

class Diary : public ProgramObserver {
 public:
  void OnRoundStarted(int number, const v1::Round& round) override {
    entries.push_back(std::to_string(number) + " started " + round.id());
  }
  void OnRoundProgress(int number, const v1::Round& round) override {
    entries.push_back(std::to_string(number) + " " + v1::RoundState_Name(round.state()));
  }
  void OnRoundEnded(const RoundOutcome& outcome) override {
    entries.push_back(std::to_string(outcome.number) + " ended");
  }
  std::vector<std::string> entries;
};

struct Setup {
  LocalServer server{AddSelector};
  ManualClock clock;
  SeededRandom random{1};
  SumProgram program;
  Diary diary;

  absl::StatusOr<std::vector<RoundOutcome>> Run(ProgramOptions options = {.rounds = 2}) {
    options.observer = &diary;
    return RunProgram({server, clock, random}, program, options);
  }
};

TEST_CASE("A program plans, applies and evaluates round after round") {
  Setup setup;
  const auto outcomes = setup.Run();
  REQUIRE(outcomes.ok());
  REQUIRE(outcomes->size() == 2);
  CHECK((*outcomes)[0].evaluation.at("total") == 7);
  CHECK((*outcomes)[1].evaluation.at("total") == 14);
  CHECK((*outcomes)[1].round.state() == v1::SUCCEEDED);
  CHECK_FALSE((*outcomes)[0].aggregate_digest.empty());
  CHECK_FALSE((*outcomes)[0].verification.has_value());
  CHECK(setup.program.steps ==
        std::vector<std::string>{"plan 1", "apply 1", "evaluate 1", "plan 2", "apply 2", "evaluate 2"});
}

TEST_CASE("An observer sees every round start, change and end") {
  Setup setup;
  REQUIRE(setup.Run().ok());
  CHECK(setup.diary.entries == std::vector<std::string>{"1 started r-0", "1 COLLECTING", "1 SUCCEEDED", "1 ended",
                                                        "2 started r-1", "2 COLLECTING", "2 SUCCEEDED", "2 ended"});
}

TEST_CASE("A broadcast is uploaded before its round is created") {
  Setup setup;
  setup.program.broadcast = "a file";
  const auto outcomes = setup.Run();
  REQUIRE(outcomes.ok());
  CHECK(setup.server.blobs().size() == 1);
  CHECK((*outcomes)[0].broadcast_bytes == 6);
  CHECK(setup.server.blobs().contains((*outcomes)[0].round.spec().broadcast_digest()));
}

TEST_CASE("A broadcast is uploaded for the population of its round") {
  const int ahead = GENERATE(0, 1);
  Setup setup;
  setup.program.broadcast = std::string((1 << 20) + 1, 'x');
  SECTION("that the program names") {
    setup.program.population = "wards";
    REQUIRE(setup.Run({.rounds = 1, .ahead = ahead}).ok());
    CHECK(setup.server.upload_populations() == std::vector<std::string>{"wards"});
  }
  SECTION("that it has where none is named") {
    REQUIRE(setup.Run({.rounds = 1, .ahead = ahead}).ok());
    CHECK(setup.server.upload_populations() == std::vector<std::string>{"default"});
  }
}

TEST_CASE("A round that ends without an aggregate stops the program and says why") {
  Setup setup;
  setup.server.set_round_state(GENERATE(v1::FAILED, v1::CANCELLED));
  const auto outcomes = setup.Run();
  CHECK(outcomes.status().code() == absl::StatusCode::kAborted);
  const std::string message(outcomes.status().message());
  CHECK_THAT(message, Catch::Contains("round 1 of 2") && Catch::Contains("r-0") &&
                          Catch::Contains("too few contributions came before the deadline") &&
                          Catch::Contains("sheaf round explain r-0"));
  CHECK(setup.program.steps == std::vector<std::string>{"plan 1"});
}

TEST_CASE("An aggregate that changed on the way is not applied") {
  Setup setup;
  setup.server.set_fault([&](std::string_view method, bool is_answer) {
    if (method == kReadAggregate.name && !is_answer) setup.server.CorruptAggregates();
    return absl::OkStatus();
  });
  CHECK(setup.Run().status().code() == absl::StatusCode::kDataLoss);
  CHECK(setup.program.total == 0);
}

TEST_CASE("Verification that a program does not offer is said so") {
  Setup setup;
  CHECK(setup.Run({.rounds = 1, .verify = true}).status().code() == absl::StatusCode::kUnimplemented);
}

TEST_CASE("Waiting for a round ends at the caller's patience; the round goes on") {
  Setup setup;
  setup.server.set_round_state(v1::COLLECTING);
  setup.server.set_fault([&](std::string_view, bool) {
    setup.clock.Advance(absl::Seconds(10));
    return absl::OkStatus();
  });
  const auto round = CreateRound(setup.server, "request", SumSpec());
  REQUIRE(round.ok());
  const auto waited = WaitForRound(setup.server, setup.clock, round->id(), {.timeout = absl::Minutes(2)});
  CHECK(waited.status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(setup.server.num_calls(kGetRound.name) == 6);
}

TEST_CASE("A server that answers at once, and has no news, is not asked without a pause") {
  Setup setup;
  setup.server.set_round_state(v1::COLLECTING);
  const auto round = CreateRound(setup.server, "request", SumSpec());
  REQUIRE(round.ok());
  SystemClock clock;
  const auto waited = WaitForRound(setup.server, clock, round->id(), {.timeout = absl::Milliseconds(350)});
  CHECK(waited.status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(setup.server.num_calls(kGetRound.name) <= 8);
}

TEST_CASE("Waiting for a round that does not exist says so") {
  Setup setup;
  CHECK(WaitForRound(setup.server, setup.clock, "r-none").status().code() == absl::StatusCode::kNotFound);
  CHECK(ReadAggregate(setup.server, "r-none").status().code() == absl::StatusCode::kNotFound);
}

// Its broadcast is what it has summed up.
class CountingUp final : public SumProgram {
 public:
  absl::StatusOr<std::string> Broadcast(int number) override {
    steps.push_back("broadcast " + std::to_string(number) + " of " + std::to_string(static_cast<int>(total)));
    return std::to_string(total);
  }
  absl::StatusOr<std::map<std::string, double>> Evaluate(int number) override {
    if (number == fails_at) return absl::InternalError("it cannot be evaluated");
    return SumProgram::Evaluate(number);
  }
  int fails_at = 0;
};

std::vector<v1::RoundState> StatesOf(const LocalServer& server) {
  std::vector<v1::RoundState> states;
  for (const v1::Round& round : server.rounds()) states.push_back(round.state());
  return states;
}

struct AheadSetup {
  LocalServer server{AddSelector};
  ManualClock clock;
  SeededRandom random{1};
  CountingUp program;
  Diary diary;

  absl::StatusOr<std::vector<RoundOutcome>> Run(int rounds, int ahead) {
    return RunProgram({server, clock, random}, program, {.rounds = rounds, .ahead = ahead, .observer = &diary});
  }
};

TEST_CASE("With rounds announced ahead, the next is opened with its broadcast before the one that ended is evaluated") {
  AheadSetup setup;
  const auto outcomes = setup.Run(3, 1);
  INFO(outcomes.status().ToString());
  REQUIRE(outcomes.ok());
  CHECK(setup.program.steps == std::vector<std::string>{"plan 1", "broadcast 1 of 0", "plan 2", "apply 1",
                                                        "broadcast 2 of 7", "plan 3", "evaluate 1", "apply 2",
                                                        "broadcast 3 of 14", "evaluate 2", "apply 3", "evaluate 3"});
  CHECK((*outcomes)[2].evaluation.at("total") == 21);
  CHECK((*outcomes)[1].broadcast_bytes > 0);
  CHECK(setup.diary.entries == std::vector<std::string>{"1 started r-0", "1 COLLECTING", "1 SUCCEEDED", "2 started r-1",
                                                        "1 ended", "2 COLLECTING", "2 SUCCEEDED", "3 started r-2",
                                                        "2 ended", "3 COLLECTING", "3 SUCCEEDED", "3 ended"});
  CHECK(setup.server.num_calls(kOpenRound.name) == 3);
}

TEST_CASE("In a buffered loop each round continues the one before it, and is announced before that one opens") {
  AheadSetup setup;
  const auto outcomes = RunProgram({setup.server, setup.clock, setup.random}, setup.program,
                                   {.rounds = 4, .buffered = true, .observer = &setup.diary});
  INFO(outcomes.status().ToString());
  REQUIRE(outcomes.ok());
  CHECK(setup.program.steps == std::vector<std::string>{"plan 1", "plan 2", "broadcast 1 of 0", "apply 1", "plan 3",
                                                        "broadcast 2 of 7", "evaluate 1", "apply 2", "plan 4",
                                                        "broadcast 3 of 14", "evaluate 2", "apply 3",
                                                        "broadcast 4 of 21", "evaluate 3", "apply 4", "evaluate 4"});
  std::string before;
  for (const v1::Round& round : setup.server.rounds()) {
    CHECK(round.spec().announced());
    CHECK(round.spec().continues() == std::exchange(before, round.id()));
  }
  CHECK(StatesOf(setup.server) == std::vector<v1::RoundState>(4, v1::SUCCEEDED));
}

TEST_CASE("As many rounds as asked for are announced ahead, and none beyond the last") {
  const int ahead = GENERATE(0, 1, 2, 4, 9);
  AheadSetup setup;
  int most = 0;
  setup.server.set_fault([&](std::string_view, bool) {
    const std::vector<v1::RoundState> states = StatesOf(setup.server);
    most = std::max(most, static_cast<int>(std::count(states.begin(), states.end(), v1::ANNOUNCED)));
    return absl::OkStatus();
  });
  REQUIRE(setup.Run(5, ahead).ok());
  CHECK(most == std::min(ahead, 5));
  CHECK(StatesOf(setup.server) == std::vector<v1::RoundState>(5, v1::SUCCEEDED));
  CHECK(setup.program.total == 35);
}

TEST_CASE("An announced round waits for its broadcast as long as the rounds before it may take") {
  AheadSetup setup;
  REQUIRE(setup.Run(4, 2).ok());
  CHECK(setup.server.rounds()[3].spec().announce_deadline().seconds() == 3 * 3600);
}

TEST_CASE("A program that ends early cancels the rounds that it began ahead, and names the round that went wrong") {
  SECTION("the program fails while the next round is open already") {
    AheadSetup setup;
    setup.program.fails_at = 2;
    const auto outcomes = setup.Run(9, 3);
    CHECK(std::string(outcomes.status().message()) == "round 2 of 9: it cannot be evaluated");
    CHECK(StatesOf(setup.server) == std::vector<v1::RoundState>{v1::SUCCEEDED, v1::SUCCEEDED, v1::CANCELLED,
                                                                v1::CANCELLED, v1::CANCELLED, v1::CANCELLED});
  }
  SECTION("a round fails") {
    AheadSetup setup;
    setup.server.set_round_state(v1::FAILED);
    CHECK_THAT(std::string(setup.Run(9, 2).status().message()), Catch::StartsWith("round 1 of 9: r-0 ended FAILED"));
    CHECK(StatesOf(setup.server) == std::vector<v1::RoundState>{v1::FAILED, v1::CANCELLED, v1::CANCELLED});
  }
  SECTION("the next round cannot be opened") {
    AheadSetup setup;
    int openings = 0;
    setup.server.set_fault([&openings](std::string_view method, bool is_answer) {
      const bool is_second = method == kOpenRound.name && !is_answer && ++openings == 2;
      return is_second ? absl::FailedPreconditionError("too late") : absl::OkStatus();
    });
    CHECK(std::string(setup.Run(9, 2).status().message()) == "round 2 of 9: too late");
    CHECK(StatesOf(setup.server) == std::vector<v1::RoundState>{v1::SUCCEEDED, v1::CANCELLED, v1::CANCELLED});
  }
}

TEST_CASE("A server that does not know announced rounds is told from one that does, and keeps none") {
  AheadSetup setup;
  setup.server.set_announced_state(v1::COLLECTING);
  const auto outcomes = setup.Run(3, 1);
  CHECK(outcomes.status().code() == absl::StatusCode::kUnimplemented);
  CHECK_THAT(std::string(outcomes.status().message()), Catch::StartsWith("round 1 of 3: the server is older"));
  CHECK(StatesOf(setup.server) == std::vector<v1::RoundState>{v1::CANCELLED});
}

TEST_CASE("A broadcast too large to travel with the opening of its round is uploaded before") {
  AheadSetup setup;
  setup.server.set_inline_bytes_max(3);
  setup.program.population = "wards";
  REQUIRE(setup.Run(2, 1).ok());
  // Each is tried inside the call first.
  CHECK(setup.server.num_calls(kOpenRound.name) == 4);
  CHECK(setup.server.num_calls(kFinishUpload.name) == 2);
  CHECK(setup.server.upload_populations() == std::vector<std::string>{"wards", "wards"});
}

TEST_CASE("A small aggregate comes with the end of its round, and one that changed on the way is not applied") {
  AheadSetup setup;
  setup.server.set_aggregates_inline_max(1 << 20);
  SECTION("as it is") {
    REQUIRE(setup.Run(2, 1).ok());
    CHECK(setup.program.total == 14);
    CHECK(setup.server.num_calls(kReadAggregate.name) == 0);
  }
  SECTION("changed") {
    setup.server.set_fault([&](std::string_view method, bool is_answer) {
      if (method == kCreateRound.name && is_answer) setup.server.CorruptAggregates();
      return absl::OkStatus();
    });
    CHECK(setup.Run(1, 0).status().code() == absl::StatusCode::kDataLoss);
    CHECK(setup.program.total == 0);
  }
}

}  // namespace
}  // namespace sheaf
