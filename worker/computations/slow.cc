#include "worker/computations/slow.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/time/time.h"
#include "worker/computations/inputless_task.h"
#include "worker/computations/unit_contribution.h"

namespace sheaf {
namespace {

// How often it looks up.
constexpr absl::Duration kSlice = absl::Milliseconds(50);

class Slow final : public Computation {
 public:
  explicit Slow(Waiter& waiter) : waiter_(waiter) {}
  std::string_view name() const override { return kSlowComputation; }
  int version() const override { return 1; }
  absl::StatusOr<std::unique_ptr<PreparedTask>> Prepare(const v1::Lease& lease, RunControl&) const override {
    absl::Duration duration;
    if (!absl::ParseDuration(lease.payload(), &duration) || duration < absl::ZeroDuration()) {
      return absl::InvalidArgumentError(fmt::format(
          "the payload of a slow task is a duration such as \"1.5s\", and task {} has something else", lease.task()));
    }
    return std::make_unique<InputlessTask>([&waiter = waiter_, spec = lease.aggregate(),
                                            duration](RunControl& control) -> absl::StatusOr<v1::Contribution> {
      for (absl::Duration left = duration; left > absl::ZeroDuration(); left -= kSlice) {
        if (control.is_cancelled()) return absl::CancelledError("told to stop");
        waiter.Wait(std::min(left, kSlice));
        control.ReportProgress();
      }
      return UnitContribution(spec, std::nullopt);
    });
  }

 private:
  Waiter& waiter_;
};

}  // namespace

std::unique_ptr<Computation> MakeSlow(Waiter& waiter) { return std::make_unique<Slow>(waiter); }

}  // namespace sheaf
