#include "cli/terminal/round_text.h"

#include <fmt/format.h>

#include <cmath>

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

std::string PhaseShares(const v1::RoundPhases& phases) {
  const double total = TotalSeconds(phases);
  std::string shares;
  for (const PhaseRow& row : kPhases) {
    shares += fmt::format("{}{:.0f}", shares.empty() ? "" : "/", ShareOf(phases, row, total) * 100);
  }
  return shares;
}

}  // namespace sheaf
