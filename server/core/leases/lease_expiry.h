// LeaseExpiry: takes tasks back from workers that made no progress until their lease ran out, or whose attempt took
// longer than it may.
//
//   expiry.Sweep(now, read_until);       // In each batch, behind its events.
//
// A worker whose call waits in the queue, or whose result is being received, came in time: a lease runs out only if it
// had by `read_until`, up to which all calls have been read (see Core::Tick), and is spared while a result of it is
// being received. Runs in the core's thread, inside a batch.
#pragma once

#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/leases/attempt_end.h"
#include "server/core/leases/due_time.h"
#include "server/core/leases/leases_in_reception.h"
#include "server/core/rounds/live_rounds.h"

namespace sheaf {

class LeaseExpiry {
 public:
  // All outlive this.
  LeaseExpiry(CoreContext& context, LiveRounds& rounds, AttemptEnd& attempts, LeasesInReception& in_reception,
              DueTime& due)
      : context_(context), rounds_(rounds), attempts_(attempts), in_reception_(in_reception), due_(due) {}

  // Takes back the leases that ended up to `read_until`, some of them if they are many, and notes for which rounds a
  // delayed task has become available.
  void Sweep(absl::Time now, absl::Time read_until);
  absl::Time NextSweep() const { return due_.time(); }

 private:
  CoreContext& context_;
  LiveRounds& rounds_;
  AttemptEnd& attempts_;
  LeasesInReception& in_reception_;
  DueTime& due_;
};

}  // namespace sheaf
