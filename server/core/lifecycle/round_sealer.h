// RoundSealer: the end of a round that succeeds. A round that has enough becomes SEALING; when all of its contributions
// are folded its aggregate is written, beside the core; and one more batch makes it SUCCEEDED.
//
//   sealer.Begin(round, now);        // It has enough.
//   sealer.Tick(now);                // Tries again where an aggregate could not be written.
//
// Each step is repeated after a crash, and gives the same bits. Runs in the core's thread, inside a batch.
#pragma once

#include <map>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/lifecycle/carry_over.h"
#include "server/core/lifecycle/release_sink.h"
#include "server/core/lifecycle/round_changes.h"
#include "server/core/rounds/critical_path.h"
#include "server/core/rounds/live_rounds.h"

namespace sheaf {

class RoundSealer {
 public:
  // By what a round releases.
  struct Sinks {
    ReleaseSink& values;
    ReleaseSink& partial_aggregate;
  };
  // All outlive this.
  RoundSealer(CoreContext& context, LiveRounds& rounds, CarryOver& carry_over, RoundChanges& changes, Sinks sinks)
      : context_(context), rounds_(rounds), carry_over_(carry_over), changes_(changes), sinks_(sinks) {}

  // From COLLECTING: no further contribution is taken. Tasks that still run go on in the round that continues it, or
  // are cancelled.
  void Begin(LiveRound& round, absl::Time now);
  // One that a restart, or a batch that failed, finds SEALING.
  void GoOn(const RoundId& id);
  void TryAgain(const RoundId& id, absl::Time now);

  void Tick(absl::Time now);
  absl::Time NextTick() const;

 private:
  // Once everything is handed to the strand: has the aggregate written behind it.
  void Release(const RoundId& id, absl::Time now);
  void OnReleased(const RoundId& id, absl::StatusOr<v1::Aggregate> aggregate, absl::Time now);
  void Finish(LiveRound& round, v1::Aggregate aggregate, absl::Time now);
  // The task whose contribution was accepted last, and the attempts at it. Empty where the store cannot tell. Two
  // looks, and time for the attempts.
  PathTask LastTask(const LiveRound& round) const;
  ReleaseSink& SinkOf(const LiveRound& round) const;

  CoreContext& context_;
  LiveRounds& rounds_;
  CarryOver& carry_over_;
  RoundChanges& changes_;
  const Sinks sinks_;
  // Rounds that could not write their aggregate, and when to try again.
  std::map<RoundId, absl::Time> again_;
};

}  // namespace sheaf
