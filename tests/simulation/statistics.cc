#include "tests/simulation/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "storage/transitions.h"

namespace sheaf::simulation {
namespace {

std::string Join(const std::map<std::string, int64_t>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  return text;
}

template <typename Move, typename Counts>
int64_t CountOf(const Move& move, const Counts& counts) {
  const auto found = counts.find({move.from, move.to});
  return found == counts.end() ? 0 : found->second;
}

template <typename Table, typename Counts>
std::string MovesText(std::string_view what, const Table& table, const Counts& counts) {
  std::string text;
  for (const auto& move : table) {
    text += fmt::format("| {} | {} | {} | {} | {} |\n", what, Name(move.from), Name(move.to), CountOf(move, counts),
                        move.why);
  }
  return text;
}

template <typename Table, typename Counts>
void AddMissingMoves(std::string_view what, const Table& table, const Counts& counts,
                     std::vector<std::string>& missing) {
  for (const auto& move : table) {
    if (CountOf(move, counts) > 0) continue;
    missing.push_back(fmt::format("no {} went from {} to {}", what, Name(move.from), Name(move.to)));
  }
}

template <typename Table, typename Counts>
std::string Coverage(std::string_view what, const Table& table, const Counts& counts) {
  const auto covered = std::count_if(table.begin(), table.end(), [&](const auto& m) { return CountOf(m, counts) > 0; });
  return fmt::format("{:<14} {} of {} rows\n", what, covered, table.size());
}

}  // namespace

std::string Statistics::ToText(double seconds, int64_t violations) const {
  double elapsed = std::max(seconds, 1e-9);
  std::string text = fmt::format(
      "seeds          {} in {:.1f} s: {:.0f} seeds/s; {} with faults to the end, {} on "
      "SQLite, {} with tokens\n",
      seeds, seconds, static_cast<double>(seeds) / elapsed, safety_seeds, sqlite_seeds, token_seeds);
  int64_t store_operations = 0;
  for (const Passages& passages : operations) store_operations += passages.count;
  text += fmt::format("events         {}: {:.0f} events/s\n", events, static_cast<double>(events) / elapsed);
  text += fmt::format("calls          {} in {} batches, {} store operations\n", calls, batches, store_operations);
  text += fmt::format("rounds         {}; {} deleted\n", Join(rounds), rounds_deleted);
  text += fmt::format("contributions  {} accepted; {} aggregates checked\n", contributions, aggregates_checked);
  text += fmt::format("verdicts       {}\n", Join(verdicts));
  text += fmt::format("faults         {}\n", Join(faults));
  text += fmt::format("announced      {}\n", Join(announced));
  text += fmt::format("stragglers     {}\n", Join(stragglers));
  text += fmt::format("carried over   {}\n", Join(carried));
  if (many_servers_seeds > 0) text += fmt::format("many servers   {} seeds: {}\n", many_servers_seeds, Join(shared));
  text += fmt::format("liveness       the slowest task took {:.0f} % of what it may\n", 100 * slowest_task);
  text += Coverage("round moves", RoundMoves(), round_moves);
  text += Coverage("task moves", TaskMoves(), task_moves);
  text += fmt::format("violations     {}\n", violations);
  return text;
}

std::string Statistics::CoverageText() const {
  std::string text = "| what | from | to | times | why |\n|---|---|---|---|---|\n";
  text += MovesText("round", RoundMoves(), round_moves);
  text += MovesText("task", TaskMoves(), task_moves);
  text += "\n| operation | times | crashes before | crashes after |\n|---|---|---|---|\n";
  for (const StoreOperationRow& row : StoreOperations()) {
    const Passages& passages = operations[static_cast<size_t>(row.operation)];
    text += fmt::format("| {} | {} | {} | {} |\n", row.name, passages.count, passages.crashes_before,
                        passages.crashes_after);
  }
  return text;
}

namespace {

void AddMissingCounts(std::span<const std::string_view> wanted, const std::map<std::string, int64_t>& counts,
                      std::vector<std::string>& missing) {
  for (const std::string_view name : wanted) {
    const auto found = counts.find(std::string(name));
    if (found == counts.end() || found->second == 0) missing.push_back(fmt::format("there were no {}", name));
  }
}

// Of announced rounds.
constexpr std::string_view kAnnounced[] = {"rounds announced",
                                           "tasks prepared",
                                           "rounds opened",
                                           "leases told in a parked call",
                                           "leases told in a later call",
                                           "leases told again",
                                           "leases sent again as open",
                                           "leases lost while announced",
                                           "tasks prepared again",
                                           "tasks requeued while announced",
                                           "openings undone",
                                           "announced rounds recovered",
                                           "rounds that ran out",
                                           "rounds cancelled before opening",
                                           "rounds opened twice",
                                           "openings refused with another broadcast",
                                           "openings refused after the end",
                                           "openings refused after a cancellation",
                                           "runs of what was prepared",
                                           "runs with a patched broadcast"};

// Of rounds that continue others.
constexpr std::string_view kCarried[] = {"rounds that continue another",
                                         "creations refused because it was too late",
                                         "tasks carried over",
                                         "tasks carried through several rounds",
                                         "second leases carried over",
                                         "contributions with a discount",
                                         "tasks left behind",
                                         "leases renewed after it",
                                         "contributions",
                                         "contributions to an announced round",
                                         "rounds sealed as they opened",
                                         "attempts that failed",
                                         "attempts that were lost",
                                         "contributions forgotten",
                                         "results repeated",
                                         "results that were not needed",
                                         "told of the opening of a round before",
                                         "carry-overs undone",
                                         "tasks recovered"};

}  // namespace

std::vector<std::string> Statistics::MissingOfMany() const {
  constexpr std::string_view kWanted[] = {"takeovers",
                                          "commits fenced",
                                          "databases given back",
                                          "unknown commits that had happened",
                                          "unknown commits that had not",
                                          "unknown commits given up",
                                          "calls forwarded",
                                          "forwarded calls lost",
                                          "forwarded calls repeated",
                                          "pauses",
                                          "pauses beyond a takeover",
                                          "partitions from the database"};
  std::vector<std::string> missing;
  AddMissingCounts(kWanted, shared, missing);
  AddMissingCounts(kAnnounced, announced, missing);
  AddMissingCounts(kCarried, carried, missing);
  return missing;
}

std::vector<std::string> Statistics::Missing() const {
  std::vector<std::string> missing;
  AddMissingMoves("round", RoundMoves(), round_moves, missing);
  AddMissingMoves("task", TaskMoves(), task_moves, missing);
  AddMissingCounts(kAnnounced, announced, missing);
  AddMissingCounts(kCarried, carried, missing);
  for (const char* wanted :
       {"second attempts", "contributions of the first of two attempts", "contributions of the second of two attempts",
        "first attempts that ended while the second ran", "second attempts that ended while the first ran"}) {
    const auto found = stragglers.find(wanted);
    if (found == stragglers.end() || found->second == 0) missing.push_back(fmt::format("there were no {}", wanted));
  }
  for (const StoreOperationRow& row : StoreOperations()) {
    if (!row.unreached.empty()) continue;
    const Passages& passages = operations[static_cast<size_t>(row.operation)];
    if (passages.count == 0) missing.push_back(fmt::format("{} was never called", row.name));
    if (passages.crashes_before == 0) missing.push_back(fmt::format("the server never crashed before {}", row.name));
    if (passages.crashes_after == 0) missing.push_back(fmt::format("the server never crashed after {}", row.name));
  }
  return missing;
}

}  // namespace sheaf::simulation
