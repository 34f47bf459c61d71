#include "cli/terminal/state_text.h"

#include <fmt/format.h>

namespace sheaf {
namespace {

template <typename State>
struct StateRow {
  State state;
  const char* name;
  Color color;
};

constexpr StateRow<v1::RoundState> kRoundStates[] = {
    {v1::ANNOUNCED, "ANNOUNCED", Color::kNone}, {v1::COLLECTING, "COLLECTING", Color::kYellow},
    {v1::SEALING, "SEALING", Color::kYellow},   {v1::SUCCEEDED, "SUCCEEDED", Color::kGreen},
    {v1::FAILED, "FAILED", Color::kRed},        {v1::CANCELLED, "CANCELLED", Color::kDim},
};

constexpr StateRow<v1::TaskState> kTaskStates[] = {
    {v1::QUEUED, "QUEUED", Color::kNone},
    {v1::LEASED, "LEASED", Color::kYellow},
    {v1::TASK_SUCCEEDED, "SUCCEEDED", Color::kGreen},
    {v1::TASK_FAILED, "FAILED", Color::kRed},
    {v1::TASK_CANCELLED, "CANCELLED", Color::kDim},
    {v1::BURIED, "BURIED", Color::kRed},
};

constexpr StateRow<v1::AttemptOutcome> kOutcomes[] = {
    {v1::ATTEMPT_OUTCOME_UNSPECIFIED, "RUNNING", Color::kYellow},
    {v1::ATTEMPT_SUCCEEDED, "SUCCEEDED", Color::kGreen},
    {v1::ATTEMPT_FAILED, "FAILED", Color::kRed},
    {v1::ATTEMPT_LOST, "LOST", Color::kRed},
    {v1::ATTEMPT_RELEASED, "RELEASED", Color::kNone},
    {v1::ATTEMPT_CANCELLED, "CANCELLED", Color::kDim},
};

// A newer server may know states that we do not: they show as their number.
template <typename Rows, typename State>
Cell CellOf(const Rows& rows, State state) {
  for (const auto& row : rows) {
    if (row.state == state) return {row.name, row.color};
  }
  return {fmt::format("{}", static_cast<int>(state))};
}

template <typename Rows>
std::vector<std::string> NamesOf(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

}  // namespace

Cell StateCell(v1::RoundState state) { return CellOf(kRoundStates, state); }
Cell StateCell(v1::TaskState state) { return CellOf(kTaskStates, state); }
Cell OutcomeCell(v1::AttemptOutcome outcome) { return CellOf(kOutcomes, outcome); }

std::vector<std::string> RoundStateNames() { return NamesOf(kRoundStates); }
std::vector<std::string> TaskStateNames() { return NamesOf(kTaskStates); }

v1::RoundState ParseRoundState(const std::string& name) {
  for (const auto& row : kRoundStates) {
    if (row.name == name) return row.state;
  }
  return v1::ROUND_STATE_UNSPECIFIED;
}

v1::TaskState ParseTaskState(const std::string& name) {
  for (const auto& row : kTaskStates) {
    if (row.name == name) return row.state;
  }
  return v1::TASK_STATE_UNSPECIFIED;
}

}  // namespace sheaf
