// CallTimes: when a worker's call came, and when it is answered: a parked one much later. A lease that it gets or
// renews runs from the answer. What the worker is told of the rest counts from its arrival, because that is the last
// thing the worker knows the time of: it measures from when it sent the call.
//
//   ASSIGN_OR_RETURN(v1::LeaseUpdate at_once, renewal.Renew(held, worker, CallTimes::At(now)));
//   ASSIGN_OR_RETURN(v1::LeaseUpdate parked, renewal.Renew(held, worker, {.arrival = arrival_time, .now = now}));
#pragma once

#include "absl/time/time.h"

namespace sheaf {

struct CallTimes {
  absl::Time arrival;
  absl::Time now;

  // Of a call that is answered at once.
  static CallTimes At(absl::Time now) { return {.arrival = now, .now = now}; }
};

}  // namespace sheaf
