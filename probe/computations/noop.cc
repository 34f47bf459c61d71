#include "probe/computations/noop.h"

#include "probe/one_hot.h"

namespace sheaf {
namespace {

class Noop final : public Computation {
 public:
  std::string_view name() const override { return kNoopComputation; }
  int version() const override { return 1; }
  absl::StatusOr<std::unique_ptr<PreparedTask>> Prepare(const v1::Lease& lease, RunControl&) const override {
    return std::make_unique<InputlessTask>([spec = lease.aggregate()](RunControl&) { return ZeroContribution(spec); });
  }
};

}  // namespace

ComputationRow NoopComputation() {
  return {
      .name = kNoopComputation, .data = {}, .make = [](const ComputationParts&) { return std::make_unique<Noop>(); }};
}

}  // namespace sheaf
