// RoundsAhead: the rounds of a program's loop up to when they run: planned, announced ahead, and opened in their order.
//
//   RoundsAhead rounds(server, {.plan = plan, .broadcast = broadcast, .rounds = 20, .ahead = 2});
//   ASSIGN_OR_RETURN(BegunRound opened, rounds.Open());    // Rounds 1 and 2: planned. Round 1: gets its broadcast.
//   RETURN_IF_ERROR(rounds.Announce());                   // Round 3: planned.
//   ASSIGN_OR_RETURN(opened, rounds.Open());              // Round 2: gets its broadcast.
//
// Those that were announced and not opened end with it: nobody else would open them. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sdk/cpp/client/blob_client.h"
#include "sdk/cpp/client/connection.h"
#include "sdk/cpp/program/round_plan.h"

namespace sheaf {

// A round that has its broadcast.
struct BegunRound {
  int number = 0;
  RoundPlan plan;
  // In its first state, or as it was announced.
  v1::Round round;
  // What it took to get there.
  absl::Duration took;
};

class RoundsAhead {
 public:
  struct Options {
    // What a round shall do, and its broadcast: each is asked for once for every round, in their order.
    std::function<absl::StatusOr<v1::RoundSpec>(int number)> plan;
    std::function<absl::StatusOr<std::string>(int number)> broadcast;
    // As Program::Patch; need not be set. Where it says nothing, or the server takes no patch, `broadcast` is asked.
    std::function<absl::StatusOr<std::optional<std::string>>(int number, const std::string& base)> patch;
    int rounds = 0;
    // How many are announced beside the one that is open.
    int ahead = 0;
    // Each continues the one before it, and is announced before that one opens: at least one is ahead.
    bool buffered = false;
  };
  // What the connection refers to outlives it.
  RoundsAhead(const Connection& server, Options options) : server_(server), options_(std::move(options)) {}
  // Cancels what it announced and did not open. A server that cannot be reached keeps them until their
  // announce_deadline.
  ~RoundsAhead();
  RoundsAhead(const RoundsAhead&) = delete;
  RoundsAhead& operator=(const RoundsAhead&) = delete;

  // The next round, with its broadcast: created now if it was not announced.
  absl::StatusOr<BegunRound> Open();
  // Plans and announces rounds until there are as many as `options.ahead` says, or no more to come.
  absl::Status Announce();
  // Of the round that the last call was about.
  int number() const { return number_; }

 private:
  absl::Status Announce(int ahead);
  absl::StatusOr<BegunRound> Plan(int number);
  // Creates or opens the round, with a patch of the last broadcast if there is one and the server takes it.
  absl::Status Begin(BegunRound& begun);
  // Creates or opens the round with this broadcast.
  absl::StatusOr<UploadedBroadcast> BeginWith(BegunRound& begun, std::string_view broadcast);

  // What was sent last.
  struct Sent {
    // May be patched, if the server takes that.
    UploadedBroadcast broadcast;
    // Of the whole one, and of the patches upon it.
    int64_t whole_bytes = 0;
    int64_t patch_bytes = 0;
    int num_patches = 0;
  };

  const Connection server_;
  const Options options_;
  Sent sent_;
  std::deque<BegunRound> announced_;
  // Of the round that was announced last.
  std::string newest_;
  int num_planned_ = 0;
  int number_ = 0;
};

}  // namespace sheaf
