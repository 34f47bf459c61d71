#include "cli/terminal/round_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/terminal/errors.h"
#include "cli/terminal/human_text.h"
#include "cli/terminal/state_text.h"
#include "cli/terminal/table.h"
#include "proto/time.h"

namespace sheaf {
namespace {

struct PhaseRow {
  const char* name;
  const google::protobuf::Duration& (v1::RoundPhases::*get)() const;
};

constexpr PhaseRow kPhases[] = {
    {"wait", &v1::RoundPhases::wait},       {"download", &v1::RoundPhases::download},
    {"prepare", &v1::RoundPhases::prepare}, {"compute", &v1::RoundPhases::compute},
    {"upload", &v1::RoundPhases::upload},   {"fold", &v1::RoundPhases::fold},
    {"commit", &v1::RoundPhases::commit},
};

constexpr int kPhaseBarWidth = 40;

struct PathWords {
  std::string_view phase;
  std::string_view words;
  // In front of the worker's name; empty where it is not the worker's doing.
  std::string_view preposition;
};
constexpr PathWords kPathWords[] = {
    {"wait", "waiting for a worker", ""},
    {"backoff", "waiting to be tried again", ""},
    {"grant", "handing the task out", "to"},
    {"prepare", "preparing data", "on"},
    {"prepared", "prepared, and waiting for the round to open", "on"},
    {"download", "downloading", "on"},
    {"compute", "computing", "on"},
    {"upload", "uploading", "from"},
    {"hand_in", "handing the result in", "from"},
    {"receive", "reading the contribution", "of"},
    {"lost", "an attempt that was lost", "on"},
    {"failed", "an attempt that failed", "on"},
    {"released", "an attempt that was given back", "by"},
    {"cancelled", "an attempt that was cancelled", "on"},
    {"unaccounted", "unaccounted for", "on"},
    {"closing", "waiting for more contributions", ""},
    {"commit", "committing", ""},
    {"fold", "folding", ""},
    {"seal", "sealing", ""},
};
// The rest is too little for a sentence.
constexpr size_t kPathWordsMax = 4;
constexpr double kPathShareMin = 0.01;

std::string WordsOf(const v1::PhaseInterval& interval) {
  for (const PathWords& row : kPathWords) {
    if (row.phase != interval.phase()) continue;
    if (row.preposition.empty() || interval.worker().empty()) return std::string(row.words);
    return fmt::format("{} {} {}", row.words, row.preposition, interval.worker());
  }
  return interval.worker().empty() ? interval.phase() : fmt::format("{} on {}", interval.phase(), interval.worker());
}

double TotalSeconds(const v1::RoundPhases& phases) {
  double total = 0;
  for (const PhaseRow& row : kPhases) total += absl::ToDoubleSeconds(FromProto((phases.*row.get)()));
  return total;
}

double ShareOf(const v1::RoundPhases& phases, const PhaseRow& row, double total) {
  return total > 0 ? absl::ToDoubleSeconds(FromProto((phases.*row.get)())) / total : 0;
}

}  // namespace

int64_t NumTasks(const v1::TaskCounts& tasks) {
  return tasks.queued() + tasks.leased() + tasks.succeeded() + tasks.failed() + tasks.cancelled() + tasks.buried();
}

int64_t GoalOf(const v1::Round& round) {
  return round.spec().goal() > 0 ? round.spec().goal() : NumTasks(round.tasks());
}

std::string DoneOf(const v1::Round& round) { return fmt::format("{}/{}", round.num_contributions(), GoalOf(round)); }

absl::Duration ElapsedOf(const v1::Round& round, absl::Time now) {
  return (round.has_end_time() ? FromProto(round.end_time()) : now) - FromProto(round.create_time());
}

std::string TaskCountsText(const v1::TaskCounts& tasks) {
  std::string text;
  const auto add = [&text](int64_t count, const char* state) {
    if (count > 0) text += fmt::format("{} {} {}", text.empty() ? ":" : ",", HumanCount(count), state);
  };
  add(tasks.queued(), "queued");
  add(tasks.leased(), "leased");
  add(tasks.succeeded(), "succeeded");
  add(tasks.failed(), "failed");
  add(tasks.cancelled(), "cancelled");
  add(tasks.buried(), "buried");
  return HumanCount(NumTasks(tasks)) + text;
}

absl::Status EndStatus(const v1::Round& round) {
  if (round.state() == v1::SUCCEEDED) return absl::OkStatus();
  const char* how = round.state() == v1::CANCELLED ? "was cancelled" : "failed";
  return WithHint(
      absl::AbortedError(
          fmt::format("round {} {}{}{}", round.id(), how, round.error().empty() ? "" : ": ", round.error())),
      fmt::format("'sheaf round explain {0}' says why; 'sheaf task list --round {0}' shows its tasks", round.id()));
}

std::string PhasesText(const v1::RoundPhases& phases) {
  const double total = TotalSeconds(phases);
  Table table({{"PHASE"}, {"TIME", Align::kRight}, {"SHARE", Align::kRight}, {"BAR"}});
  for (const PhaseRow& row : kPhases) {
    const double share = ShareOf(phases, row, total);
    std::string bar;
    for (int i = 0; i < std::lround(share * kPhaseBarWidth); ++i) bar += "█";
    table.AddRow({row.name, HumanDuration(FromProto((phases.*row.get)())), fmt::format("{:.0f} %", share * 100), bar});
  }
  return table.Render({.headers = false, .indent = 2});
}

std::string CriticalPathText(const v1::Round& round) {
  std::map<std::string, absl::Duration> sums;
  absl::Duration total;
  for (const v1::PhaseInterval& interval : round.critical_path()) {
    const absl::Duration took = FromProto(interval.end_time()) - FromProto(interval.begin_time());
    sums[WordsOf(interval)] += took;
    total += took;
  }
  std::vector<std::pair<std::string, absl::Duration>> parts(sums.begin(), sums.end());
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (size_t i = 0; i < std::min(parts.size(), kPathWordsMax); ++i) {
    const double share = absl::FDivDuration(parts[i].second, total);
    if (i > 0 && !(share >= kPathShareMin)) break;
    text += fmt::format("{}{:.0f} % {}", i > 0 ? ", " : "", share * 100, parts[i].first);
  }
  return fmt::format("The critical path: {}.", text);
}

std::string PhaseShares(const v1::RoundPhases& phases) {
  const double total = TotalSeconds(phases);
  std::string shares;
  for (const PhaseRow& row : kPhases) {
    shares += fmt::format("{}{:.0f}", shares.empty() ? "" : "/", ShareOf(phases, row, total) * 100);
  }
  return shares;
}

}  // namespace sheaf
