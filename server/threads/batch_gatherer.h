// BatchGatherer: events wait here for the core's thread, and go from here in batches: as many as have come while the
// batch before was worked on, so that concurrent calls share one transaction and one flush. Each is stamped when it
// comes: who waits here is known, and nothing expires in the core before it was read.
//
//   gatherer.AddCall("fleet", std::move(event));                          // From any thread.
//   BatchGatherer::Batch batch;
//   while (gatherer.Take(next_tick, events_max, batch)) {                 // The core's thread.
//     gatherer.Settle(batch, Run(batch), {});
//   }
//   gatherer.Stop();                                                      // Take gives what there is, then false.
//
// Callers take turns (turn_queue.h). What the server itself posts, and calls, alternate while there are both: neither
// keeps the other waiting, however much there is of it. Thread-safe; Take and Settle are one thread's.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/core/batches/executor.h"
#include "server/threads/turn_queue.h"

namespace sheaf {

class BatchGatherer {
 public:
  // `clock` outlives this.
  explicit BatchGatherer(const Clock& clock) : clock_(clock) {}

  // Of the server itself.
  void Add(Executor::Event event) EXCLUDES(mutex_);
  void AddCall(const std::string& caller, Executor::Event event) EXCLUDES(mutex_);
  // Goes ahead of those, with as many of them in each batch: who looks on must not stop the work.
  void AddUrgent(Executor::Event event) EXCLUDES(mutex_);

  struct Batch {
    enum class Origin { kUrgent, kServer, kCall };
    // What is known of an event.
    struct Source {
      Origin origin;
      absl::Time arrival;
      // Of a call.
      TurnQueue::Ticket ticket;
    };
    // The urgent ones first; of each origin, and caller, in the order in which they came.
    std::vector<Executor::Event> events;
    // As many.
    std::vector<Source> sources;
    // Whose calls waited when it was taken.
    size_t num_callers = 0;
  };
  // Waits for events until `next_tick`; then gives at most `events_max` of them, perhaps none. False when there are
  // none and the thread shall end.
  bool Take(absl::Time next_tick, size_t events_max, Batch& batch) EXCLUDES(mutex_);
  // What the first events of a batch took of the core's time. It has left the others, which are taken back: each is the
  // next again of its origin and caller.
  void Settle(const Batch& batch, std::span<const absl::Duration> costs, std::span<Executor::Event> left)
      EXCLUDES(mutex_);

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
  static void MoveFirst(Inbox& inbox, Batch::Origin origin, Batch& batch);
  void MoveNextCall(Batch& batch) REQUIRES(mutex_);
  bool empty() const REQUIRES(mutex_) { return inbox_.empty() && calls_.empty() && urgent_.empty(); }
  // The first of many wakes the thread, and does not hold what the thread needs next.
  template <typename Put>
  void PutAndWake(Put put) EXCLUDES(mutex_);

  const Clock& clock_;
  Mutex mutex_;
  CondVar wake_;
  Inbox inbox_ GUARDED_BY(mutex_);
  TurnQueue calls_ GUARDED_BY(mutex_);
  Inbox urgent_ GUARDED_BY(mutex_);
  bool is_waiting_ GUARDED_BY(mutex_) = false;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace sheaf
