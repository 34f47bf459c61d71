// Background: work that grows with somebody's data, and therefore has no place on the core's thread, where everybody
// would wait for it.
//
//   background.Run("r-2k5m", [=] { LogInfo("fold"); });               // These two one after the other,
//   background.Run("r-2k5m", [=] { LogInfo("write a checkpoint"); });
//   background.Run("r-9x3c", [=] { LogInfo("fold another"); });       // this one perhaps at the same time.
//
// A job touches nothing of the core's; what comes of it is posted to the Executor, and decided there on what is true by
// then. A crash, or the end of the process, may leave a job undone.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/byte_sink.h"

namespace sheaf {

class Background {
 public:
  using Job = std::function<void()>;
  virtual ~Background() = default;

  // Runs `job` soon, perhaps on another thread. Jobs of one strand run one at a time, in the order of these calls.
  virtual void Run(const std::string& strand, Job job) = 0;
  // The process is about to end: a job that takes long should give up. Thread-safe.
  virtual bool is_stopping() const { return false; }
};

// At once, in the caller's thread: for tests of something else.
class InlineBackground final : public Background {
 public:
  void Run(const std::string&, Job job) override { job(); }
};

// `take`, until the process is about to end: what is written from then on would not be finished in time. CANCELLED.
// `background` and `take` outlive what is returned.
inline ByteSink UnlessStopping(const Background& background, const ByteSink& take) {
  return [&background, &take](std::string_view piece) {
    return background.is_stopping() ? absl::CancelledError("the server is stopping") : take(piece);
  };
}

}  // namespace sheaf
