// SequenceDriver: drives a CallSequence (an upload, a fetch) without blocking. A call that the server did not answer,
// or not as ours, is repeated after a pause, as often as it takes: the attempt it works for ends when its lease does.
//
//   auto driver = std::make_shared<SequenceDriver>(SequenceDriver::Parts{transport, random, inbox},
//                                                  std::make_unique<RowFetch>(digest, selections), timeout, on_done);
//   driver->Step(now);                     // Makes the next call if none is open and no pause is on.
//
// `on_done(now)` is called from an inbox event once the sequence is done. Destroying the driver forgets an open call.
// Belongs to the loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "base/random.h"
#include "sdk/cpp/client/call_sequence.h"
#include "sdk/cpp/client/transport.h"
#include "worker/backoff.h"
#include "worker/inbox.h"

namespace sheaf {

// What a call ended with says nothing of the sequence: the call is to be repeated. UNAUTHENTICATED neither: our token is
// being replaced, and as long as the server takes none of ours it would not hear of a failure.
bool IsUnanswered(const absl::Status& status);

class SequenceDriver : public std::enable_shared_from_this<SequenceDriver> {
 public:
  struct Parts {
    Transport& transport;
    Random& random;
    std::shared_ptr<Inbox> inbox;
  };

  SequenceDriver(Parts parts, std::unique_ptr<CallSequence> sequence, absl::Duration timeout,
                 std::function<void(absl::Time now)> on_done)
      : parts_(std::move(parts)), sequence_(std::move(sequence)), timeout_(timeout), on_done_(std::move(on_done)) {}

  void Step(absl::Time now);
  // When the pause that is on ends; infinite while a call is open.
  absl::Time next_time() const { return call_is_open_ ? absl::InfiniteFuture() : resume_; }
  // Grows with every answer.
  int64_t answers() const { return answers_; }
  CallSequence& sequence() { return *sequence_; }

 private:
  void OnCallDone(const absl::Status& status, absl::Time now);

  const Parts parts_;
  const std::unique_ptr<CallSequence> sequence_;
  const absl::Duration timeout_;
  const std::function<void(absl::Time now)> on_done_;
  std::optional<CallSequence::NextCall> call_;
  bool call_is_open_ = false;
  absl::Time resume_ = absl::InfinitePast();
  Backoff backoff_;
  int64_t answers_ = 0;
};

}  // namespace sheaf
