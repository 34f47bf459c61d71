// AggregationPool: the ParallelFor of a running server: the thread that folds and some helpers share the parts of one
// fold.
//
//   AggregationPool pool;
//   pool.Run(parts, body);
//
// Thread-safe. Whoever calls Run works too, and does everything if there are no helpers, or they help somebody else.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/parallel_for.h"

namespace sheaf {

class AggregationPool final : public ParallelFor {
 public:
  // One thread, the caller included, for each core of this machine.
  AggregationPool();
  explicit AggregationPool(int num_helpers);
  ~AggregationPool() override;

  void Run(int n, const std::function<void(int)>& body) override;
  int num_threads() const override { return static_cast<int>(helpers_.size()) + 1; }

 private:
  void Help();
  // Takes parts of the current loop until there are none.
  void TakeParts();

  Mutex mutex_;
  CondVar work_;
  CondVar done_;
  const std::function<void(int)>* body_ GUARDED_BY(mutex_) = nullptr;
  int num_parts_ GUARDED_BY(mutex_) = 0;
  int next_part_ GUARDED_BY(mutex_) = 0;
  // Changed with the mutex held; looked at without by who does not sleep yet.
  std::atomic<int> parts_done_ = 0;
  // How many were shared.
  std::atomic<uint64_t> num_loops_ = 0;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> helpers_;
};

}  // namespace sheaf
