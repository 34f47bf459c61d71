#include "sdk/cpp/program/program.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "sdk/cpp/client/round_client.h"
#include "sdk/cpp/program/rounds_ahead.h"

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
      : server_(server),
        program_(program),
        options_(options),
        observer_(observer),
        ahead_(server,
               {.plan = [&program](int number) { return program.Plan(number); },
                .broadcast = [&program](int number) { return program.Broadcast(number); },
                .patch = [&program](int number, const std::string& base) { return program.Patch(number, base); },
                .rounds = options.rounds,
                .ahead = options.ahead,
                .buffered = options.buffered}),
        watch_(server.clock) {}

  absl::StatusOr<std::vector<RoundOutcome>> Run() {
    std::vector<RoundOutcome> outcomes;
    for (number_ = 1; number_ <= options_.rounds; ++number_) {
      absl::StatusOr<RoundOutcome> outcome = RunRound(number_);
      if (!outcome.ok()) {
        if (running_) CancelRunning();
        return absl::Status(outcome.status().code(), fmt::format("round {} of {}: {}", number_, options_.rounds,
                                                                 std::string(outcome.status().message())));
      }
      observer_.OnRoundEnded(*outcome);
      outcomes.push_back(*std::move(outcome));
    }
    return outcomes;
  }

 private:
  absl::StatusOr<RoundOutcome> RunRound(int number) {
    if (!running_) RETURN_IF_ERROR(OpenNext());
    const BegunRound begun = *std::exchange(running_, std::nullopt);
    RoundOutcome outcome;
    outcome.number = number;
    outcome.broadcast_bytes = static_cast<int64_t>(begun.plan.broadcast.size());
    outcome.timings.broadcast = begun.took;
    watch_.Lap();

    std::string file;
    ASSIGN_OR_RETURN(outcome.round, AwaitRound(begun, file));
    outcome.timings.round = watch_.Lap();

    if (file.empty()) {
      ASSIGN_OR_RETURN(file, ReadAggregate(server_.transport, outcome.round.id()));
    }
    ASSIGN_OR_RETURN(const SafetensorsView aggregate, SafetensorsView::Parse(file));
    outcome.aggregate_bytes = static_cast<int64_t>(file.size());
    outcome.aggregate_digest = outcome.round.aggregate().digest();
    outcome.timings.read = watch_.Lap();

    if (options_.verify) {
      ASSIGN_OR_RETURN(outcome.verification, program_.Verify(number, begun.plan, aggregate));
      outcome.timings.verify = watch_.Lap();
    }
    RETURN_IF_ERROR(program_.Apply(number, aggregate, outcome.round));
    outcome.timings.apply = watch_.Lap();
    if ((options_.ahead > 0 || options_.buffered) && number < options_.rounds) {
      RETURN_IF_ERROR(OpenNext());
      watch_.Lap();
    }
    ASSIGN_OR_RETURN(outcome.evaluation, program_.Evaluate(number));
    outcome.timings.evaluate = watch_.Lap();
    return outcome;
  }

  // Opens the round after the one that ran last, and announces those that come after it.
  absl::Status OpenNext() {
    const auto named = [this](const absl::Status& status) {
      // What went wrong is about that round.
      if (!status.ok()) number_ = ahead_.number();
      return status;
    };
    absl::StatusOr<BegunRound> begun = ahead_.Open();
    RETURN_IF_ERROR(named(begun.status()));
    running_ = *std::move(begun);
    observer_.OnRoundStarted(running_->number, running_->round);
    return named(ahead_.Announce());
  }

  // Returns the round when it succeeded, and what it released if that is small.
  absl::StatusOr<v1::Round> AwaitRound(const BegunRound& begun, std::string& file) {
    const std::string& id = begun.round.id();
    ASSIGN_OR_RETURN(
        v1::Round round,
        WaitForRound(server_.transport, server_.clock, id,
                     {.timeout = options_.round_timeout,
                      .on_change = [&](const v1::Round& seen) { observer_.OnRoundProgress(begun.number, seen); },
                      .aggregate_file = &file}));
    if (round.state() != v1::SUCCEEDED) {
      return absl::AbortedError(fmt::format("{} ended {}: {}; see `sheaf round explain {}`", id,
                                            v1::RoundState_Name(round.state()), round.error(), id));
    }
    return round;
  }

  // It was opened while the round before was evaluated, and nobody will wait for it.
  void CancelRunning() {
    CancelRound(server_.transport, server_.random, running_->round.id(), "its program ended before it").IgnoreError();
  }

  const Connection server_;
  Program& program_;
  const ProgramOptions& options_;
  ProgramObserver& observer_;
  RoundsAhead ahead_;
  Stopwatch watch_;
  // Open, and not waited for yet.
  std::optional<BegunRound> running_;
  int number_ = 0;
};

}  // namespace

absl::StatusOr<std::string> Program::Broadcast(int) { return std::string(); }

absl::StatusOr<std::optional<std::string>> Program::Patch(int, const std::string&) {
  return std::optional<std::string>();
}

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
  return Loop(server, program, options, observer).Run();
}

}  // namespace sheaf
