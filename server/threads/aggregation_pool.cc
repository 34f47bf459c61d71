#include "server/threads/aggregation_pool.h"

#include <algorithm>

namespace sheaf {

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
      next_part_ = parts_done_ = 0;
    }
  }
  if (!is_shared) {
    for (int i = 0; i < n; ++i) body(i);
    return;
  }
  work_.NotifyAll();
  TakeParts();
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
    {
      MutexLock lock(mutex_);
      while (!is_stopping_ && next_part_ >= num_parts_) work_.Wait(mutex_);
      if (is_stopping_) return;
    }
    TakeParts();
  }
}

}  // namespace sheaf
