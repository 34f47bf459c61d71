// Rounds from the submitter's side: create, wait, read what was released.
//
//   ASSIGN_OR_RETURN(v1::Round round, CreateRound(transport, random.Token(16), spec));
//   ASSIGN_OR_RETURN(round, WaitForRound(transport, clock, round.id(), {.timeout = absl::Minutes(5)}));
//   if (round.state() == v1::SUCCEEDED) { ASSIGN_OR_RETURN(std::string file, ReadAggregate(transport, round.id())); }
//
// A round whose broadcast is not known yet is announced, and opened later:
//
//   ASSIGN_OR_RETURN(round, AnnounceRound(transport, random, spec));
//   ASSIGN_OR_RETURN(round, OpenRound(transport, random, round.id(), broadcast));
//
// Blocking; put a RetryingTransport below them to survive a server's restart. Thread-safe, as the transport is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/random.h"
#include "sdk/cpp/client/range_joiner.h"
#include "sdk/cpp/client/transport.h"
#include "sheaf/v1/round_service.pb.h"

namespace sheaf {

// SUCCEEDED, FAILED or CANCELLED.
bool IsFinal(v1::RoundState state);

// The same `request_id` gets the same round. Errors as RoundService.CreateRound.
absl::StatusOr<v1::Round> CreateRound(Transport& transport, const std::string& request_id, const v1::RoundSpec& spec);

// Creates a round without a broadcast, whose tasks workers prepare until it is opened. `spec.announced` is set for the
// caller. Errors as RoundService.CreateRound; UNIMPLEMENTED if the server does not know such rounds: it was not
// created.
absl::StatusOr<v1::Round> AnnounceRound(Transport& transport, Random& random, v1::RoundSpec spec);

// A broadcast or an aggregate up to this size travels with the call that is about its round.
inline constexpr int64_t kInlineBytesMax = 1 << 20;

// Opens it with this broadcast; empty: none. A small one travels in the same call, a larger one is uploaded before, for
// the population that the round has. Errors as RoundService.OpenRound.
absl::StatusOr<v1::Round> OpenRound(Transport& transport, Random& random, const std::string& round,
                                    std::string_view broadcast);
// The same with one that was uploaded before.
absl::StatusOr<v1::Round> OpenRoundWith(Transport& transport, Random& random, const std::string& round,
                                        const std::string& broadcast_digest);

// Errors as RoundService.CancelRound.
absl::Status CancelRound(Transport& transport, Random& random, const std::string& round, std::string_view reason);

struct WaitOptions {
  // DEADLINE_EXCEEDED after this long; the round goes on.
  absl::Duration timeout = absl::InfiniteDuration();
  // How long one call may stay parked. At most 60 s.
  absl::Duration poll = absl::Seconds(20);
  // Called with every state seen, the last one included.
  std::function<void(const v1::Round&)> on_change;
  // What it released, if it is small; else it stays empty (see ReadAggregate). Null: not asked for.
  std::string* aggregate_file = nullptr;
};

// Returns the round in its final state, whichever that is. NOT_FOUND if there is no such round; DATA_LOSS if the bytes
// of its aggregate came and do not have the digest the server names.
absl::StatusOr<v1::Round> WaitForRound(Transport& transport, const Clock& clock, const std::string& round,
                                       const WaitOptions& options = {});

// The safetensors file that the round released. FAILED_PRECONDITION if it has none (yet); DATA_LOSS if the bytes do not
// have the digest the server names; RESOURCE_EXHAUSTED if they are more than `bytes_max`.
absl::StatusOr<std::string> ReadAggregate(Transport& transport, const std::string& round,
                                          int64_t bytes_max = kReadBytesMax);

}  // namespace sheaf
