// WorkerRuntime: the loop with everything real around it: gRPC, and a thread for each task at a time.
//
//   WorkerRuntime runtime(config, clock, random);
//   RETURN_IF_ERROR(runtime.Start());
//   absl::Status status = runtime.Run();                 // Until it was drained or refused; from another thread:
//   runtime.RequestDrain();
//
// Opens no listening socket.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/random.h"
#include "worker/config.h"
#include "worker/processes/process_host.h"

namespace sheaf {

class WorkerRuntime {
 public:
  // `config.options.worker` is replaced by a name of this host if it is empty.
  // `clock` and `random` outlive it; `random` is used by the thread that calls Start and Run. So does `host`, which is
  // null if the config names no programs.
  WorkerRuntime(WorkerConfig config, const Clock& clock, Random& random, ProcessHost* host = nullptr);
  ~WorkerRuntime();

  // INVALID_ARGUMENT if the config names data that there is not; the codes of CheckChannelSecurity.
  absl::Status Start();
  // Returns when the loop is done: its exit status.
  absl::Status Run();
  // Finish or give back what is held, then let Run return. Thread-safe.
  void RequestDrain();
  // After Run: computations that were told to stop and have not noticed. Destroying the runtime waits for them.
  int num_stragglers() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sheaf
