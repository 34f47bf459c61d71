// RunControl: what a running attempt and the loop that watches it tell each other.
//
//   while (more && !control.is_cancelled()) { Work(); control.ReportProgress(); }
//
// A lease is renewed only while progress grows, so a computation that runs for long reports it; one that is
// told to stop returns soon, with whatever status. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace sheaf {

class RunControl {
 public:
  // By the computation.
  void ReportProgress(int64_t by = 1) { progress_.fetch_add(by, std::memory_order_relaxed); }
  bool is_cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // By the loop.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  int64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> progress_{0};
  std::atomic<bool> cancelled_{false};
};

}  // namespace sheaf
