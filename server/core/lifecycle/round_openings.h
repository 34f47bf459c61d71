// RoundOpenings: RoundService.OpenRound, by which an announced round gets its broadcast, and begins.
//
//   openings.Open(request, now, reply);
//
// A broadcast that comes along is stored first, beside the core. Runs in the core's thread, inside a batch.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/batches/reply.h"
#include "server/core/broadcasts/broadcasts.h"
#include "server/core/broadcasts/inline_broadcasts.h"
#include "server/core/lifecycle/round_changes.h"
#include "server/core/lifecycle/round_closing.h"
#include "server/core/rounds/live_rounds.h"
#include "sheaf/v1/round_service.pb.h"

namespace sheaf {

class RoundOpenings {
 public:
  // All outlive this.
  RoundOpenings(CoreContext& context, LiveRounds& rounds, Broadcasts& broadcasts, InlineBroadcasts& inline_broadcasts,
                RoundChanges& changes, RoundClosing& closing)
      : context_(context),
        rounds_(rounds),
        broadcasts_(broadcasts),
        inline_broadcasts_(inline_broadcasts),
        changes_(changes),
        closing_(closing) {}

  // NOT_FOUND (the round, the broadcast), FAILED_PRECONDITION, INVALID_ARGUMENT; see RoundService.OpenRound. The
  // request must live until the reply.
  void Open(const v1::OpenRoundRequest& request, absl::Time now, Reply<RoundRecord> reply);

 private:
  absl::StatusOr<RoundRecord> OpenWith(const RoundId& id, const std::string& digest, absl::Time now);

  CoreContext& context_;
  LiveRounds& rounds_;
  Broadcasts& broadcasts_;
  InlineBroadcasts& inline_broadcasts_;
  RoundChanges& changes_;
  RoundClosing& closing_;
};

}  // namespace sheaf
