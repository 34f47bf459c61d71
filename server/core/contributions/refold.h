// Refold: a live round as the stores have it: its accumulator from the newest checkpoint, and every contribution that
// was recorded since folded again from the spool, in the order of their records. The sum has the bits that it would
// have had without the restart.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<LiveRound> round, Refold(context, record, std::move(requirements), now));
//   rounds.Add(std::move(round));
//
// Of a round that spools nothing (EPHEMERAL) those contributions are gone: the store forgets them, their tasks are
// queued again, and a round that was SEALING collects again. Outside a batch, but for a round without contributions.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/rounds/live_round.h"

namespace sheaf {

// DATA_LOSS, naming what is missing or damaged, if the stores do not have what the record promises; errors of the
// stores.
absl::StatusOr<std::unique_ptr<LiveRound>> Refold(CoreContext& context, const RoundRecord& record,
                                                  RequirementIndex requirements, absl::Time now);

}  // namespace sheaf
