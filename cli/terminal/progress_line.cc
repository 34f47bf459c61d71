#include "cli/terminal/progress_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/terminal/human_text.h"
#include "cli/terminal/round_text.h"
#include "cli/terminal/table.h"

namespace sheaf {
namespace {

constexpr int kBarWidth = 20;
constexpr char kEraseLine[] = "\r\x1b[K";

// At most `columns` columns of UTF-8.
std::string Cut(const std::string& text, int columns) {
  if (TextWidth(text) <= static_cast<size_t>(columns)) return text;
  std::string cut;
  for (char c : text) {
    const bool begins = (c & 0xc0) != 0x80;
    if (begins && columns-- == 0) break;
    cut += c;
  }
  return cut;
}

}  // namespace

void ProgressLine::Update(const std::string& text, absl::Time now) {
  if (text == text_) return;
  text_ = text;
  if (style_.is_terminal) {
    err_ << kEraseLine << Paint(Cut(text, style_.width - 1), Color::kDim, style_.colors) << std::flush;
    return;
  }
  is_shown_ = now - last_shown_ >= style_.plain_interval;
  if (!is_shown_) return;
  last_shown_ = now;
  err_ << text << std::endl;
}

void ProgressLine::Finish() {
  if (text_.empty()) return;
  if (style_.is_terminal) {
    err_ << std::endl;
  } else if (!is_shown_) {
    err_ << text_ << std::endl;
  }
  text_.clear();
  is_shown_ = true;
}

void ProgressLine::Clear() {
  if (style_.is_terminal && !text_.empty()) err_ << kEraseLine << std::flush;
  text_.clear();
  is_shown_ = true;
}

std::string ProgressBar(int64_t done, int64_t total, int width) {
  const int64_t filled = total > 0 ? std::clamp<int64_t>(done * width / total, 0, width) : 0;
  return "[" + std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(width - filled), '-') +
         "]";
}

std::string RoundProgressText(const v1::Round& round, absl::Time now) {
  const int64_t failed = round.tasks().failed() + round.tasks().buried();
  std::string state;
  if (round.state() != v1::COLLECTING) state = "  " + v1::RoundState_Name(round.state());
  return fmt::format("{} {}  {} leased  {} queued  {} failed  {} up  {} down  {}{}",
                     ProgressBar(round.num_contributions(), GoalOf(round), kBarWidth), DoneOf(round),
                     round.tasks().leased(), round.tasks().queued(), failed, HumanBytes(round.bytes_up()),
                     HumanBytes(round.bytes_down()), ElapsedTime(ElapsedOf(round, now)), state);
}

}  // namespace sheaf
