// Credentials: the tokens of a world where calls need them, one per role and population, so that each process may do
// just what it should.
#pragma once

#include <string>

#include "base/random.h"
#include "storage/task_store.h"

namespace sheaf::simulation {

// What comes with a call; all empty where no tokens are used.
struct Credentials {
  std::string red_worker;
  std::string blue_worker;
  std::string submitter;
  std::string operators;
  // May do all of that.
  std::string all;

  // Puts the tokens into an empty store.
  static Credentials Create(TaskStore& store, Random& random, absl::Time now);

  const std::string& OfWorker(const std::string& population) const {
    return population == "red" ? red_worker : blue_worker;
  }
};

}  // namespace sheaf::simulation
