// RelayedSpec: the round by which a relay has a task of the server above done by the workers of the server below.
//
//   ASSIGN_OR_RETURN(const v1::RoundSpec spec, RelayedSpec(lease, {.population = "wards", .min_clients = 10}));
//
// A task for relays stands for several: its payload is a serialised v1::ListedTasks. Or the relay makes so many open
// slots of each task. What the round combines is the task's contribution, so that it releases a partial aggregate.
// Functions of values.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "sheaf/v1/round.pb.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

struct RelayOptions {
  // Of the server below. Empty means "default".
  std::string population;
  // Open slots that each task becomes; 0: the task lists what it stands for.
  int64_t slots = 0;
  // Nothing that combines fewer clients leaves the server below.
  int64_t min_clients = 1;
  // Of the round's tasks, how many suffice when most of the attempt's time is over; 0 to 1.
  double min_share = 1;
};

// The same for the same lease, at any time. INVALID_ARGUMENT if the task stands for no others.
absl::StatusOr<v1::RoundSpec> RelayedSpec(const v1::Lease& lease, const RelayOptions& options);

// The idempotency key under which that round is created: a relay that is restarted finds it again.
std::string RelayedRequestId(const v1::Lease& lease);

}  // namespace sheaf
