// RelayRunner: runs a task of the server above as a round on the server below, and returns the partial aggregate that
// the round releases. So a worker of one server is a submitter of another, and many such make a tree.
//
//   RelayRunner relay({.below = transport, .waiter = waiter, .random = random, .spawn = spawn}, options, {"tags"});
//   relay.LookBelow();                                              // Blocks. Every few seconds, from any thread.
//
// It holds nothing that it cannot lose: the round below goes on without it, and a relay that is restarted under its
// name is sent its leases again and finds their rounds again. A round whose task is taken away is cancelled. A lease is
// renewed while workers below have tasks of its round, or hand them in. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/random.h"
#include "sdk/cpp/client/transport.h"
#include "sdk/cpp/computation/waiter.h"
#include "worker/relay/offers_below.h"
#include "worker/relay/relayed_spec.h"
#include "worker/runner.h"

namespace sheaf {

class RelayRunner final : public Runner {
 public:
  // Runs something that takes as long as a round.
  using Spawn = std::function<void(std::function<void()> work)>;
  struct Parts {
    // All outlive the runner and what it spawned.
    Transport& below;
    Waiter& waiter;
    // Used under a lock of the runner's: given to nobody else.
    Random& random;
    Spawn spawn;
    // The largest partial aggregate that it passes on.
    int64_t contribution_bytes_max = 0;
  };
  // `allow`: the computations that it offers of those below; empty: all.
  RelayRunner(Parts parts, RelayOptions options, std::vector<std::string> allow);

  // Learns what to offer, and logs when the server below cannot say, and when it can again.
  void LookBelow() EXCLUDES(mutex_);

  std::vector<v1::OfferedComputation> Offers() const override { return offers_.newest(); }
  absl::Duration offer_pause() const override;
  // Errors as RelayedSpec.
  void Prepare(std::shared_ptr<const v1::Lease> lease, std::shared_ptr<RunControl> control, PrepareDone done) override;
  void Run(std::shared_ptr<PreparedTask> task, std::shared_ptr<const TaskInputs> inputs,
           std::shared_ptr<RunControl> control, RunDone done) override;

  // How often to LookBelow.
  static constexpr absl::Duration kLookEvery = absl::Seconds(2);

 private:
  struct Task;
  absl::StatusOr<RunOutcome> Relay(const Task& task, const TaskInputs& inputs, RunControl& control);
  void Pause(const absl::Status& status) EXCLUDES(mutex_);
  void CancelBelow(const Task& task, const std::string& round);

  const Parts parts_;
  const RelayOptions options_;
  OffersBelow offers_;
  Mutex mutex_;
  Random& random_ GUARDED_BY(mutex_);
  // What LookBelow said last, and logged.
  absl::Status seen_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
