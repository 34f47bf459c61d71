// CallThreads: the CallPool of a running server: a few threads that take turns between clients.
//
//   CallThreads threads(limits.call_threads_max);
//   threads.Run("fleet", CallPool::Length::kLong, [] { HashAndFlush(); });
//
// Of n threads one client has at most n - 1, so that whatever it does the others' calls go on; and long calls (a file
// is hashed and flushed) have at most half, so that short ones do not wait for them. Clients whose calls wait take
// turns. Taking the next call is O(1). How many may wait is for Admission to say. Thread-safe.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "server/calls/call_pool.h"

namespace sheaf {

class CallThreads final : public CallPool {
 public:
  explicit CallThreads(int num_threads);
  // Stops.
  ~CallThreads() override;

  void Run(const std::string& client, Length length, std::function<void()> work) override EXCLUDES(mutex_);

  // Runs what waits and ends the threads; nothing may come any more. Stopping twice is fine.
  void Stop() EXCLUDES(mutex_);

 private:
  struct Client {
    std::string name;
    // By length.
    std::array<std::deque<std::function<void()>>, 2> waiting;
    int num_running = 0;
  };
  using Turns = std::list<Client*>;

  void Work();
  // The client whose call is next, removed from its turn; null if there is none that may run.
  Client* NextIn(Length length) REQUIRES(mutex_);
  bool TakeNext(Client*& client, Length& length, std::function<void()>& work) REQUIRES(mutex_);
  void Done(Client* client, Length length) REQUIRES(mutex_);

  const int client_max_;
  const int long_max_;
  Mutex mutex_;
  CondVar wake_;
  std::unordered_map<std::string, Client> clients_ GUARDED_BY(mutex_);
  // Those with calls of that length that wait, each once, by length.
  std::array<Turns, 2> turns_ GUARDED_BY(mutex_);
  int num_long_ GUARDED_BY(mutex_) = 0;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace sheaf
