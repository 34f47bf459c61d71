// StateOrigin: whose bytes a state is restored from, and what may be claimed there.
#pragma once

#include <cstdint>

namespace sheaf {

// All are untrusted; a worker's is held to tighter bounds, so that no number of them can overflow a sum, and what they
// add up to can be restored from the round's checkpoint; and to finite values, if the output takes no others.
enum class StateSource { kCheckpoint, kPartialAggregate, kFinitePartialAggregate };

struct StateOrigin {
  StateSource source;
  // Clients that the state combines.
  int64_t num_clients;
};

// Clients that one partial aggregate may claim to combine. 2^22 of them, which are more than a round's tasks, add up in
// 64 bits.
inline constexpr int64_t kClientsMax = int64_t{1} << 40;
inline constexpr int64_t kClientsOfRoundMax = kClientsMax << 22;

}  // namespace sheaf
