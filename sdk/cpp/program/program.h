// Program and RunProgram: the loop of a federated training, written once.
//
//   class Mean final : public Program {
//     absl::StatusOr<v1::RoundSpec> Plan(int number) override { return MeanSpec(number); }
//     absl::Status Apply(int, const SafetensorsView& aggregate, const v1::Round&) override { return Show(aggregate); }
//   };
//   Mean program;
//   ServerConnection server("127.0.0.1:7433");
//   ASSIGN_OR_RETURN(std::vector<RoundOutcome> outcomes, RunProgram(server, program, {.rounds = 20}));
//
// Each round: Plan -> Broadcast or Patch, which is uploaded -> create the round -> wait -> read the aggregate ->
// (Verify) -> Apply -> Evaluate. With ProgramOptions::ahead the rounds that come next are planned and announced while
// one runs, and the next is opened with its broadcast between Apply and Evaluate: workers read and preprocess their
// data meanwhile, and the program evaluates while they compute. The model is the same, to the last bit.
//
//        K = 1:   announce 1, open 1, announce 2 | apply 1, open 2, announce 3, evaluate 1 | apply 2, open 3, ...
//   workers:      prepare 1, compute 1          prepare 2 meanwhile, compute 2 at once    prepare 3 meanwhile, ...
//
// The loop knows nothing of models; a program knows nothing of RPCs. Tools watch through a ProgramObserver. Blocking,
// and called from one thread; the program and the observer are called from that thread only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregation/wire/safetensors.h"
#include "sdk/cpp/client/connection.h"
#include "sdk/cpp/program/round_plan.h"
#include "sheaf/v1/round.pb.h"

namespace sheaf {

// What came of recomputing a round.
struct Verification {
  // Values of the aggregate that were compared, and how many of them differ in at least one bit.
  int64_t num_values = 0;
  int64_t num_mismatches = 0;
  // The first difference, in a sentence. Empty if there is none.
  std::string first_mismatch;
};

class Program {
 public:
  virtual ~Program() = default;

  // What the round shall do, but for its broadcast. `number` counts from 1. Called once for every round, in their
  // order; with ProgramOptions::ahead before the rounds before it have ended, so that it cannot say what depends on
  // them.
  virtual absl::StatusOr<v1::RoundSpec> Plan(int number) = 0;
  // A safetensors file for the workers, when the rounds before have been applied. Empty when the computation needs
  // none, as by default.
  virtual absl::StatusOr<std::string> Broadcast(int number);
  // The same as a patch (EncodeSafetensorsPatch): what of the round before's broadcast, whose digest is `base`, Apply
  // has changed since. A model of which a round moves some rows need not be sent again. Nothing, as by default, if
  // there is nothing to be saved. Asked for instead of Broadcast where the server takes one; if it refuses, Broadcast
  // is asked for, too.
  virtual absl::StatusOr<std::optional<std::string>> Patch(int number, const std::string& base);
  // Takes over what the round released.
  virtual absl::Status Apply(int number, const SafetensorsView& aggregate, const v1::Round& round) = 0;
  // Named figures of merit, after Apply. None by default.
  virtual absl::StatusOr<std::map<std::string, double>> Evaluate(int number);
  // Recomputes the round without a server and compares. Called before Apply, when asked for. UNIMPLEMENTED by default.
  virtual absl::StatusOr<Verification> Verify(int number, const RoundPlan& plan, const SafetensorsView& aggregate);
};

// Where the wall time of one round went, as the program saw it.
struct ProgramTimings {
  // Plan and Broadcast, uploading it, and announcing and opening the round if that is done ahead.
  absl::Duration broadcast;
  // From creating the round to its end; `RoundOutcome.round.phases` splits it. With ProgramOptions::ahead what was left
  // to wait for: the round before was evaluated meanwhile.
  absl::Duration round;
  // Reading the aggregate.
  absl::Duration read;
  // Only with `verify`.
  absl::Duration verify;
  absl::Duration apply;
  absl::Duration evaluate;

  absl::Duration Total() const { return Unverified() + verify; }
  // What the round would have taken if nobody had recomputed it.
  absl::Duration Unverified() const { return broadcast + round + read + apply + evaluate; }
};

struct RoundOutcome {
  int number = 0;
  // In its final state. The tasks are left out of its spec, as the server does.
  v1::Round round;
  std::map<std::string, double> evaluation;
  // Set with `verify`.
  std::optional<Verification> verification;
  ProgramTimings timings;
  // Bytes of the broadcast and of the aggregate file; digest of the latter.
  int64_t broadcast_bytes = 0;
  int64_t aggregate_bytes = 0;
  std::string aggregate_digest;
};

// What tools hear. Every method does nothing by default.
class ProgramObserver {
 public:
  virtual ~ProgramObserver() = default;
  // The round was created or opened; `round` is its first state.
  virtual void OnRoundStarted(int number, const v1::Round& round);
  // Something changed, up to and including the final state.
  virtual void OnRoundProgress(int number, const v1::Round& round);
  virtual void OnRoundEnded(const RoundOutcome& outcome);
};

struct ProgramOptions {
  int rounds = 20;
  // How many rounds are announced ahead of the one that runs (K), so that workers prepare them meanwhile. 0, because
  // the loop cannot know whether Plan depends on what the rounds before release.
  int ahead = 0;
  // Each round continues the one before it: tasks that still run when a round has its goal go on in the next, and their
  // contributions count there (RoundSpec.continues; Plan may set `staleness`). For plans of more tasks than their goal.
  // At least one round is announced ahead. What a round releases then depends on who was fast.
  bool buffered = false;
  // Call Program::Verify on every round. A mismatch is reported, not an error.
  bool verify = false;
  // Give up on a round after this long, whatever its own deadline says.
  absl::Duration round_timeout = absl::InfiniteDuration();
  // Null: nobody watches.
  ProgramObserver* observer = nullptr;
};

// Runs all rounds and returns their outcomes. Stops at the first error and names the round: ABORTED if a round failed
// or was cancelled (with the server's reason), DEADLINE_EXCEEDED after `round_timeout`, UNIMPLEMENTED if the server is
// too old for `ahead`, else what the program or a call returned. Then the rounds that were begun ahead are cancelled.
absl::StatusOr<std::vector<RoundOutcome>> RunProgram(const Connection& server, Program& program,
                                                     const ProgramOptions& options);

}  // namespace sheaf
