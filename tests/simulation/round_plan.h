// RoundPlan: a round that a program will ask for, drawn from the seed. Every task is one_hot, so that the aggregate
// shows which contributions were counted, and how often.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/random.h"
#include "server/core/limits/limits.h"
#include "sheaf/v1/round.pb.h"

namespace sheaf::simulation {

struct RoundPlan {
  std::string request_id;
  v1::RoundSpec spec;
  // To be uploaded first; often none.
  std::string broadcast;
  absl::Duration create_after;
  // Counted from its creation.
  std::optional<absl::Duration> cancel_after;

  static RoundPlan Draw(int number, Random& random);
};

// Small, so that checkpoints, uploads and pages occur in small worlds.
Limits DrawLimits(Random& random);

}  // namespace sheaf::simulation
