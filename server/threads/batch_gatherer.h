// BatchGatherer: events wait here for the core's thread, and go from here in batches: as many as have come while the
// batch before was worked on, so that concurrent calls share one transaction and one flush. Each is stamped when it
// comes: who waits here is known, and nothing expires in the core before it was read.
//
//   gatherer.Add(BatchGatherer::Urgency::kNormal, std::move(event));      // From any thread.
//   BatchGatherer::Batch batch;
//   while (gatherer.Take(next_tick, events_max, batch)) Run(batch);       // The core's thread.
//   gatherer.Stop();                                                      // Take gives what there is, then false.
//
// Thread-safe; Take and PutBack are one thread's.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/core/batches/executor.h"

namespace sheaf {

class BatchGatherer {
 public:
  // `clock` outlives this.
  explicit BatchGatherer(const Clock& clock) : clock_(clock) {}

  enum class Urgency {
    kNormal,
    // Goes ahead of those, with as many of them in each batch: who looks on must not stop the work.
    kUrgent,
  };
  void Add(Urgency urgency, Executor::Event event) EXCLUDES(mutex_);

  struct Batch {
    // The urgent ones first; of each kind in the order in which they came.
    std::vector<Executor::Event> events;
    std::vector<absl::Time> arrivals;
    size_t num_urgent = 0;
  };
  // Waits for events until `next_tick`; then gives at most `events_max` of them, perhaps none. False when there are
  // none and the thread shall end.
  bool Take(absl::Time next_tick, size_t events_max, Batch& batch) EXCLUDES(mutex_);
  // The newest of a batch, which it has left: the next one begins with them.
  void PutBack(const Batch& batch, std::span<Executor::Event> events) EXCLUDES(mutex_);

  // When the oldest of those that wait came; `now` if none does.
  absl::Time OldestArrival(absl::Time now) EXCLUDES(mutex_);

  void Stop() EXCLUDES(mutex_);

 private:
  struct Waiting {
    Executor::Event event;
    absl::Time arrival;
  };
  // The oldest first.
  using Inbox = std::deque<Waiting>;
  // Moves events until `batch` has `size`.
  static void Fill(Batch& batch, size_t size, Inbox& inbox);

  const Clock& clock_;
  Mutex mutex_;
  CondVar wake_;
  Inbox inbox_ GUARDED_BY(mutex_);
  Inbox urgent_ GUARDED_BY(mutex_);
  bool is_waiting_ GUARDED_BY(mutex_) = false;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace sheaf
