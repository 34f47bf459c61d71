// Which clients take part in a round, and the chance of each round: drawn from a program's seed alone, so that the same
// seed plans the same rounds, however often they are planned.
//
//   SeededRandom random = RoundRandom(seed, number, RoundStream::kClients);
//   std::vector<int> clients = SampleClients(dataset.TrainingClients(), 50, random);
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"

namespace sheaf {

// Two independent streams of chance per round: who takes part, and what they draw while they train.
enum class RoundStream : uint64_t { kClients = 1, kTraining = 2 };

SeededRandom RoundRandom(uint64_t seed, int number, RoundStream stream);

// `count` of them without replacement, in the order they were drawn; all of them if there are fewer.
std::vector<int> SampleClients(std::vector<int> clients, int count, Random& random);

}  // namespace sheaf
