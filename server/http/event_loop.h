// EventLoop: one thread that waits for many sockets, and does what they have for it. A connection belongs to one loop
// for all its life, so that nothing of it needs a lock; what other threads have for it, an answer above all, they post.
//
//   EventLoop loop(clock);
//   loop.Start([&](absl::Time now) { pipeline.Tick(now); });   // Twice a second, or more often.
//   loop.Post(connection);                      // Any thread: connection->OnPosted() in the loop, soon.
//   loop.Stop();
//
// Posts are gathered: the core answers a whole batch of calls, and wakes the thread once.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/http/deadlines.h"

namespace sheaf {

// Whom a loop serves.
class LoopClient {
 public:
  virtual ~LoopClient() = default;
  // All in the loop's thread.
  virtual void OnPosted() = 0;
  virtual void OnDeadline() = 0;
  virtual void OnTimer() = 0;
  // The server ends; at once, or as soon as what is under way is done.
  virtual void OnStop(bool at_once) = 0;
};

class EventLoop {
 public:
  // How many are worth while: some, as the core has a thread of its own.
  static int NumForThisMachine();

  explicit EventLoop(const Clock& clock);
  // Stops.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  void Start(std::function<void(absl::Time now)> tick);
  // Nothing runs any more when it returns. Stopping twice is fine.
  void Stop();

  // --- Any thread ---
  void Post(std::shared_ptr<LoopClient> client) EXCLUDES(mutex_);
  // OnStop of every client there is.
  void StopClients(bool at_once);
  absl::Time Now() const { return clock_.Now(); }

  // --- Only in the loop's thread, once it has started ---
  boost::asio::io_context& context() { return context_; }
  Deadlines<LoopClient>& deadlines() { return deadlines_; }
  // The time as HTTP writes it: "Mon, 23 Nov 2026 14:00:00 GMT".
  const std::string& Date();
  // To read into. What is in it lasts until somebody else reads.
  std::span<char> scratch() { return scratch_; }
  // Calls client->OnTimer() at `time`, about; a client has one of these at most.
  void SetTimer(absl::Time time, LoopClient* client);
  void RemoveTimer(absl::Time time, LoopClient* client) { timers_.erase({time, client}); }

 private:
  void Drain() EXCLUDES(mutex_);
  void Tick();
  void Arm();

  const Clock& clock_;
  boost::asio::io_context context_;
  boost::asio::steady_timer timer_;
  // When it rings.
  absl::Time next_tick_;
  std::function<void(absl::Time now)> tick_;
  Deadlines<LoopClient> deadlines_;
  std::set<std::pair<absl::Time, LoopClient*>> timers_;
  std::vector<char> scratch_;
  int64_t date_second_ = 0;
  std::string date_;
  std::thread thread_;
  Mutex mutex_;
  std::vector<std::shared_ptr<LoopClient>> posted_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
