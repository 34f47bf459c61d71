#include "tests/simulation/round_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "proto/time.h"

namespace sheaf::simulation {
namespace {

constexpr int kTasksMax = 10;

int UpTo(Random& random, int most) { return 1 + static_cast<int>(random.Below(static_cast<uint64_t>(most))); }

v1::DType DrawDType(Random& random) {
  constexpr v1::DType kTypes[] = {v1::INT64, v1::FLOAT32, v1::FLOAT64, v1::INT32};
  return kTypes[random.Below(4)];
}

void AddOutput(const char* name, const char* symbol, Random& random, v1::AggregateSpec& spec) {
  v1::OutputSpec* output = spec.add_outputs();
  output->set_name(name);
  output->set_operator_(symbol);
  output->set_dtype(DrawDType(random));
  output->add_dense_shape(kTasksMax + 1);
}

v1::TaskSpec Task(int index, Random& random) {
  v1::TaskSpec task;
  // Element 0 is left to the sparse outputs' mark.
  task.set_payload(std::to_string(index + 1));
  if (random.Chance(0.1)) (*task.mutable_requirements())["gpu"] = "yes";
  return task;
}

void DrawWork(Random& random, v1::RoundSpec& spec) {
  int count = UpTo(random, kTasksMax);
  int goal = count;
  if (random.Chance(0.7)) {
    for (int i = 0; i < count; ++i) *spec.mutable_listed()->add_tasks() = Task(i, random);
    if (random.Chance(0.5)) goal = UpTo(random, count);
    if (goal < count || random.Chance(0.5)) spec.set_goal(goal);
  } else {
    v1::OpenSlots& slots = *spec.mutable_open_slots();
    *slots.mutable_task() = Task(static_cast<int>(random.Below(kTasksMax)), random);
    if (random.Chance(0.3)) slots.set_per_worker_max(UpTo(random, 3));
    if (random.Chance(0.5)) {
      slots.set_count(count);
    } else {
      spec.set_goal(goal);
      if (random.Chance(0.5)) spec.set_over_selection(1 + random.Fraction());
    }
  }
  if (random.Chance(0.5)) spec.set_min_goal(UpTo(random, goal));
  if (random.Chance(0.2)) spec.set_min_clients(UpTo(random, goal));
}

// Few different ones, so that rounds of a population share them.
const SimBroadcast& DrawBroadcast(const std::string& population, Random& random) {
  const int number = static_cast<int>(random.Below(3));
  return BroadcastOf({.population = population, .number = number, .num_patches = static_cast<int>(random.Below(3))});
}

// Worlds are small: a few seconds more than a few others took make a straggler.
void DrawStraggler(Random& random, v1::StragglerPolicy& policy) {
  const bool has_deadline = random.Chance(0.2);
  policy.set_speculate(!has_deadline || random.Chance(0.5));
  if (has_deadline) policy.set_deadline_factor(1 + 5 * random.Fraction());
  policy.set_remaining_share_max(0.25 + 0.75 * random.Fraction());
  policy.set_quantile(0.2 + 0.7 * random.Fraction());
  policy.set_factor(1 + random.Fraction());
  policy.set_finished_min(UpTo(random, 2));
}

}  // namespace

RoundPlan RoundPlan::Draw(int number, Random& random) {
  RoundPlan plan;
  plan.request_id = fmt::format("request-{}", number);
  plan.create_after = random.Between(absl::ZeroDuration(), absl::Seconds(60));
  if (random.Chance(0.15)) plan.cancel_after = random.Between(absl::ZeroDuration(), absl::Seconds(30));

  v1::RoundSpec& spec = plan.spec;
  spec.set_population(random.Chance(0.6) ? "red" : "blue");
  spec.set_job(fmt::format("job-{}", random.Below(2)));
  spec.mutable_computation()->set_name("one_hot");
  AddOutput("dense", "sum", random, *spec.mutable_aggregate());
  AddOutput("sparse", "sparse_sum", random, *spec.mutable_aggregate());
  DrawWork(random, spec);
  *spec.mutable_deadline() = ToProto(random.Between(absl::Seconds(10), absl::Seconds(200)));
  *spec.mutable_lease_duration() = ToProto(random.Between(absl::Seconds(2), absl::Seconds(20)));
  if (random.Chance(0.3)) {
    *spec.mutable_attempt_deadline() = ToProto(random.Between(absl::Seconds(2), absl::Seconds(60)));
  }
  spec.set_priority(UpTo(random, 5));
  if (random.Chance(0.7)) spec.mutable_retry()->set_failed_max(UpTo(random, 4));
  if (random.Chance(0.5)) spec.mutable_retry()->set_lost_max(UpTo(random, 6));
  if (random.Chance(0.2)) {
    // Few different ones, so that rounds share them.
    plan.broadcast = &DrawBroadcast(spec.population(), random);
    spec.set_broadcast_digest(plan.broadcast->digest);
  }
  spec.set_durability(random.Chance(0.65) ? v1::DURABLE : v1::EPHEMERAL);
  if (random.Chance(0.5)) DrawStraggler(random, *spec.mutable_straggler());
  return plan;
}

RoundPlan RoundPlan::DrawContinued(int number, Random& random) {
  RoundPlan plan = Draw(number, random);
  v1::RoundSpec& spec = plan.spec;
  spec.clear_work();
  const int count = 3 + UpTo(random, kTasksMax - 3);
  for (int i = 0; i < count; ++i) *spec.mutable_listed()->add_tasks() = Task(i, random);
  spec.set_goal(UpTo(random, 3));
  spec.set_min_goal(UpTo(random, spec.goal()));
  spec.clear_min_clients();
  // What a discount shows in.
  AddOutput("mean", "weighted_mean", random, *spec.mutable_aggregate());
  spec.mutable_aggregate()->mutable_outputs(2)->set_dtype(v1::FLOAT64);
  // Second leases, too, are carried over.
  if (random.Chance(0.5)) {
    v1::StragglerPolicy& policy = *spec.mutable_straggler();
    DrawStraggler(random, policy);
    policy.set_speculate(true);
    policy.clear_deadline_factor();
    policy.set_remaining_share_max(1);
    policy.set_finished_min(1);
    policy.set_quantile(std::min(policy.quantile(), 0.5));
    policy.set_factor(1);
  }
  return plan;
}

RoundPlan RoundPlan::DrawContinuing(int number, const RoundPlan& before, Random& random) {
  RoundPlan plan = DrawContinued(number, random);
  plan.create_after = before.create_after + random.Between(absl::ZeroDuration(), absl::Seconds(3));
  plan.continues = before.request_id;
  plan.spec.set_population(before.spec.population());
  if (plan.broadcast != nullptr) {
    plan.broadcast = &DrawBroadcast(plan.spec.population(), random);
    plan.spec.set_broadcast_digest(plan.broadcast->digest);
  }
  plan.spec.set_job(before.spec.job());
  *plan.spec.mutable_aggregate() = before.spec.aggregate();
  plan.spec.set_durability(before.spec.durability());
  if (random.Chance(0.5)) plan.spec.mutable_staleness()->set_max(UpTo(random, 2));
  if (random.Chance(0.5)) {
    plan.spec.mutable_staleness()->set_function(v1::POLYNOMIAL);
    if (random.Chance(0.5)) plan.spec.mutable_staleness()->set_exponent(0.1 + random.Fraction());
  }
  return plan;
}

void RoundPlan::Announce(Random& random) {
  spec.set_announced(true);
  *spec.mutable_announce_deadline() = ToProto(random.Between(absl::Seconds(5), absl::Seconds(90)));
  spec.clear_broadcast_digest();
  broadcast = random.Chance(0.6) ? &DrawBroadcast(spec.population(), random) : nullptr;
  if (random.Chance(0.9)) open_after = random.Between(absl::ZeroDuration(), absl::Seconds(40));
  opens_inline = broadcast != nullptr && random.Chance(0.5);
  const uint64_t again = random.Below(4);
  if (again < 2) opens_again = again == 0 ? OpensAgain::kWithTheSame : OpensAgain::kWithAnother;
}

Limits DrawLimits(Random& random) {
  Limits limits;
  limits.retry_backoff_max = absl::Seconds(10);
  if (random.Chance(0.3)) {
    limits.inline_bytes_max = 16;
    limits.chunk_bytes_max = 64;
  }
  if (random.Chance(0.7)) limits.checkpoint_contributions = UpTo(random, 4);
  if (random.Chance(0.3)) limits.checkpoint_spool_bytes = 100;
  if (random.Chance(0.5)) limits.ended_keep = random.Between(absl::ZeroDuration(), absl::Minutes(2));
  if (random.Chance(0.5)) limits.ended_rounds_max = static_cast<int64_t>(random.Below(4));
  if (random.Chance(0.2)) limits.live_rounds_max = UpTo(random, 3);
  if (random.Chance(0.5)) limits.tasks_per_batch_max = UpTo(random, 4);
  limits.unreferenced_keep = random.Between(absl::Minutes(1), absl::Minutes(5));
  if (random.Chance(0.5)) limits.broadcast_linger = random.Between(absl::ZeroDuration(), absl::Seconds(10));
  return limits;
}

}  // namespace sheaf::simulation
