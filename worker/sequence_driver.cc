#include "worker/sequence_driver.h"

#include <utility>

#include "base/retry_hint.h"

namespace sheaf {

bool IsUnanswered(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsUnauthenticated(status) ||
         RetryAfter(status).has_value();
}

void SequenceDriver::Step(absl::Time now) {
  if (call_is_open_ || now < resume_ || sequence_->done()) return;
  if (!call_.has_value()) call_ = sequence_->Next();
  call_is_open_ = true;
  // The messages stay with the callback: the transport may still write to them when this driver is gone.
  parts_.transport.CallMethod(call_->method, *call_->request, call_->response.get(), {.timeout = timeout_},
                              [inbox = parts_.inbox, weak = weak_from_this(), call = *call_](absl::Status status) {
                                inbox->Post([weak, status = std::move(status)](absl::Time when) {
                                  if (auto driver = weak.lock()) driver->OnCallDone(status, when);
                                });
                              });
}

void SequenceDriver::OnCallDone(const absl::Status& status, absl::Time now) {
  call_is_open_ = false;
  if (IsUnanswered(status)) {
    if (absl::IsDeadlineExceeded(status) && sequence_->TakeLess()) call_.reset();
    resume_ = now + backoff_.Next(status, parts_.random);
    return Step(now);
  }
  ++answers_;
  backoff_.Reset();
  resume_ = absl::InfinitePast();
  call_.reset();
  sequence_->OnDone(status);
  if (sequence_->done()) return on_done_(now);
  Step(now);
}

}  // namespace sheaf
