#include "server/threads/strand_pool.h"

#include <utility>

namespace sheaf {

StrandPool::StrandPool(int num_threads) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
}

StrandPool::~StrandPool() { Stop(); }

void StrandPool::Run(const std::string& strand, Job job) {
  {
    MutexLock lock(mutex_);
    if (is_stopping()) return;
    const auto [found, is_new] = strands_.try_emplace(strand);
    found->second.push_back(std::move(job));
    if (!is_new) return;
    ready_.push_back(strand);
  }
  work_.NotifyOne();
}

void StrandPool::Work() {
  for (;;) {
    std::string strand;
    Job job;
    {
      MutexLock lock(mutex_);
      while (ready_.empty() && !is_stopping()) work_.Wait(mutex_);
      if (is_stopping()) return;
      strand = std::move(ready_.front());
      ready_.pop_front();
      std::deque<Job>& jobs = strands_.at(strand);
      job = std::move(jobs.front());
      jobs.pop_front();
    }
    job();
    // What it holds may be large: it is freed before the next one of the strand begins.
    job = nullptr;
    MutexLock lock(mutex_);
    const auto found = strands_.find(strand);
    if (!found->second.empty()) {
      ready_.push_back(std::move(strand));
      work_.NotifyOne();
    } else {
      strands_.erase(found);
      if (strands_.empty()) idle_.NotifyAll();
    }
  }
}

bool StrandPool::WaitUntilIdle(const Clock& clock, absl::Duration timeout) {
  const absl::Time end = clock.Now() + timeout;
  MutexLock lock(mutex_);
  for (absl::Duration left = timeout; !strands_.empty() && left > absl::ZeroDuration(); left = end - clock.Now()) {
    idle_.WaitFor(mutex_, left);
  }
  return strands_.empty();
}

void StrandPool::Stop() {
  {
    MutexLock lock(mutex_);
    is_stopping_.store(true, std::memory_order_relaxed);
  }
  work_.NotifyAll();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace sheaf
