#include "server/core/lifecycle/round_openings.h"

#include <fmt/format.h>

#include <utility>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "server/core/rounds/round_states.h"
#include "server/stored/round_spec.h"

namespace sheaf {

void RoundOpenings::Open(const v1::OpenRoundRequest& request, absl::Time now, Reply<RoundRecord> reply) {
  if (request.broadcast().empty()) {
    const auto open = [this, &request, reply = std::move(reply)](const absl::Status& learnt, absl::Time at) {
      learnt.ok() ? reply(OpenWith(RoundId(request.round()), request.broadcast_digest(), at)) : reply(learnt);
    };
    return broadcasts_.Learn(request.broadcast_digest(), open, now);
  }
  inline_broadcasts_.Store(
      {.bytes = request.broadcast(),
       .named = request.broadcast_digest(),
       .field = "broadcast_digest",
       .request_id = request.request_id()},
      [this, &request, reply = std::move(reply)](absl::StatusOr<std::string> digest, absl::Time at) {
        if (!digest.ok()) return reply(digest.status());
        reply(OpenWith(RoundId(request.round()), *digest, at));
      });
}

absl::StatusOr<RoundRecord> RoundOpenings::OpenWith(const RoundId& id, const std::string& digest, absl::Time now) {
  if (!digest.empty() && !IsSha256Hex(digest)) {
    return absl::InvalidArgumentError("broadcast_digest is not a SHA-256 in lower-case hex");
  }
  ASSIGN_OR_RETURN(const RoundRecord record, context_.store.GetRound(id));
  LiveRound* round = rounds_.Find(id);
  if (round != nullptr && WaitsForBroadcast(round->state)) {
    RETURN_IF_ERROR(broadcasts_.CheckStored(digest));
    RETURN_IF_ERROR(changes_.Open(*round, digest, now));
    closing_.OnOpened(*round, now);
    return context_.store.GetRound(id);
  }
  ASSIGN_OR_RETURN(const v1::RoundSpec spec, DecodeSpec(record));
  if (!spec.announced()) {
    return absl::FailedPreconditionError(
        fmt::format("round {} was not announced: it was open from its creation on", id));
  }
  // Only a round that was opened goes on to these.
  const bool was_opened = record.state == RoundState::kCollecting || record.state == RoundState::kSealing ||
                          record.state == RoundState::kSucceeded;
  if (was_opened && record.broadcast_digest == digest) return record;
  if (was_opened) {
    return absl::FailedPreconditionError(
        fmt::format("round {} was opened with {}, and cannot be opened with another broadcast", id,
                    record.broadcast_digest.empty() ? "no broadcast" : "the broadcast " + record.broadcast_digest));
  }
  return absl::FailedPreconditionError(fmt::format("round {} is {}{}{}: it cannot be opened any more", id,
                                                   Name(record.state), record.error.empty() ? "" : ", ", record.error));
}

}  // namespace sheaf
