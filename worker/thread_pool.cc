#include "worker/thread_pool.h"

#include <utility>

namespace sheaf {

ThreadPool::ThreadPool(int num_threads) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Post(std::function<void()> work) {
  {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.NotifyOne();
}

void ThreadPool::Work() {
  while (std::function<void()> work = Next()) work();
}

std::function<void()> ThreadPool::Next() {
  MutexLock lock(mutex_);
  while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
  if (queue_.empty()) return nullptr;
  std::function<void()> work = std::move(queue_.front());
  queue_.pop_front();
  return work;
}

}  // namespace sheaf
