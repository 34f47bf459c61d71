// BatchFigures: what is counted of the core's batches by whoever runs them: how many calls share one, how long they
// wait for it, and where its time goes.
//
//   figures.running_since.Set(absl::ToUnixNanos(now));
//   figures.events.Observe(64);
//   figures.cpu.Add("WorkService/Sync", absl::Microseconds(300));
//
// One thread writes; reading is thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/counter.h"
#include "base/histogram.h"

namespace sheaf {

// Processor time by what it was spent on. There are few such texts, and they live for ever: Executor::NoteWork's.
class WorkCosts {
 public:
  void Add(std::string_view what, absl::Duration cost) {
    const size_t size = size_.load(std::memory_order_relaxed);
    for (size_t i = 0; i < size; ++i) {
      // Mostly the same text, and not only an equal one.
      if (entries_[i].what.data() != what.data() && entries_[i].what != what) continue;
      return entries_[i].nanoseconds.Add(absl::ToInt64Nanoseconds(cost));
    }
    if (size == entries_.size()) return;
    entries_[size].what = what;
    entries_[size].nanoseconds.Add(absl::ToInt64Nanoseconds(cost));
    size_.store(size + 1, std::memory_order_release);
  }
  void ForEach(absl::FunctionRef<void(std::string_view what, absl::Duration cost)> use) const {
    const size_t size = size_.load(std::memory_order_acquire);
    for (size_t i = 0; i < size; ++i) use(entries_[i].what, absl::Nanoseconds(entries_[i].nanoseconds.value()));
  }

 private:
  struct Entry {
    std::string_view what;
    Counter nanoseconds;
  };
  // The methods, and some ten parts of a tick.
  std::array<Entry, 96> entries_;
  std::atomic<size_t> size_ = 0;
};

struct BatchFigures {
  // All of these of batches that brought events; a tick alone says nothing of the load.
  Histogram events{kCountBounds};
  // Each event, from its arrival until its batch began.
  Histogram queue_seconds{kDurationBounds};
  // The events and the tick, until the commit began.
  Histogram work_seconds{kDurationBounds};
  // Of the commit: the spools' flush, and the store's.
  Histogram flush_seconds{kDurationBounds};
  Histogram commit_seconds{kDurationBounds};
  Counter failed;
  // When the batch began that runs, in nanoseconds of Unix time; 0: none runs.
  Gauge running_since;
  WorkCosts cpu;
};

}  // namespace sheaf
