#include "sdk/cpp/program/program.h"

#include <catch2/catch.hpp>
#include <cstring>

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
  absl::StatusOr<RoundPlan> Plan(int number) override {
    steps.push_back("plan " + std::to_string(number));
    return RoundPlan{.spec = SumSpec(), .broadcast = broadcast};
  }
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

}  // namespace
}  // namespace sheaf
