// ComputationRunner: runs computations, each piece of work wherever `spawn` puts it.
//
//   ComputationRunner runner(table.Make(parts), [&](std::function<void()> work) { pool.Post(std::move(work)); });
//   ComputationRunner inline_runner(table.Make(parts), [](std::function<void()> work) { work(); });
//
// Thread-safe if `spawn` is. Outlives the work it spawned.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sdk/cpp/computation/computation.h"
#include "worker/runner.h"

namespace sheaf {

class ComputationRunner final : public Runner {
 public:
  // Runs `work` once, now or later, in any thread.
  using Spawn = std::function<void(std::function<void()> work)>;

  ComputationRunner(std::vector<std::unique_ptr<Computation>> computations, Spawn spawn)
      : computations_(std::move(computations)), spawn_(std::move(spawn)) {}

  std::vector<v1::OfferedComputation> Offers() const override;
  absl::Duration offer_pause() const override;
  void Prepare(std::shared_ptr<const v1::Lease> lease, std::shared_ptr<RunControl> control, PrepareDone done) override;
  void Run(std::shared_ptr<PreparedTask> task, std::shared_ptr<const TaskInputs> inputs,
           std::shared_ptr<RunControl> control, RunDone done) override;

 private:
  absl::StatusOr<const Computation*> Find(const v1::Computation& wanted) const;

  const std::vector<std::unique_ptr<Computation>> computations_;
  const Spawn spawn_;
};

}  // namespace sheaf
