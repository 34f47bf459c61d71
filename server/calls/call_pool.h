// CallPool: where calls run that move bytes, hash, flush or parse much: threads of their own, so that those of the
// transport go on receiving.
//
//   pool.Run(client, CallPool::Length::kLong, [] { HashAndFlush(); });
//
// The server has threads (server/threads/call_threads.h); the simulation does such calls at once.
#pragma once

#include <functional>
#include <string>

namespace sheaf {

class CallPool {
 public:
  // A chunk's worth of work, or as much as a file has.
  enum class Length { kShort, kLong };

  virtual ~CallPool() = default;

  // Runs `work` soon, or at once. `client` is whose it is: those of one client do not keep others out. Thread-safe.
  virtual void Run(const std::string& client, Length length, std::function<void()> work) = 0;
};

class CallsAtOnce final : public CallPool {
 public:
  void Run(const std::string& /*client*/, Length /*length*/, std::function<void()> work) override { work(); }
};

}  // namespace sheaf
