// DemoReport: what `sheaf demo tags` and `sheaf demo reco` print while they train, and at the end: a line per round and
// a curve for people, or JSON lines of which the last one sums up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/session.h"
#include "cli/terminal/progress_line.h"
#include "sdk/cpp/program/program.h"

namespace sheaf {

struct DemoFacts {
  // The figure of merit among those that the program evaluates, its name for people, and on what it is measured.
  const char* metric = "";
  const char* metric_label = "";
  const char* measured_on = "";
  // The output that holds the rows of the model.
  const char* rows_output = "";
  int num_rounds = 0;
  // Of the whole model: what a dense contribution would carry.
  int64_t model_bytes = 0;
  // Recall of always naming what is most frequent.
  double popularity_recall = 0;
};

// Over all rounds.
struct DemoTotals {
  std::vector<double> recall;
  int64_t num_tasks = 0;
  int64_t num_failed_attempts = 0;
  int64_t num_lost_attempts = 0;
  int64_t bytes_up = 0;
  int64_t bytes_down = 0;
  int64_t dense_bytes = 0;
  // Verification excluded.
  absl::Duration rounds_time;
  absl::Duration verify_time;
  int verified_rounds = 0;
  int64_t mismatches = 0;
  std::string first_mismatch;
};

class DemoReport final : public ProgramObserver {
 public:
  DemoReport(Session& session, const DemoFacts& facts);

  void OnRoundStarted(int number, const v1::Round& round) override;
  void OnRoundProgress(int number, const v1::Round& round) override;
  void OnRoundEnded(const RoundOutcome& outcome) override;

  // After the last round: the curve and the totals, or the last JSON object.
  void PrintEnd(const std::string& model_digest);
  const DemoTotals& totals() const { return totals_; }

 private:
  void PrintHeader();
  void PrintRow(const RoundOutcome& outcome);
  void PrintJsonRow(const RoundOutcome& outcome);
  void PrintJsonEnd(const std::string& model_digest);
  void Count(const RoundOutcome& outcome);
  double RecallOf(const RoundOutcome& outcome) const;
  int64_t RowsOf(const v1::Round& round) const;
  int64_t DenseBytes(const v1::Round& round) const { return 2 * round.num_contributions() * facts_.model_bytes; }

  Session& session_;
  const DemoFacts facts_;
  ProgressLine progress_;
  DemoTotals totals_;
};

}  // namespace sheaf
