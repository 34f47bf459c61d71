// FaultyRunner: runs the real computations in virtual time. Some runs are slow but make progress, some hang and do not
// even notice that they are cancelled, some fail, some return what is wrong.
#pragma once

#include <memory>
#include <vector>

#include "tests/simulation/weather.h"
#include "worker/runner.h"

namespace sheaf::simulation {

class FaultyRunner final : public Runner {
 public:
  // Both outlive the runner.
  FaultyRunner(Weather& weather, Runner& inner) : weather_(weather), inner_(inner) {}

  std::vector<v1::OfferedComputation> Offers() const override { return inner_.Offers(); }
  void Prepare(std::shared_ptr<const v1::Lease> lease, std::shared_ptr<RunControl> control, PrepareDone done) override;
  void Run(std::shared_ptr<PreparedTask> task, std::shared_ptr<const TaskInputs> inputs,
           std::shared_ptr<RunControl> control, RunDone done) override;
  // What hangs goes on, and what is slow is quick, from here on.
  void Mend();

 private:
  struct Job {
    std::shared_ptr<PreparedTask> task;
    std::shared_ptr<const TaskInputs> inputs;
    std::shared_ptr<RunControl> control;
    RunDone done;
    absl::Time end;
    bool hangs = false;
    bool is_over = false;
  };
  void GoOn(const std::shared_ptr<Job>& job);

  Weather& weather_;
  Runner& inner_;
  std::vector<std::weak_ptr<Job>> jobs_;
};

}  // namespace sheaf::simulation
