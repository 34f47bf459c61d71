#include "sdk/cpp/client/retrying_transport.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/retry_hint.h"

namespace sheaf {

struct RetryingTransport::PendingCall {
  std::string method;
  std::unique_ptr<google::protobuf::Message> request;
  google::protobuf::Message* response;
  absl::Time deadline;
  Done done;
  int attempts = 0;
};

void RetryingTransport::CallMethod(std::string_view method, const google::protobuf::Message& request,
                                   google::protobuf::Message* response, const CallOptions& options, Done done) {
  auto call = std::make_shared<PendingCall>();
  call->method = method;
  // The caller may destroy its request when this returns, long before the last attempt.
  call->request.reset(request.New());
  call->request->CopyFrom(request);
  call->response = response;
  call->deadline = clock_.Now() + options.timeout;
  call->done = std::move(done);
  Attempt(call);
}

void RetryingTransport::Attempt(const std::shared_ptr<PendingCall>& call) {
  ++call->attempts;
  CallOptions options{.timeout = std::max(call->deadline - clock_.Now(), absl::Milliseconds(1))};
  inner_.CallMethod(call->method, *call->request, call->response, options,
                    [this, call](absl::Status status) { OnAttemptDone(call, std::move(status)); });
}

void RetryingTransport::OnAttemptDone(const std::shared_ptr<PendingCall>& call, absl::Status status) {
  if (!absl::IsUnavailable(status) && !RetryAfter(status)) return call->done(std::move(status));
  const absl::Duration pause = Pause(status, call->attempts);
  if (clock_.Now() + pause >= call->deadline) return call->done(std::move(status));
  timer_.After(pause, [this, call] { Attempt(call); });
}

absl::Duration RetryingTransport::Pause(const absl::Status& status, int attempt) {
  // 2^30 times anything sensible is beyond the maximum.
  absl::Duration bound =
      std::min(options_.backoff_max, options_.backoff_first * (int64_t{1} << std::min(attempt - 1, 30)));
  MutexLock lock(random_mutex_);
  return PauseAfter(status, bound, random_);
}

}  // namespace sheaf
