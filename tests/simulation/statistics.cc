#include "tests/simulation/statistics.h"

#include <fmt/format.h>

#include <algorithm>

#include "storage/transitions.h"

namespace sheaf::simulation {
namespace {

std::string Join(const std::map<std::string, int64_t>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  return text;
}

template <typename Table, typename Seen>
std::string Coverage(std::string_view what, const Table& table, const Seen& seen) {
  std::string missing;
  int64_t covered = 0;
  for (const auto& move : table) {
    if (seen.contains({move.from, move.to})) {
      ++covered;
    } else {
      missing += fmt::format(" {}->{}", Name(move.from), Name(move.to));
    }
  }
  return fmt::format("{:<14} {} of {} rows{}\n", what, covered, table.size(),
                     missing.empty() ? "" : ", not:" + missing);
}

}  // namespace

std::string Statistics::ToText(double seconds, int64_t violations) const {
  double elapsed = std::max(seconds, 1e-9);
  std::string text = fmt::format("seeds          {} in {:.1f} s: {:.0f} seeds/s\n", seeds, seconds,
                                 static_cast<double>(seeds) / elapsed);
  text += fmt::format("events         {}: {:.0f} events/s\n", events, static_cast<double>(events) / elapsed);
  text += fmt::format("calls          {} in {} batches, {} store operations\n", calls, batches, store_operations);
  text += fmt::format("rounds         {}\n", Join(rounds));
  text += fmt::format("contributions  {} accepted; {} aggregates checked\n", contributions, aggregates_checked);
  text += fmt::format("verdicts       {}\n", Join(verdicts));
  text += fmt::format("faults         {}\n", Join(faults));
  text += Coverage("round moves", RoundMoves(), round_moves);
  text += Coverage("task moves", TaskMoves(), task_moves);
  text += fmt::format("violations     {}\n", violations);
  return text;
}

}  // namespace sheaf::simulation
