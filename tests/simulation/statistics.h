// Statistics: what happened in the runs so far, over all seeds.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "storage/records.h"

namespace sheaf::simulation {

struct Statistics {
  int64_t seeds = 0;
  int64_t events = 0;
  int64_t calls = 0;
  int64_t batches = 0;
  int64_t store_operations = 0;
  int64_t contributions = 0;
  int64_t aggregates_checked = 0;
  // By the state they ended in.
  std::map<std::string, int64_t> rounds;
  std::map<std::string, int64_t> faults;
  std::map<std::string, int64_t> verdicts;
  std::set<std::pair<RoundState, RoundState>> round_moves;
  std::set<std::pair<TaskState, TaskState>> task_moves;

  // Several lines for people.
  std::string ToText(double seconds, int64_t violations) const;
};

}  // namespace sheaf::simulation
