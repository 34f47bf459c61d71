// Weather: whether things go wrong at present. Shared by all that can.
#pragma once

#include "base/random.h"
#include "tests/simulation/agenda.h"
#include "tests/simulation/fault_plan.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/statistics.h"

namespace sheaf::simulation {

struct Weather {
  Agenda& agenda;
  Journal& journal;
  Statistics& statistics;
  Random& chance;
  FaultPlan plan;
  bool is_stormy = true;
  // Since when nothing goes wrong, if so.
  absl::Time calm_time = absl::InfiniteFuture();

  // True with this probability, and counted, while faults happen.
  bool Strikes(double probability, const char* fault) {
    if (!is_stormy || !chance.Chance(probability)) return false;
    ++statistics.faults[fault];
    return true;
  }
};

}  // namespace sheaf::simulation
