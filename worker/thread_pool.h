// ThreadPool: the threads of a worker. Runs work in the order it came.
//
//   ThreadPool pool(concurrency);
//   pool.Post([&] { runner.Run(task, inputs, control, on_done); });
//
// Thread-safe. The destructor waits for everything that was posted.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace sheaf {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void Post(std::function<void()> work) EXCLUDES(mutex_);

 private:
  void Work();
  // Empty when there will be no more.
  std::function<void()> Next() EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace sheaf
