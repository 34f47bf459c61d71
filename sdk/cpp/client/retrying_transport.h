// RetryingTransport: repeats calls that the server did not answer, so that programs and tools outlive its restarts.
//
//   RetryingTransport transport(grpc_transport, timer, clock, random, {});
//
// Repeats UNAVAILABLE, and what comes with a retry hint (base/retry_hint.h: the server is overloaded), after a pause
// drawn between zero, or what the hint asks for, and a bound that doubles, within the call's timeout; then the last
// refusal is the answer. Every mutating request carries a request_id, so that repeating one is harmless. Workers do not
// use it: their loop decides itself what to say next. Thread-safe. What it is given must outlive the last `done`.
#pragma once

#include <functional>
#include <string_view>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/random.h"
#include "sdk/cpp/client/transport.h"

namespace sheaf {

// Calls back later. GrpcTimer (grpc_transport.h) waits for real; a test turns its own by hand.
class Timer {
 public:
  virtual ~Timer() = default;
  virtual void After(absl::Duration delay, std::function<void()> callback) = 0;
};

struct RetryOptions {
  // Bound of the first pause; it doubles up to the maximum.
  absl::Duration backoff_first = absl::Milliseconds(100);
  absl::Duration backoff_max = absl::Seconds(5);
};

class RetryingTransport final : public Transport {
 public:
  // `random` is only used under a lock of this object: give it to nobody else.
  RetryingTransport(Transport& inner, Timer& timer, const Clock& clock, Random& random, const RetryOptions& options)
      : inner_(inner), timer_(timer), clock_(clock), random_(random), options_(options) {}

  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override;

 private:
  struct PendingCall;
  void Attempt(const std::shared_ptr<PendingCall>& call);
  void OnAttemptDone(const std::shared_ptr<PendingCall>& call, absl::Status status);
  absl::Duration Pause(const absl::Status& status, int attempt);

  Transport& inner_;
  Timer& timer_;
  const Clock& clock_;
  Mutex random_mutex_;
  Random& random_ GUARDED_BY(random_mutex_);
  const RetryOptions options_;
};

}  // namespace sheaf
