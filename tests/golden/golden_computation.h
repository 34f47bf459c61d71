// GoldenRunner: the computation "golden", version 1, under virtual time. What it does stands in the payload of its
// task, as JSON, so that a worker in any language can do the same; README.md has the table.
//
//   GoldenRunner runner(agenda);
//   task.set_payload(R"({"seconds": 3, "value": 2})");
//
// Its contribution has `value` in every element of the round's only output. Not thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "tests/simulation/agenda.h"
#include "worker/runner.h"

namespace sheaf::golden {

class GoldenRunner final : public Runner {
 public:
  // Must outlive what it runs.
  explicit GoldenRunner(simulation::Agenda& agenda) : agenda_(agenda) {}

  std::vector<v1::OfferedComputation> Offers() const override;
  void Prepare(std::shared_ptr<const v1::Lease> lease, std::shared_ptr<RunControl> control, PrepareDone done) override;
  void Run(std::shared_ptr<PreparedTask> task, std::shared_ptr<const TaskInputs> inputs,
           std::shared_ptr<RunControl> control, RunDone done) override;

 private:
  simulation::Agenda& agenda_;
};

}  // namespace sheaf::golden
