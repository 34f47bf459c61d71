#include "sdk/cpp/client/transport.h"

#include <optional>

#include "base/mutex.h"

namespace sheaf {
namespace {

// One status, handed from the thread that completes a call to the one that waits for it.
class StatusLatch {
 public:
  void Set(absl::Status status) {
    // Notified under the lock: the waiter destroys the latch as soon as it has the status.
    MutexLock lock(mutex_);
    status_ = std::move(status);
    done_.NotifyOne();
  }

  absl::Status Wait() {
    MutexLock lock(mutex_);
    while (!status_.has_value()) done_.Wait(mutex_);
    return *std::move(status_);
  }

 private:
  Mutex mutex_;
  CondVar done_;
  std::optional<absl::Status> status_ GUARDED_BY(mutex_);
};

}  // namespace

absl::Status BlockingCallMethod(Transport& transport, std::string_view method, const google::protobuf::Message& request,
                                google::protobuf::Message* response, const CallOptions& options) {
  StatusLatch latch;
  transport.CallMethod(method, request, response, options,
                       [&latch](absl::Status status) { latch.Set(std::move(status)); });
  return latch.Wait();
}

}  // namespace sheaf
