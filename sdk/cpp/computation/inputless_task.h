// InputlessTask: a PreparedTask that needs nothing of the broadcast.
#pragma once

#include <functional>
#include <utility>

#include "sdk/cpp/computation/computation.h"

namespace sheaf {

class InputlessTask final : public PreparedTask {
 public:
  using Body = std::function<absl::StatusOr<v1::Contribution>(RunControl& control)>;
  explicit InputlessTask(Body body) : body_(std::move(body)) {}

  const InputRequest& input_request() const override { return nothing_; }
  absl::StatusOr<TaskOutcome> Run(const TaskInputs&, RunControl& control) override { return body_(control); }

 private:
  const InputRequest nothing_;
  const Body body_;
};

}  // namespace sheaf
