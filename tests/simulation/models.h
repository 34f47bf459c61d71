// The broadcasts of a simulation: a few models, each as a whole file, and as patches upon it.
//
//   const SimBroadcast& broadcast = BroadcastOf({.population = "red", .number = 1, .num_patches = 2});
//   const bool is_whole = FindBroadcast(broadcast.digest)->bases.empty();
#pragma once

#include <string>
#include <vector>

namespace sheaf::simulation {

// Populations share no model, and three numbers and numbers of patches from 0 to 2 are all there are.
struct ModelName {
  std::string population;
  int number = 0;
  int num_patches = 0;
};

struct SimBroadcast {
  // What is uploaded, and its digest.
  std::string file;
  std::string digest;
  // Digests of what it is a patch of, the whole one first; empty, if it is whole.
  std::vector<std::string> bases;
  // What it stands for.
  std::string whole;
};

const SimBroadcast& BroadcastOf(const ModelName& model);
// Null if there is no such one.
const SimBroadcast* FindBroadcast(const std::string& digest);

}  // namespace sheaf::simulation
