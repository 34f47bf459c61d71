#include "tests/compat/released.h"

#include <cstdlib>

namespace sheaf {

Programs Released() {
  const char* programs = std::getenv("SHEAF_COMPAT_PROGRAMS");
  INFO("tests/compat/run.sh builds the programs of 0.1 and names them in SHEAF_COMPAT_PROGRAMS");
  REQUIRE(programs != nullptr);
  const std::string directory = programs;
  return {.sheafd = directory + "/sheafd", .worker = directory + "/sheaf-worker", .sheaf = directory + "/sheaf"};
}

std::vector<Pairing> BothWays() {
  const Programs released = Released();
  return {{.who = "a server of 0.1, everything else of today", .programs = {.sheafd = released.sheafd}},
          {.who = "a server of today, everything else of 0.1",
           .programs = {.worker = released.worker, .sheaf = released.sheaf}}};
}

}  // namespace sheaf
