// ProgressLine: what happens right now, on stderr. On a terminal one line, redrawn in place; elsewhere plain lines,
// seldom enough for a log.
//
//   ProgressLine line(err, {.is_terminal = true, .width = 80});
//   line.Update(RoundProgressText(round, now), now);
//   line.Finish();
//
// Not thread-safe.
#pragma once

#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "sheaf/v1/round.pb.h"

namespace sheaf {

struct ProgressStyle {
  bool is_terminal = false;
  bool colors = false;
  // Columns of the terminal; longer lines are cut, for a wrapped line cannot be redrawn.
  int width = 80;
  // Between plain lines.
  absl::Duration plain_interval = absl::Seconds(2);
};

class ProgressLine {
 public:
  ProgressLine(std::ostream& err, const ProgressStyle& style) : err_(err), style_(style) {}

  // Shows `text`, which is without colours.
  void Update(const std::string& text, absl::Time now);
  // Leaves the last text standing, on a line of its own.
  void Finish();
  // Takes the line off the terminal.
  void Clear();

 private:
  std::ostream& err_;
  ProgressStyle style_;
  std::string text_;
  // Whether `text_` was shown.
  bool is_shown_ = true;
  absl::Time last_shown_ = absl::InfinitePast();
};

// "[##########----------]" of `width` columns between the brackets.
std::string ProgressBar(int64_t done, int64_t total, int width);

// "[####------] 26/50  3 leased  20 queued  0 failed  5.1 MB up  1.2 MB down  00:04".
std::string RoundProgressText(const v1::Round& round, absl::Time now);

}  // namespace sheaf
