#include "sdk/cpp/program/program.h"

#include <fmt/format.h>

#include <utility>

#include "base/status_macros.h"
#include "sdk/cpp/client/blob_client.h"
#include "sdk/cpp/client/round_client.h"

namespace sheaf {
namespace {

// Measures consecutive stretches of time.
class Stopwatch {
 public:
  explicit Stopwatch(const Clock& clock) : clock_(clock), start_(clock.Now()) {}
  // Since the last lap.
  absl::Duration Lap() {
    const absl::Time now = clock_.Now();
    return now - std::exchange(start_, now);
  }

 private:
  const Clock& clock_;
  absl::Time start_;
};

// One run of the loop.
class Loop {
 public:
  Loop(const Connection& server, Program& program, const ProgramOptions& options, ProgramObserver& observer)
      : server_(server), program_(program), options_(options), observer_(observer) {}

  absl::StatusOr<RoundOutcome> RunRound(int number) {
    RoundOutcome outcome;
    outcome.number = number;
    Stopwatch watch(server_.clock);

    ASSIGN_OR_RETURN(RoundPlan plan, program_.Plan(number));
    if (!plan.broadcast.empty()) {
      ASSIGN_OR_RETURN(*plan.spec.mutable_broadcast_digest(),
                       UploadBlob(server_.transport, server_.random, plan.broadcast));
    }
    outcome.broadcast_bytes = static_cast<int64_t>(plan.broadcast.size());
    outcome.timings.broadcast = watch.Lap();

    ASSIGN_OR_RETURN(outcome.round, AwaitRound(number, plan.spec));
    outcome.timings.round = watch.Lap();

    ASSIGN_OR_RETURN(const std::string file, ReadAggregate(server_.transport, outcome.round.id()));
    ASSIGN_OR_RETURN(const SafetensorsView aggregate, SafetensorsView::Parse(file));
    outcome.aggregate_bytes = static_cast<int64_t>(file.size());
    outcome.aggregate_digest = outcome.round.aggregate().digest();
    outcome.timings.read = watch.Lap();

    if (options_.verify) {
      ASSIGN_OR_RETURN(outcome.verification, program_.Verify(number, plan, aggregate));
      outcome.timings.verify = watch.Lap();
    }
    RETURN_IF_ERROR(program_.Apply(number, aggregate, outcome.round));
    outcome.timings.apply = watch.Lap();
    ASSIGN_OR_RETURN(outcome.evaluation, program_.Evaluate(number));
    outcome.timings.evaluate = watch.Lap();
    return outcome;
  }

 private:
  // Creates the round and returns it when it succeeded.
  absl::StatusOr<v1::Round> AwaitRound(int number, const v1::RoundSpec& spec) {
    ASSIGN_OR_RETURN(v1::Round round, CreateRound(server_.transport, server_.random.Token(16), spec));
    observer_.OnRoundStarted(number, round);
    const std::string id = round.id();
    ASSIGN_OR_RETURN(round, WaitForRound(server_.transport, server_.clock, id,
                                         {.timeout = options_.round_timeout, .on_change = [&](const v1::Round& seen) {
                                            observer_.OnRoundProgress(number, seen);
                                          }}));
    if (round.state() != v1::SUCCEEDED) {
      return absl::AbortedError(fmt::format("{} ended {}: {}; see `sheaf round explain {}`", id,
                                            v1::RoundState_Name(round.state()), round.error(), id));
    }
    return round;
  }

  const Connection server_;
  Program& program_;
  const ProgramOptions& options_;
  ProgramObserver& observer_;
};

}  // namespace

absl::StatusOr<std::map<std::string, double>> Program::Evaluate(int) { return std::map<std::string, double>(); }

absl::StatusOr<Verification> Program::Verify(int, const RoundPlan&, const SafetensorsView&) {
  return absl::UnimplementedError("this program cannot recompute a round; run it without verification");
}

void ProgramObserver::OnRoundStarted(int, const v1::Round&) {}
void ProgramObserver::OnRoundProgress(int, const v1::Round&) {}
void ProgramObserver::OnRoundEnded(const RoundOutcome&) {}

absl::StatusOr<std::vector<RoundOutcome>> RunProgram(const Connection& server, Program& program,
                                                     const ProgramOptions& options) {
  ProgramObserver nobody;
  ProgramObserver& observer = options.observer == nullptr ? nobody : *options.observer;
  Loop loop(server, program, options, observer);
  std::vector<RoundOutcome> outcomes;
  for (int number = 1; number <= options.rounds; ++number) {
    absl::StatusOr<RoundOutcome> outcome = loop.RunRound(number);
    if (!outcome.ok()) {
      return absl::Status(outcome.status().code(), fmt::format("round {} of {}: {}", number, options.rounds,
                                                               std::string(outcome.status().message())));
    }
    observer.OnRoundEnded(*outcome);
    outcomes.push_back(*std::move(outcome));
  }
  return outcomes;
}

}  // namespace sheaf
