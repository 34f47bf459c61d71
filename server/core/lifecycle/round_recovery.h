// RoundRecovery: live rounds as the stores have them: after a restart, and after a batch that failed, of which nothing
// has happened although the core had gone on as if.
//
//   RETURN_IF_ERROR(recovery.Recover(now));          // Once, before anything else.
//   RETURN_IF_ERROR(recovery.OnRollback(now));
//
// Runs in the core's thread, outside a batch.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/broadcasts/broadcasts.h"
#include "server/core/contributions/spools.h"
#include "server/core/lifecycle/carry_over.h"
#include "server/core/lifecycle/round_closing.h"
#include "server/core/lifecycle/round_sealer.h"
#include "server/core/rounds/live_rounds.h"

namespace sheaf {

class RoundRecovery {
 public:
  // All outlive this.
  RoundRecovery(CoreContext& context, LiveRounds& rounds, Broadcasts& broadcasts, Spools& spools, CarryOver& carry_over,
                RoundSealer& sealer, RoundClosing& closing)
      : context_(context),
        rounds_(rounds),
        broadcasts_(broadcasts),
        spools_(spools),
        carry_over_(carry_over),
        sealer_(sealer),
        closing_(closing) {}

  // Rebuilds the live rounds. DATA_LOSS, naming it, if what is stored cannot be true; errors of the stores.
  absl::Status Recover(absl::Time now);
  // Drops what was assumed from the batch. An error if the store does not tell what is true: nothing may go on then.
  absl::Status OnRollback(absl::Time now);

 private:
  absl::Status Load(const RoundRecord& record, absl::Time now);
  // The clock may have been set back while the server was down: nothing that is planned lies further ahead than it
  // would from now.
  absl::Status LimitTimes(absl::Time now);
  // Has the store read what waits in rounds of many tasks: it would in the first Sync that leases of them, for which all
  // others would wait.
  absl::Status ReadLongQueues();
  // Deletes what a crash left of rounds that had ended.
  absl::Status DeleteEnded();
  absl::Status Reread(LiveRound& round, const RoundRecord& record, absl::Time now);

  CoreContext& context_;
  LiveRounds& rounds_;
  Broadcasts& broadcasts_;
  Spools& spools_;
  CarryOver& carry_over_;
  RoundSealer& sealer_;
  RoundClosing& closing_;
};

}  // namespace sheaf
