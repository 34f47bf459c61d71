#include "server/rpc/ticker.h"

#include <grpc/support/time.h>

#include <utility>

namespace sheaf {

Ticker::Ticker(absl::Duration period, std::function<void()> tick) : period_(period), tick_(std::move(tick)) {
  MutexLock lock(mutex_);
  Arm();
}

Ticker::~Ticker() {
  MutexLock lock(mutex_);
  is_stopping_ = true;
  alarm_->Cancel();
  while (!has_ended_) ended_.Wait(mutex_);
}

void Ticker::Arm() {
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                           gpr_time_from_millis(absl::ToInt64Milliseconds(period_), GPR_TIMESPAN)),
              [this](bool) { Ring(); });
}

void Ticker::Ring() {
  {
    MutexLock lock(mutex_);
    if (is_stopping_) {
      has_ended_ = true;
      return ended_.NotifyAll();
    }
  }
  tick_();
  MutexLock lock(mutex_);
  // Also when it is stopping: then the new one is cancelled at once, or rings and ends it.
  Arm();
  if (is_stopping_) alarm_->Cancel();
}

}  // namespace sheaf
