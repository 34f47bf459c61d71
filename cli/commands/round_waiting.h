// Waiting for a round, as `round watch`, `round wait` and `round create --wait` do.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/session.h"
#include "sheaf/v1/round.pb.h"

namespace sheaf {

enum class Progress { kShown, kSilent };

// The round in its final state. Gives up with DEADLINE_EXCEEDED after --timeout (never, without it), and outlives a
// restart of the server.
absl::StatusOr<v1::Round> AwaitRound(Session& session, const std::string& round, Progress progress);

// How it ended: one line, or the JSON of GetRoundResponse. ABORTED unless the round succeeded.
absl::Status ReportEnd(Session& session, const v1::Round& round);

}  // namespace sheaf
