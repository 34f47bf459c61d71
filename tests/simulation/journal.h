// Journal: the last events of a run, and the first invariant that was broken.
//
//   journal.Note("{} crashes", worker);
//   if (counted != 1) journal.Break("counted once", "task {} was counted {} times", task, counted);
//
// Notes cost nothing unless the run is replayed. A broken invariant does not stop the code that broke it: the world
// stops after the event. Not thread-safe.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "tests/simulation/agenda.h"

namespace sheaf::simulation {

struct Violation {
  std::string invariant;
  std::string what;
};

class Journal {
 public:
  Journal(const Agenda& agenda, bool is_kept) : agenda_(agenda), is_kept_(is_kept) {}

  template <typename... Args>
  void Note(fmt::format_string<Args...> format, Args&&... args) {
    if (!is_kept_) return;
    absl::Duration since_start = agenda_.now() - ManualClock().Now();
    lines_.push_back(fmt::format("{:>12.6f} s  {}", absl::ToDoubleSeconds(since_start),
                                 fmt::format(format, std::forward<Args>(args)...)));
    if (lines_.size() > kLinesMax) lines_.pop_front();
  }

  template <typename... Args>
  void Break(std::string_view invariant, fmt::format_string<Args...> format, Args&&... args) {
    if (violation_.has_value()) return;
    violation_ = {std::string(invariant), fmt::format(format, std::forward<Args>(args)...)};
    Note("BROKEN: {}: {}", violation_->invariant, violation_->what);
  }

  const std::optional<Violation>& violation() const { return violation_; }
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  static constexpr size_t kLinesMax = 50;

  const Agenda& agenda_;
  const bool is_kept_;
  std::deque<std::string> lines_;
  std::optional<Violation> violation_;
};

}  // namespace sheaf::simulation
