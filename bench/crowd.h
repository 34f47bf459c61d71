// Crowd: workers that call as often as they are told to, whatever the server answers: an overload.
//
//   ASSIGN_OR_RETURN(std::string round, Crowd::CreateRound(transport, "overload", 30'000));
//   Crowd crowd(clock, std::move(connections), 15'000);
//   crowd.CallClosed(64, clock.Now() + absl::Seconds(2));          // What the server can do.
//   crowd.TakeCounts();
//   crowd.CallOpen(10 * capacity, absl::Seconds(10));              // Ten times that.
//   Crowd::Counts counts = crowd.TakeCounts();
//   crowd.WaitUntilIdle();
//
// Each hands in the tasks that it holds and takes as many again. A call costs the server more than ten times what it
// costs this process, so that one CPU can offer ten times what another can do. One thread drives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "sdk/cpp/client/transport.h"

namespace sheaf::bench {

// Sleeps.
void Pause(absl::Duration duration);

class Crowd {
 public:
  // Many outputs, of more than one task: the server's work.
  static constexpr int kOutputs = 256;
  static constexpr int kTasksPerCall = 3;

  // A round of such tasks, which nobody else does; its id.
  static absl::StatusOr<std::string> CreateRound(Transport& transport, const std::string& request_id, int num_tasks);

  // As many calls may be open as there are workers.
  Crowd(const Clock& clock, std::vector<std::unique_ptr<Transport>> connections, int num_workers);
  ~Crowd();

  struct Counts {
    int64_t offered = 0;
    int64_t answered = 0;
    int64_t refused = 0;
    int64_t without_hint = 0;
    int64_t failed = 0;
    int64_t accepted_results = 0;
    // Of what was answered.
    std::vector<double> millis;
  };
  // Since the last time.
  Counts TakeCounts() EXCLUDES(mutex_);

  // As many calls open as that, until `end`; returns when all are answered.
  void CallClosed(int num_open, absl::Time end);
  // So many calls each second, whatever is answered.
  void CallOpen(double per_second, absl::Duration duration);
  void WaitUntilIdle() EXCLUDES(mutex_);

  std::map<std::string, int64_t> verdicts() EXCLUDES(mutex_);
  absl::Status first_failure() EXCLUDES(mutex_);

 private:
  struct Worker {
    std::string name;
    int64_t num_polls = 0;
    std::vector<v1::Lease> leases;
    v1::SyncResponse response;
  };

  // One call of a worker that has none open, one with tasks first. False if all have one open.
  bool CallOnce() EXCLUDES(mutex_);
  void Answered(Worker& worker, absl::Time start, const absl::Status& status) EXCLUDES(mutex_);
  int64_t num_open_calls() EXCLUDES(mutex_);

  const Clock& clock_;
  std::string contribution_;
  std::atomic<size_t> num_calls_ = 0;
  std::deque<Worker> workers_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Worker*> idle_ GUARDED_BY(mutex_);
  Counts counts_ GUARDED_BY(mutex_);
  std::map<std::string, int64_t> verdicts_ GUARDED_BY(mutex_);
  absl::Status first_failure_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Transport>> connections_;
};

}  // namespace sheaf::bench
