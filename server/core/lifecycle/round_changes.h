// RoundChanges: every change of a live round's state, in one place: in the store, in memory, and told to those who hold
// leases of it. A round that has ended is forgotten once that is durable.
//
//   changes.set_on_closed([](const RoundId& closed) { LogInfo("the leases of round {} are void", closed); });
//   RETURN_IF_ERROR(changes.Make(round, {.to = RoundState::kSealing, .now = now}));
//   changes.End(round, RoundState::kCancelled, "cancelled by request", now);
//
// Runs in the core's thread, inside a batch.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/broadcasts/broadcasts.h"
#include "server/core/rounds/live_rounds.h"

namespace sheaf {

class RoundChanges {
 public:
  // All outlive this.
  RoundChanges(CoreContext& context, LiveRounds& rounds, Broadcasts& broadcasts)
      : context_(context), rounds_(rounds), broadcasts_(broadcasts) {}

  // Called when a round stopped collecting or ended: its leases are cancelled.
  void set_on_closed(std::function<void(const RoundId&)> on_closed) { on_closed_ = std::move(on_closed); }
  // Called when a round was opened: who has its leases may run.
  void set_on_opened(std::function<void(const RoundId&)> on_opened) { on_opened_ = std::move(on_opened); }

  struct Change {
    RoundState to;
    absl::Time now;
    // Why it failed or was cancelled.
    std::string error = {};
    // Of one that succeeded: what it released (see round_release.h), and the blob's digest.
    std::string aggregate = {};
    std::string aggregate_digest = {};
  };
  // The move must be legal. Errors as TaskStore::MoveRound; then the round is where it was.
  absl::Status Make(LiveRound& round, Change change);
  // The broadcast of an announced round came (none, if `digest` is empty). Errors as TaskStore::MoveRound; then it has
  // not.
  absl::Status Open(LiveRound& round, const std::string& digest, absl::Time now);
  // To FAILED or CANCELLED, and says so in the log.
  void End(LiveRound& round, RoundState to, const std::string& error, absl::Time now);

 private:
  // After the end is durable.
  void Forget(const RoundId& id, absl::Time now);

  CoreContext& context_;
  LiveRounds& rounds_;
  Broadcasts& broadcasts_;
  std::function<void(const RoundId&)> on_closed_ = [](const RoundId&) {};
  std::function<void(const RoundId&)> on_opened_ = [](const RoundId&) {};
};

}  // namespace sheaf
