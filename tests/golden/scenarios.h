// Scenarios: what is recorded of the worker's loop, a row each.
//
//   for (const Scenario& scenario : Scenarios()) Save(scenario.play(scenario));
#pragma once

#include <span>

#include "tests/golden/transcript.h"

namespace sheaf::golden {

struct Scenario {
  const char* name;
  const char* about;
  // Plays it with the code of this build; the same bytes each time.
  Transcript (*play)(const Scenario& scenario);
};

std::span<const Scenario> Scenarios();
// Those of what no released version did yet: recorded of this build, into tests/golden/next.
std::span<const Scenario> NextScenarios();

}  // namespace sheaf::golden
