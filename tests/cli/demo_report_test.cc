#include <catch2/catch.hpp>
#include <sstream>

#include "cli/demo/report.h"
#include "tests/cli/command_run.h"
#include "tests/cli/sample_messages.h"
#include "workloads/tags/program.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;

RoundOutcome Outcome(int number, double recall) {
  RoundOutcome outcome;
  outcome.number = number;
  outcome.round = SucceededRound();
  outcome.evaluation[kTagsRecallMetric] = recall;
  outcome.timings.broadcast = absl::Milliseconds(60);
  outcome.timings.round = absl::Milliseconds(1250);
  outcome.timings.evaluate = absl::Milliseconds(90);
  outcome.aggregate_digest = "abad1dea";
  return outcome;
}

RoundOutcome VerifiedOutcome(int number, int64_t mismatches) {
  RoundOutcome outcome = Outcome(number, 0.5);
  outcome.timings.verify = absl::Seconds(3);
  outcome.verification = Verification{.num_values = 1000, .num_mismatches = mismatches, .first_mismatch = "row 3"};
  return outcome;
}

// What two rounds print.
class Demo {
 public:
  explicit Demo(std::string output) {
    GlobalOptions options;
    options.output = std::move(output);
    session_.emplace(host_, options);
    report_.emplace(*session_, DemoFacts{.metric = kTagsRecallMetric,
                                         .metric_label = "recall@5",
                                         .measured_on = "maintainers that no client saw",
                                         .rows_output = kTagsRowsOutput,
                                         .num_rounds = 2,
                                         .model_bytes = 113'886'000,
                                         .popularity_recall = 0.347});
  }

  DemoReport& report() { return *report_; }
  std::string out() const { return out_.str(); }
  std::string err() const { return err_.str(); }

 private:
  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;
  ManualClock clock_;
  SeededRandom random_{1};
  ImmediateTimer timer_;
  Host host_{.in = in_,
             .out = out_,
             .err = err_,
             .clock = clock_,
             .random = random_,
             .environment = [](const std::string&) { return std::nullopt; },
             .timer = timer_};
  std::optional<Session> session_;
  std::optional<DemoReport> report_;
};

TEST_CASE("The demo prints a line per round, then the curve and what was saved") {
  Demo demo("table");
  demo.report().OnRoundEnded(Outcome(1, 0.415));
  demo.report().OnRoundEnded(Outcome(2, 0.53));
  CHECK(demo.out() ==
        "ROUND    RECALL  TASKS    ROWS      UP    DOWN    LESS   WALL  PHASES\n"
        "    1     0.415   50/0   2,698  7.4 MB  7.1 MB    785x   1.4s  9/1/3/61/9/8/9\n"
        "    2     0.530   50/0   2,698  7.4 MB  7.1 MB    785x   1.4s  9/1/3/61/9/8/9\n");
  demo.report().PrintEnd("d1gest");
  CHECK_THAT(demo.out(), Contains("popularity 0.347") && Contains("recall@5 0.530 after 2 rounds in 2.8s"));
  CHECK_THAT(demo.out(),
             Contains("15 MB up and 14 MB down; the whole model to each client and back: 23 GB, 785x as much"));
  CHECK_THAT(demo.out(), EndsWith("model sha256 d1gest\n"));
}

TEST_CASE("With -o json the demo's stdout is JSON lines, the last of which sums up") {
  Demo demo("json");
  demo.report().OnRoundEnded(Outcome(1, 0.415));
  demo.report().PrintEnd("d1gest");
  CHECK(demo.out() ==
        R"({"round":1,"id":"r-7k2m9q4x","micro_recall_at_5":0.415,"tasksSucceeded":50,"tasksFailed":0,)"
        R"("attemptsFailed":1,"attemptsLost":2,"rows":2698,"bytesUp":7400000,"bytesDown":7100000,)"
        R"("denseBytes":11388600000,"phases":{"wait":0.1125,"download":0.0125,"prepare":0.0375,"compute":0.7625,)"
        R"("upload":0.1125,"fold":0.1,"commit":0.1125},"seconds":1.4,"aggregateDigest":"abad1dea"})"
        "\n"
        R"({"micro_recall_at_5":0.415,"rounds":1,"seconds":1.400,"modelDigest":"d1gest"})"
        "\n");
}

TEST_CASE("Verification is counted apart from the rounds' time, and its findings are in the last line") {
  Demo demo("json");
  demo.report().OnRoundEnded(VerifiedOutcome(1, 0));
  demo.report().OnRoundEnded(VerifiedOutcome(2, 7));
  demo.report().PrintEnd("d1gest");
  CHECK_THAT(demo.out(), EndsWith(R"({"micro_recall_at_5":0.5,"rounds":2,"seconds":2.800,"modelDigest":"d1gest",)"
                                  R"("verifiedRounds":2,"mismatches":7,"verifySeconds":6.000})"
                                  "\n"));
  CHECK(demo.report().totals().first_mismatch == "round 2: row 3");
  Demo table("table");
  table.report().OnRoundEnded(VerifiedOutcome(1, 0));
  table.report().OnRoundEnded(VerifiedOutcome(2, 7));
  CHECK_THAT(table.out(), Contains("9/1/3/61/9/8/9  verified\n") && Contains("9/1/3/61/9/8/9  7 values differ\n"));
}

}  // namespace
}  // namespace sheaf
