// FaultyRunner: runs the real computations in virtual time. Some runs are slow but make progress, some hang and do not
// even notice that they are cancelled, some fail, some return what is wrong. So does what is prepared for announced
// rounds; and it needs the broadcast, if there is one.
#pragma once

#include <functional>
#include <memory>
#include <utility>
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
  // Called when a task of a round that was announced begins to run.
  using OnAheadRuns = std::function<void(const v1::Lease& lease, const TaskInputs& inputs)>;
  void set_on_ahead_runs(OnAheadRuns on_ahead_runs) { on_ahead_runs_ = std::move(on_ahead_runs); }
  // What hangs goes on, and what is slow is quick, from here on.
  void Mend();

 private:
  struct Job {
    std::shared_ptr<RunControl> control;
    // When its time is over.
    std::function<void()> finish;
    absl::Time end;
    bool hangs = false;
    bool is_over = false;
  };
  void Begin(const std::shared_ptr<Job>& job, bool is_slow, absl::Duration most);
  void GoOn(const std::shared_ptr<Job>& job);

  Weather& weather_;
  Runner& inner_;
  OnAheadRuns on_ahead_runs_ = [](const v1::Lease&, const TaskInputs&) {};
  std::vector<std::weak_ptr<Job>> jobs_;
};

}  // namespace sheaf::simulation
