// HittersReport: what `sheaf demo hitters` prints: the most frequent names and the totals for people, or JSON lines of
// which the last one sums up. UniqTable: the whole table, as `uniq -c` writes it.
#pragma once

#include <string>
#include <vector>

#include "cli/session.h"
#include "cli/terminal/progress_line.h"
#include "sdk/cpp/program/program.h"
#include "workloads/hitters/program.h"

namespace sheaf {

// A line per name, in the order of the names' bytes: what `LC_ALL=C sort | uniq -c` makes of all clients' names.
std::string UniqTable(const std::vector<HittersRow>& table);

class HittersReport final : public ProgramObserver {
 public:
  // `top`: how many names to show. `program` outlives it.
  HittersReport(Session& session, const HittersProgram& program, int top);

  void OnRoundStarted(int number, const v1::Round& round) override;
  void OnRoundProgress(int number, const v1::Round& round) override;
  void OnRoundEnded(const RoundOutcome& outcome) override;

  const Verification& verification() const { return verification_; }

 private:
  // Most frequent first; equally frequent ones by name.
  std::vector<HittersRow> Top() const;
  void Print(const RoundOutcome& outcome);
  void PrintJson(const RoundOutcome& outcome);

  Session& session_;
  const HittersProgram& program_;
  const int top_;
  ProgressLine progress_;
  Verification verification_;
};

}  // namespace sheaf
