// BatchScheduling: while it lives, threads that this one starts are SCHED_BATCH (sched(7)): a wake-up of theirs does
// not interrupt who woke them. The core wakes one of a transport's threads with each answer it gives; interrupted each
// time, it did a quarter less.
//
//   const BatchScheduling scheduling;
//   StartThreads();
//
// Of the thread that makes it, and ends it.
#pragma once

#include <sched.h>

namespace sheaf {

class BatchScheduling {
 public:
  BatchScheduling() : policy_(sched_getscheduler(0)) {
    if (policy_ == SCHED_OTHER) Set(SCHED_BATCH);
  }
  ~BatchScheduling() {
    if (policy_ == SCHED_OTHER) Set(SCHED_OTHER);
  }
  BatchScheduling(const BatchScheduling&) = delete;
  BatchScheduling& operator=(const BatchScheduling&) = delete;

 private:
  // A system that refuses goes on as it was.
  static void Set(int policy) {
    const sched_param parameters = {};
    sched_setscheduler(0, policy, &parameters);
  }
  const int policy_;
};

}  // namespace sheaf
