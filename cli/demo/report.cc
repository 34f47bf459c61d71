#include "cli/demo/report.h"

#include <fmt/format.h>

#include "cli/terminal/human_text.h"
#include "cli/terminal/recall_plot.h"
#include "cli/terminal/round_text.h"
#include "proto/time.h"

namespace sheaf {
namespace {

// Together with the phases this fits 80 columns.
constexpr char kRowFormat[] = "{:>5}  {:>8}  {:>5}  {:>6}  {:>6}  {:>6}  {:>6}  {:>5}  {}";

int64_t FailedOf(const v1::Round& round) { return round.tasks().failed() + round.tasks().buried(); }

// How many times less than sending the whole model both ways.
std::string Saving(int64_t dense, int64_t sparse) { return sparse > 0 ? HumanCount(dense / sparse) + "x" : "-"; }

}  // namespace

DemoReport::DemoReport(Session& session, const DemoFacts& facts)
    : session_(session),
      facts_(facts),
      progress_(session.err(), {.is_terminal = session.host().err_is_terminal,
                                .colors = session.err_colors(),
                                .width = session.host().terminal_width}) {
  if (!session_.json()) PrintHeader();
}

double DemoReport::RecallOf(const RoundOutcome& outcome) const {
  const auto found = outcome.evaluation.find(facts_.metric);
  return found == outcome.evaluation.end() ? 0 : found->second;
}

// Rows of the model that at least one client of the round touched.
int64_t DemoReport::RowsOf(const v1::Round& round) const {
  for (const v1::OutputSummary& output : round.aggregate().outputs()) {
    if (output.name() == facts_.rows_output) return output.touched();
  }
  return 0;
}

void DemoReport::PrintHeader() {
  session_.err() << "\nPHASES: percent of the round spent in wait/download/prepare/compute/upload/fold/commit."
                    "\nLESS: times fewer bytes than sending the whole model to each client and back.\n\n";
  session_.err().flush();
  if (session_.options().no_headers) return;
  session_.out() << Paint(fmt::format(kRowFormat, "ROUND", "RECALL", "TASKS", "ROWS", "UP", "DOWN", "LESS", "WALL",
                                      "PHASES"),
                          Color::kBold, session_.out_colors())
                 << std::endl;
}

void DemoReport::OnRoundStarted(int number, const v1::Round& round) { OnRoundProgress(number, round); }

void DemoReport::OnRoundProgress(int number, const v1::Round& round) {
  // Elsewhere than on a terminal the line per round is progress enough.
  if (!session_.host().err_is_terminal) return;
  progress_.Update(fmt::format("round {}/{} {}", number, facts_.num_rounds, RoundProgressText(round, session_.now())),
                   session_.now());
}

void DemoReport::OnRoundEnded(const RoundOutcome& outcome) {
  progress_.Clear();
  Count(outcome);
  session_.json() ? PrintJsonRow(outcome) : PrintRow(outcome);
  session_.out().flush();
}

void DemoReport::Count(const RoundOutcome& outcome) {
  const v1::Round& round = outcome.round;
  totals_.recall.push_back(RecallOf(outcome));
  totals_.num_tasks += NumTasks(round.tasks());
  totals_.num_failed_attempts += round.num_failed_attempts();
  totals_.num_lost_attempts += round.num_lost_attempts();
  totals_.bytes_up += round.bytes_up();
  totals_.bytes_down += round.bytes_down();
  totals_.dense_bytes += DenseBytes(round);
  totals_.rounds_time += outcome.timings.Unverified();
  totals_.verify_time += outcome.timings.verify;
  if (!outcome.verification.has_value()) return;
  ++totals_.verified_rounds;
  totals_.mismatches += outcome.verification->num_mismatches;
  if (totals_.first_mismatch.empty() && outcome.verification->num_mismatches > 0) {
    totals_.first_mismatch = fmt::format("round {}: {}", outcome.number, outcome.verification->first_mismatch);
  }
}

void DemoReport::PrintRow(const RoundOutcome& outcome) {
  const v1::Round& round = outcome.round;
  std::string phases = PhaseShares(round.phases());
  if (outcome.verification.has_value()) {
    phases += outcome.verification->num_mismatches == 0
                  ? Paint("  verified", Color::kGreen, session_.out_colors())
                  : Paint(fmt::format("  {} values differ", outcome.verification->num_mismatches), Color::kRed,
                          session_.out_colors());
  }
  session_.out() << fmt::format(kRowFormat, outcome.number, fmt::format("{:.3f}", RecallOf(outcome)),
                                fmt::format("{}/{}", round.tasks().succeeded(), FailedOf(round)),
                                HumanCount(RowsOf(round)), HumanBytes(round.bytes_up()), HumanBytes(round.bytes_down()),
                                Saving(DenseBytes(round), round.bytes_up() + round.bytes_down()),
                                HumanDuration(outcome.timings.Unverified()), phases)
                 << "\n";
}

void DemoReport::PrintJsonRow(const RoundOutcome& outcome) {
  const v1::Round& round = outcome.round;
  const v1::RoundPhases& phases = round.phases();
  const auto seconds = [](const google::protobuf::Duration& duration) {
    return absl::ToDoubleSeconds(FromProto(duration));
  };
  std::string verified;
  if (outcome.verification.has_value()) {
    verified = fmt::format(R"(,"verifiedValues":{},"mismatches":{})", outcome.verification->num_values,
                           outcome.verification->num_mismatches);
  }
  session_.out() << fmt::format(
      R"({{"round":{},"id":"{}","{}":{},"tasksSucceeded":{},"tasksFailed":{},)"
      R"("attemptsFailed":{},"attemptsLost":{},"rows":{},"bytesUp":{},"bytesDown":{},"denseBytes":{},)"
      R"("phases":{{"wait":{},"download":{},"prepare":{},"compute":{},"upload":{},"fold":{},"commit":{}}},)"
      R"("seconds":{},"aggregateDigest":"{}"{}}})"
      "\n",
      outcome.number, round.id(), facts_.metric, RecallOf(outcome), round.tasks().succeeded(), FailedOf(round),
      round.num_failed_attempts(), round.num_lost_attempts(), RowsOf(round), round.bytes_up(), round.bytes_down(),
      DenseBytes(round), seconds(phases.wait()), seconds(phases.download()), seconds(phases.prepare()),
      seconds(phases.compute()), seconds(phases.upload()), seconds(phases.fold()), seconds(phases.commit()),
      absl::ToDoubleSeconds(outcome.timings.Unverified()), outcome.aggregate_digest, verified);
}

void DemoReport::PrintEnd(const std::string& model_digest) {
  if (totals_.recall.empty()) return;
  if (session_.json()) return PrintJsonEnd(model_digest);
  std::ostream& out = session_.out();
  out << fmt::format("\n{} on {}\n", facts_.metric_label, facts_.measured_on)
      << DrawRecallPlot({.values = totals_.recall, .floor = facts_.popularity_recall, .floor_name = "popularity"}, {});
  out << fmt::format("\n{} {:.3f} after {} rounds in {} (popularity alone: {:.3f})\n", facts_.metric_label,
                     totals_.recall.back(), totals_.recall.size(), HumanDuration(totals_.rounds_time),
                     facts_.popularity_recall);
  out << fmt::format("{} tasks, {} failed attempts, {} lost attempts\n", HumanCount(totals_.num_tasks),
                     totals_.num_failed_attempts, totals_.num_lost_attempts);
  out << fmt::format("{} up and {} down; the whole model to each client and back: {}, {} as much\n",
                     HumanBytes(totals_.bytes_up), HumanBytes(totals_.bytes_down), HumanBytes(totals_.dense_bytes),
                     Saving(totals_.dense_bytes, totals_.bytes_up + totals_.bytes_down));
  if (totals_.verified_rounds > 0) {
    out << fmt::format("{} rounds recomputed by brute force in {}: {} values differ\n", totals_.verified_rounds,
                       HumanDuration(totals_.verify_time), totals_.mismatches);
  }
  out << fmt::format("model sha256 {}\n", model_digest) << std::flush;
}

void DemoReport::PrintJsonEnd(const std::string& model_digest) {
  std::string verified;
  if (totals_.verified_rounds > 0) {
    verified = fmt::format(R"(,"verifiedRounds":{},"mismatches":{},"verifySeconds":{:.3f})", totals_.verified_rounds,
                           totals_.mismatches, absl::ToDoubleSeconds(totals_.verify_time));
  }
  session_.out() << fmt::format(R"({{"{}":{},"rounds":{},"seconds":{:.3f},"modelDigest":"{}"{}}})", facts_.metric,
                                totals_.recall.back(), totals_.recall.size(),
                                absl::ToDoubleSeconds(totals_.rounds_time), model_digest, verified)
                 << std::endl;
}

}  // namespace sheaf
