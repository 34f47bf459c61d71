// Statistics: what happened in the runs so far, over all seeds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "storage/records.h"
#include "tests/simulation/store_operation.h"

namespace sheaf::simulation {

struct Statistics {
  int64_t seeds = 0;
  // Of which faults went on to the end in so many.
  int64_t safety_seeds = 0;
  int64_t sqlite_seeds = 0;
  int64_t token_seeds = 0;
  int64_t events = 0;
  int64_t calls = 0;
  int64_t batches = 0;
  int64_t contributions = 0;
  int64_t aggregates_checked = 0;
  int64_t rounds_deleted = 0;
  // The task that took longest to end after the faults had stopped, as a part of what it may take.
  double slowest_task = 0;
  // By the state they ended in.
  std::map<std::string, int64_t> rounds;
  std::map<std::string, int64_t> faults;
  // What became of tasks that were leased a second time.
  std::map<std::string, int64_t> stragglers;
  // What only several servers on one database do.
  std::map<std::string, int64_t> shared;
  int64_t many_servers_seeds = 0;
  // What became of announced rounds.
  std::map<std::string, int64_t> announced;
  // What became of tasks that other rounds took over.
  std::map<std::string, int64_t> carried;
  std::map<std::string, int64_t> verdicts;
  std::map<std::pair<RoundState, RoundState>, int64_t> round_moves;
  std::map<std::pair<TaskState, TaskState>, int64_t> task_moves;

  // Of one operation of the stores.
  struct Passages {
    int64_t count = 0;
    int64_t crashes_before = 0;
    int64_t crashes_after = 0;
  };
  Passages& OfOperation(StoreOperation operation) { return operations[static_cast<size_t>(operation)]; }
  std::vector<Passages> operations = std::vector<Passages>(StoreOperations().size());

  // Several lines for people.
  std::string ToText(double seconds, int64_t violations) const;
  // Tables of moves and of crash points, for people.
  std::string CoverageText() const;
  // What should have happened in the runs and did not, one sentence each: a legal move that was never taken, an
  // operation that was never called, or before or after which the server never crashed, something that announced rounds
  // may go through.
  std::vector<std::string> Missing() const;
  // The same of what only several servers do.
  std::vector<std::string> MissingOfMany() const;
};

}  // namespace sheaf::simulation
