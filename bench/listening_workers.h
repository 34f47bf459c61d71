// ListeningWorkers: workers that hold a task each of an announced round, and note when they hear that it has opened.
//
//   ListeningWorkers workers(clock, address);
//   RETURN_IF_ERROR(workers.Open(1'000));
//   RETURN_IF_ERROR(workers.WaitUntilAllHold());                  // Then somebody opens the round.
//   std::vector<absl::Time> heard = workers.WaitUntilAllHeard();
//
// By HTTP/1.1, a connection each, because a thousand gRPC channels in one process would be measured instead. They
// return nothing: cancel the round, and they take the next one. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "bench/http_clients.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf::bench {

class ListeningWorkers {
 public:
  ListeningWorkers(const Clock& clock, const std::string& http_address) : clock_(clock), clients_(http_address, {}) {}

  absl::Status Open(int count);
  // Each holds a task. The first error of a call, if there was one.
  absl::Status WaitUntilAllHold() EXCLUDES(mutex_);
  // When each heard OPENED, since the last time this was asked.
  std::vector<absl::Time> WaitUntilAllHeard() EXCLUDES(mutex_);

 private:
  struct Worker {
    int number = 0;
    int64_t num_polls = 0;
    v1::HeldLease held;
  };
  void Poll(Worker& worker);
  void OnAnswer(Worker& worker, const v1::SyncResponse& answer) EXCLUDES(mutex_);

  const Clock& clock_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Mutex mutex_;
  CondVar changed_;
  int num_holding_ GUARDED_BY(mutex_) = 0;
  std::vector<absl::Time> heard_ GUARDED_BY(mutex_);
  absl::Status failure_ GUARDED_BY(mutex_);
  // Goes first: its thread calls this.
  HttpClients clients_;
};

}  // namespace sheaf::bench
