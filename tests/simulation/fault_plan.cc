#include "tests/simulation/fault_plan.h"

namespace sheaf::simulation {
namespace {

// Zero in half of the worlds, mostly small in the others.
double Rate(Random& random, double most) {
  if (random.Chance(0.5)) return 0;
  double fraction = random.Fraction();
  return fraction * fraction * most;
}

}  // namespace

FaultPlan FaultPlan::Draw(Random& random, Random& of_announced) {
  FaultPlan plan;
  plan.request_lost = Rate(random, 0.4);
  plan.response_lost = Rate(random, 0.4);
  plan.duplicated = Rate(random, 0.4);
  plan.reset = Rate(random, 0.3);
  plan.delayed = Rate(random, 0.4);
  plan.delay_max = random.Between(absl::Milliseconds(100), absl::Seconds(20));
  plan.partition = Rate(random, 0.05);
  plan.partition_max = random.Between(absl::Seconds(1), absl::Seconds(60));
  plan.swizzle = Rate(random, 0.1);

  plan.uses_tokens = random.Chance(0.2);
  if (random.Chance(0.6)) plan.operations_per_crash = int64_t{50} << random.Below(7);
  plan.downtime_max = random.Between(absl::Milliseconds(10), absl::Seconds(15));
  plan.graceful_restart = Rate(random, 0.05);
  plan.disk_full = Rate(random, 0.03);

  plan.worker_crash = Rate(random, 0.05);
  plan.worker_stop = Rate(random, 0.03);
  plan.worker_drained = Rate(random, 0.02);

  plan.run_max = absl::Milliseconds(100) * (1 << random.Below(7));
  plan.run_slow = Rate(random, 0.3);
  plan.run_hangs = Rate(random, 0.2);
  plan.run_fails = Rate(random, 0.5);
  plan.run_fails_for_good = Rate(random, 0.1);
  plan.run_wrong = Rate(random, 0.2);

  if (of_announced.Chance(0.4)) plan.announced = 0.4 + 0.6 * of_announced.Fraction();
  plan.prepare_max = absl::Milliseconds(100) * (1 << of_announced.Below(8));
  plan.prepare_ahead = static_cast<int>(of_announced.Below(3));
  return plan;
}

}  // namespace sheaf::simulation
