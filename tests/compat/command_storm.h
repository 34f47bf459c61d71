// A command that runs while the server and the workers of its federation are killed, one after the other.
//
//   CommandStorm storm(federation, {"w1", "w2"});
//   CommandRun run = storm.Sheaf({"round", "wait", id});
//   CHECK(storm.num_server_kills() > 0);
//
// Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "tests/e2e/processes.h"

namespace sheaf {

class CommandStorm {
 public:
  // `workers` are started. `federation` outlives this.
  CommandStorm(Federation& federation, std::vector<std::string> workers);

  // Federation::Sheaf, with kills for the first six seconds. Fails the test if it takes longer than a minute.
  CommandRun Sheaf(const std::vector<std::string>& arguments);

  int num_server_kills() const { return num_server_kills_; }
  int num_worker_kills() const { return num_worker_kills_; }

 private:
  void Kill();

  Federation& federation_;
  const std::vector<std::string> workers_;
  int num_kills_ = 0;
  int num_server_kills_ = 0;
  int num_worker_kills_ = 0;
};

}  // namespace sheaf
