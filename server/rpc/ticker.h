// Ticker: calls something every so often, on gRPC's own timer: no thread waits for it.
//
//   Ticker ticker(absl::Seconds(1), [&] { books.Tick(clock.Now()); });
//
// One call ends before the next is due. The destructor waits until none runs; not from within one.
#pragma once

#include <grpcpp/alarm.h>

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace sheaf {

class Ticker {
 public:
  Ticker(absl::Duration period, std::function<void()> tick);
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  void Arm() REQUIRES(mutex_);
  void Ring();

  const absl::Duration period_;
  const std::function<void()> tick_;
  Mutex mutex_;
  CondVar ended_;
  // Rings once: gRPC's alarms do not bear to be set from within their own ringing.
  std::unique_ptr<grpc::Alarm> alarm_ GUARDED_BY(mutex_);
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  bool has_ended_ GUARDED_BY(mutex_) = false;
};

}  // namespace sheaf
