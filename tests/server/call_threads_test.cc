// Who gets a thread.
#include "server/threads/call_threads.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "base/mutex.h"

namespace sheaf {
namespace {

using Length = CallPool::Length;

// Calls that run until they are let go.
class HeldCalls {
 public:
  std::function<void()> Call(const std::string& name) {
    return [this, name] {
      MutexLock lock(mutex_);
      running_.insert(name);
      changed_.NotifyAll();
      while (!released_.contains(name) && !are_all_released_) changed_.Wait(mutex_);
      running_.erase(running_.find(name));
      ended_.insert(name);
      changed_.NotifyAll();
    };
  }
  void Release(const std::string& name) {
    MutexLock lock(mutex_);
    released_.insert(name);
    changed_.NotifyAll();
  }
  void ReleaseAll() {
    MutexLock lock(mutex_);
    are_all_released_ = true;
    changed_.NotifyAll();
  }
  // Waits until these run, and no others have begun.
  void CheckRunning(const std::multiset<std::string>& names) {
    MutexLock lock(mutex_);
    for (int i = 0; i < 1000 && running_ != names; ++i) changed_.WaitFor(mutex_, absl::Milliseconds(10));
    // Whoever else could run would begin now.
    changed_.WaitFor(mutex_, absl::Milliseconds(50));
    CHECK(running_ == names);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::multiset<std::string> running_;
  std::set<std::string> released_;
  std::multiset<std::string> ended_;
  bool are_all_released_ = false;
};

TEST_CASE("One client has all threads but one, and the others' calls go on") {
  HeldCalls calls;
  CallThreads threads(4);
  for (int i = 0; i < 10; ++i) threads.Run("greedy", Length::kShort, calls.Call("greedy"));
  calls.CheckRunning({"greedy", "greedy", "greedy"});
  threads.Run("alice", Length::kShort, calls.Call("alice"));
  calls.CheckRunning({"alice", "greedy", "greedy", "greedy"});
  // Bob's is next, although greedy's came before.
  threads.Run("bob", Length::kShort, calls.Call("bob"));
  calls.Release("alice");
  calls.CheckRunning({"bob", "greedy", "greedy", "greedy"});
  calls.ReleaseAll();
}

TEST_CASE("Long calls have half of the threads, whoever's they are") {
  HeldCalls calls;
  CallThreads threads(4);
  for (const char* client : {"a", "b", "c", "d"}) threads.Run(client, Length::kLong, calls.Call(client));
  calls.CheckRunning({"a", "b"});
  threads.Run("e", Length::kShort, calls.Call("e"));
  threads.Run("f", Length::kShort, calls.Call("f"));
  calls.CheckRunning({"a", "b", "e", "f"});
  calls.Release("e");
  calls.CheckRunning({"a", "b", "f"});
  calls.Release("a");
  calls.CheckRunning({"b", "c", "f"});
  calls.ReleaseAll();
}

TEST_CASE("What waits when the threads end is run") {
  Mutex mutex;
  int num_run = 0;
  {
    CallThreads threads(1);
    for (int i = 0; i < 100; ++i) {
      threads.Run(std::to_string(i % 7), i % 2 == 0 ? Length::kShort : Length::kLong, [&] {
        MutexLock lock(mutex);
        ++num_run;
      });
    }
  }
  CHECK(num_run == 100);
}

}  // namespace
}  // namespace sheaf
