// RoundPlan: a round that a program will ask for, drawn from the seed. Every task is one_hot, so that the aggregate
// shows which contributions were counted, and how often.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/random.h"
#include "server/core/limits/limits.h"
#include "sheaf/v1/round.pb.h"
#include "tests/simulation/models.h"

namespace sheaf::simulation {

struct RoundPlan {
  std::string request_id;
  v1::RoundSpec spec;
  // To be uploaded first, with what it is a patch of; often none. Of a round that is announced: before it is opened.
  const SimBroadcast* broadcast = nullptr;
  absl::Duration create_after;
  // Counted from its creation.
  std::optional<absl::Duration> cancel_after;

  // --- Of a round that is announced ---
  // Counted from its creation; none: it is never opened.
  std::optional<absl::Duration> open_after;
  // With the broadcast in the same call, unless it is too large for that.
  bool opens_inline = false;
  enum class OpensAgain { kNever, kWithTheSame, kWithAnother };
  OpensAgain opens_again = OpensAgain::kNever;

  // --- Of a round that continues another ---
  // The request_id of the program that creates that one; empty: none.
  std::string continues;

  static RoundPlan Draw(int number, Random& random);
  // One that others can continue, because it has its goal while tasks still run; and one that can continue `before`.
  static RoundPlan DrawContinued(int number, Random& random);
  static RoundPlan DrawContinuing(int number, const RoundPlan& before, Random& random);
  // The round is announced first, and gets its broadcast later, if at all.
  void Announce(Random& random);
};

// Small, so that checkpoints, uploads and pages occur in small worlds.
Limits DrawLimits(Random& random);

}  // namespace sheaf::simulation
