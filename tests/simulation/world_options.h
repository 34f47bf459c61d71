// WorldOptions: what, together with a seed, makes a world.
#pragma once

#include <cstdint>

#include "tests/simulation/sim_storage.h"

namespace sheaf::simulation {

// kSafety: faults go on to the end, and nothing untrue may be seen. kLiveness: faults stop at an instant, and from then
// on everything must come to its end in time.
enum class Mode { kSafety, kLiveness };

struct WorldOptions {
  uint64_t seed = 1;
  StoreKind store = StoreKind::kMemory;
  Mode mode = Mode::kLiveness;
  // For people: see Journal.
  bool keep_journal = false;
  // The server crashes at this passage between store operations, and at no other; 0: as the seed has it.
  int64_t crash_at = 0;
  // More than one share a database, which is SQLite here.
  int num_servers = 1;
};

}  // namespace sheaf::simulation
