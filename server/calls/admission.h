// Admission: who is let in while there is too much to do. Asked before a request is parsed, when it has cost next to
// nothing: what is let in is then done, and what is not is told so at once, with a time to come back. So the newest
// work is shed, and what waits has a bounded wait.
//
//   RETURN_IF_ERROR(admission.Enter(lane, caller, bytes, now));
//   admission.Queue(lane, caller);    // It goes to the core's thread.
//   admission.Dequeue(lane, caller);  // The core has begun with it.
//   admission.Leave(caller, bytes);   // It was answered.
//
// No identity takes all the room: one may have population_percent_max percent of what the others leave of the queue,
// and of the memory for requests; and in an overload those are refused that have more calls in the queue than the
// others on average. Identities take turns at the core (server/threads/turn_queue.h): how long a call will wait is told
// by how long its own identity's have waited.
//
// Inspection has a lane of its own, with its own small queue that the core empties first, so that whoever wants to know
// what is going on is not behind what is going on. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/core/access/identity.h"
#include "server/core/limits/limits.h"
#include "server/core/limits/population_share.h"

namespace sheaf {

enum class Lane { kWork, kInspection };

class Admission {
 public:
  explicit Admission(const Limits& limits) : limits_(limits) {}

  // RESOURCE_EXHAUSTED with a retry hint, naming the limit, if the caller is over its rate, too many calls wait, or the
  // requests that are being answered hold too much memory. If OK, Leave must follow.
  absl::Status Enter(Lane lane, const Identity& caller, int64_t bytes, absl::Time now) EXCLUDES(mutex_);
  void Leave(const Identity& caller, int64_t bytes) EXCLUDES(mutex_);

  void Queue(Lane lane, const Identity& caller) EXCLUDES(mutex_);
  // The oldest of the caller's.
  void Dequeue(Lane lane, const Identity& caller) EXCLUDES(mutex_);

  int64_t bytes() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return bytes_;
  }
  // Those that wait for the core.
  int64_t num_queued(Lane lane) const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return waiting_[static_cast<size_t>(lane)].by_identity.total();
  }
  int64_t num_refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  struct Caller {
    // A bucket of tokens: one second's worth at most, one for each call.
    double tokens = 0;
    absl::Time filled = absl::InfinitePast();
    // Of its requests that are being answered.
    int64_t bytes = 0;
  };

  struct Waiting {
    // Arrivals of those that wait, by identity, the oldest first. None is no entry.
    std::unordered_map<std::string, std::deque<absl::Time>> arrivals;
    PopulationShare by_identity;
  };
  Waiting& waiting(Lane lane) REQUIRES(mutex_) { return waiting_[static_cast<size_t>(lane)]; }
  absl::Status CheckQueue(Lane lane, const Identity& caller, absl::Time now) EXCLUDES(mutex_);
  // Takes the bytes and a token of the bucket, if there are.
  absl::Status TakeRoom(Lane lane, const Identity& caller, int64_t bytes, absl::Time now) EXCLUDES(mutex_);

  const Limits limits_;
  std::atomic<int64_t> refused_ = 0;
  mutable Mutex mutex_;
  std::array<Waiting, 2> waiting_ GUARDED_BY(mutex_);
  // When somebody entered last.
  absl::Time newest_ GUARDED_BY(mutex_) = absl::InfinitePast();
  // By the identity's name: no more than there were tokens.
  std::unordered_map<std::string, Caller> callers_ GUARDED_BY(mutex_);
  // Of all requests that are being answered.
  int64_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sheaf
