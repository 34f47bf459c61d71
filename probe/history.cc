#include "probe/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace sheaf {
namespace {

constexpr size_t kViolationsMax = 20;

void Note(std::string violation, HistoryReport& report) {
  if (report.violations.size() < kViolationsMax) report.violations.push_back(std::move(violation));
}

}  // namespace

void HistoryReport::Add(const HistoryReport& other) {
  attempted += other.attempted;
  acknowledged += other.acknowledged;
  counted += other.counted;
  duplicated += other.duplicated;
  lost += other.lost;
  foreign += other.foreign;
  for (const std::string& violation : other.violations) Note(violation, *this);
}

void History::Attempted(std::string_view task, std::string_view lease_token) {
  MutexLock lock(mutex_);
  Find(task).attempted.emplace(lease_token);
}

void History::Acknowledged(std::string_view task, std::string_view lease_token) {
  MutexLock lock(mutex_);
  Find(task).acknowledged.emplace(lease_token);
}

History::Task& History::Find(std::string_view task) {
  const size_t slash = task.find('/');
  const std::string_view round = task.substr(0, slash);
  // What is not a task's name is kept as one that no aggregate has.
  int64_t index = -1;
  if (slash != std::string_view::npos) std::from_chars(task.data() + slash + 1, task.data() + task.size(), index);
  const auto found = rounds_.find(round);
  return (found == rounds_.end() ? rounds_[std::string(round)] : found->second)[index];
}

History::Round History::RoundOf(std::string_view round) const {
  MutexLock lock(mutex_);
  const auto found = rounds_.find(round);
  return found == rounds_.end() ? Round() : found->second;
}

HistoryReport History::Check(std::string_view round, const std::vector<int64_t>& counts) const {
  HistoryReport report = CheckWithoutAggregate(round);
  Round tasks = RoundOf(round);
  const int64_t size = static_cast<int64_t>(counts.size());
  for (int64_t i = 0; i < size; ++i) tasks.try_emplace(i);
  for (const auto& [index, task] : tasks) {
    const int64_t count = index >= 0 && index < size ? counts[index] : 0;
    report.counted += std::max<int64_t>(count, 0);
    if (count > 1) {
      report.duplicated += count - 1;
      Note(fmt::format("task {}/{} is counted {} times", round, index, count), report);
    }
    if (count < 1 && !task.acknowledged.empty()) {
      ++report.lost;
      Note(fmt::format("task {}/{} was acknowledged and is not counted", round, index), report);
    }
    if (count != 0 && task.attempted.empty()) {
      ++report.foreign;
      Note(fmt::format("task {}/{} is counted and nobody handed it in", round, index), report);
    }
  }
  return report;
}

HistoryReport History::CheckWithoutAggregate(std::string_view round) const {
  HistoryReport report;
  for (const auto& [index, task] : RoundOf(round)) {
    report.attempted += task.attempted.empty() ? 0 : 1;
    report.acknowledged += task.acknowledged.empty() ? 0 : 1;
    if (task.acknowledged.size() > 1) {
      report.duplicated += static_cast<int64_t>(task.acknowledged.size()) - 1;
      Note(fmt::format("task {}/{} was acknowledged under {} leases", round, index, task.acknowledged.size()), report);
    }
    for (const std::string& token : task.acknowledged) {
      if (task.attempted.contains(token)) continue;
      ++report.foreign;
      Note(fmt::format("task {}/{} was acknowledged under a lease of which no result was sent", round, index), report);
    }
  }
  return report;
}

}  // namespace sheaf
