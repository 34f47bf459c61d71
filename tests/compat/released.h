// The programs of release 0.1, which run.sh has built, to be run with those of this build.
//
//   const Pairing pairing = GENERATE(from_range(BothWays()));
//   Federation federation({.programs = pairing.programs});
//
// A program that run.sh did not start fails its tests.
#pragma once

#include <string>
#include <vector>

#include "tests/e2e/processes.h"

namespace sheaf {

// All three of 0.1.
Programs Released();

// Who is of which version.
struct Pairing {
  std::string who;
  Programs programs;

  // The server is the one of 0.1.
  bool has_released_server() const { return programs.sheafd != Programs().sheafd; }
};

// A server of 0.1 with workers and a command line of this build, and the reverse.
std::vector<Pairing> BothWays();

}  // namespace sheaf
