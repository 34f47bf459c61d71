#include "server/threads/aggregation_pool.h"

#include <algorithm>

namespace sheaf {
namespace {

// Takes about as long as to wake a thread that sleeps: who waits for less had better stay awake.
constexpr int kLooks = 100;

// Until `is_done`, or for so many looks, leaving the core to who needs it.
template <typename IsDone>
void StayAwake(IsDone is_done) {
  for (int i = 0; i < kLooks && !is_done(); ++i) std::this_thread::yield();
}

}  // namespace

AggregationPool::AggregationPool() : AggregationPool(static_cast<int>(std::thread::hardware_concurrency()) - 1) {}

AggregationPool::AggregationPool(int num_helpers) {
  for (int i = 0; i < num_helpers; ++i) helpers_.emplace_back([this] { Help(); });
}

AggregationPool::~AggregationPool() {
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  work_.NotifyAll();
  for (std::thread& helper : helpers_) helper.join();
}

void AggregationPool::Run(int n, const std::function<void(int)>& body) {
  bool is_shared = false;
  if (n > 1 && !helpers_.empty()) {
    MutexLock lock(mutex_);
    is_shared = body_ == nullptr;
    if (is_shared) {
      body_ = &body;
      num_parts_ = n;
      next_part_ = 0;
      parts_done_.store(0, std::memory_order_relaxed);
      num_loops_.fetch_add(1, std::memory_order_release);
    }
  }
  if (!is_shared) {
    for (int i = 0; i < n; ++i) body(i);
    return;
  }
  work_.NotifyAll();
  TakeParts();
  StayAwake([this, n] { return parts_done_.load(std::memory_order_relaxed) == n; });
  MutexLock lock(mutex_);
  while (parts_done_ < num_parts_) done_.Wait(mutex_);
  num_parts_ = next_part_ = 0;
  body_ = nullptr;
}

void AggregationPool::TakeParts() {
  for (;;) {
    const std::function<void(int)>* body = nullptr;
    int part = 0;
    {
      MutexLock lock(mutex_);
      if (next_part_ >= num_parts_) return;
      part = next_part_++;
      body = body_;
    }
    (*body)(part);
    MutexLock lock(mutex_);
    if (++parts_done_ == num_parts_) done_.NotifyAll();
  }
}

void AggregationPool::Help() {
  for (;;) {
    const uint64_t seen = num_loops_.load(std::memory_order_acquire);
    TakeParts();
    StayAwake([this, seen] { return num_loops_.load(std::memory_order_acquire) != seen; });
    {
      MutexLock lock(mutex_);
      while (!is_stopping_ && next_part_ >= num_parts_) work_.Wait(mutex_);
      if (is_stopping_) return;
    }
  }
}

}  // namespace sheaf
