#include "workloads/client_sampling.h"

#include <algorithm>
#include <utility>

namespace sheaf {

SeededRandom RoundRandom(uint64_t seed, int number, RoundStream stream) {
  SeededRandom random(seed);
  return SeededRandom(random.Bits() + static_cast<uint64_t>(number) * 4 + static_cast<uint64_t>(stream));
}

std::vector<int> SampleClients(std::vector<int> clients, int count, Random& random) {
  const size_t num_sampled = std::min<size_t>(clients.size(), count);
  for (size_t i = 0; i < num_sampled; ++i) std::swap(clients[i], clients[i + random.Below(clients.size() - i)]);
  clients.resize(num_sampled);
  return clients;
}

}  // namespace sheaf
