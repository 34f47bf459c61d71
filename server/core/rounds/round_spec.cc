#include "server/core/rounds/round_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>

#include "aggregation/aggregate_spec.h"
#include "aggregation/operators.h"
#include "base/checksum.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/limits/fixed_limits.h"
#include "server/core/requests/names.h"
#include "server/core/rounds/requirement_match.h"

namespace sheaf {
namespace {

// Of staleness.max, and of staleness.exponent.
constexpr int kStalenessDefault = 10;
constexpr double kStalenessExponentDefault = 0.5;

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

// What the number of open slots is derived from.
absl::Status CheckGoal(const v1::RoundSpec& spec) {
  if (spec.goal() < 0) return Invalid(fmt::format("spec.goal is {}; it must not be negative", spec.goal()));
  // Not a number fails, too.
  if (spec.over_selection() != 0 && !(spec.over_selection() >= 1 && spec.over_selection() <= kOverSelectionMax)) {
    return Invalid(fmt::format("spec.over_selection must lie between 1 and {}", kOverSelectionMax));
  }
  return absl::OkStatus();
}

absl::Status CheckTask(const v1::TaskSpec& task, std::string_view where, const Limits& limits) {
  if (static_cast<int64_t>(task.payload().size()) > limits.task_payload_bytes_max) {
    return limits.Refuse(&Limits::task_payload_bytes_max,
                         fmt::format("{}.payload has {} bytes, over", where, task.payload().size()));
  }
  if (static_cast<int64_t>(task.data_selector().size()) > limits.data_selector_bytes_max) {
    return limits.Refuse(&Limits::data_selector_bytes_max,
                         fmt::format("{}.data_selector has {} bytes, over", where, task.data_selector().size()));
  }
  int64_t requirements_bytes = 0;
  for (const auto& [key, value] : task.requirements()) {
    requirements_bytes += static_cast<int64_t>(key.size() + value.size());
    if (key.empty() || key.find_first_of("=,") != std::string::npos || value.find(',') != std::string::npos) {
      return Invalid(
          fmt::format("{}.requirements: the label \"{}={}\" may not hold ',' or, in its key, '='", where, key, value));
    }
  }
  if (requirements_bytes > limits.worker_bytes_max) {
    return limits.Refuse(&Limits::worker_bytes_max,
                         fmt::format("{}.requirements have {} bytes, over", where, requirements_bytes),
                         "no worker may have as many labels, so require fewer");
  }
  return absl::OkStatus();
}

int64_t PayloadBytes(const v1::TaskSpec& task) {
  size_t bytes = task.payload().size() + task.data_selector().size();
  for (const auto& [key, value] : task.requirements()) bytes += key.size() + value.size() + 2;
  return static_cast<int64_t>(bytes);
}

absl::Status CheckPayloadBytes(int64_t bytes, const Limits& limits) {
  if (bytes <= limits.round_payload_bytes_max) return absl::OkStatus();
  return limits.Refuse(
      &Limits::round_payload_bytes_max,
      fmt::format("the payloads, data selectors and requirements of the round's tasks have {} bytes together, over",
                  bytes));
}

TaskStore::NewTask ToNewTask(const v1::TaskSpec& task) {
  return {.payload = task.payload(),
          .data_selector = task.data_selector(),
          .requirement = CanonicalLabels(task.requirements())};
}

absl::StatusOr<std::vector<TaskStore::NewTask>> PrepareTasks(const v1::RoundSpec& spec, const Limits& limits) {
  std::vector<TaskStore::NewTask> tasks;
  switch (spec.work_case()) {
    case v1::RoundSpec::kListed: {
      if (spec.listed().tasks().empty()) return Invalid("spec.listed.tasks is empty; list at least one task");
      int index = 0;
      int64_t payload_bytes = 0;
      for (const v1::TaskSpec& task : spec.listed().tasks()) {
        RETURN_IF_ERROR(CheckTask(task, fmt::format("spec.listed.tasks[{}]", index++), limits));
        payload_bytes += PayloadBytes(task);
        tasks.push_back(ToNewTask(task));
      }
      RETURN_IF_ERROR(CheckPayloadBytes(payload_bytes, limits));
      break;
    }
    case v1::RoundSpec::kOpenSlots: {
      const v1::OpenSlots& slots = spec.open_slots();
      if (slots.count() < 0 || slots.per_worker_max() < 0) {
        return Invalid("spec.open_slots.count and per_worker_max must not be negative");
      }
      RETURN_IF_ERROR(CheckTask(slots.task(), "spec.open_slots.task", limits));
      const double factor = spec.over_selection() == 0 ? kOverSelectionDefault : spec.over_selection();
      const int64_t count = slots.count() > 0 ? slots.count() : static_cast<int64_t>(std::ceil(spec.goal() * factor));
      if (count == 0) return Invalid("spec.open_slots needs a count, or spec.goal to derive it from");
      if (count > limits.tasks_per_round_max) break;  // Refused below, without building them.
      RETURN_IF_ERROR(CheckPayloadBytes(count * PayloadBytes(slots.task()), limits));
      tasks.assign(count, ToNewTask(slots.task()));
      break;
    }
    case v1::RoundSpec::WORK_NOT_SET:
      return Invalid("spec has no work; set spec.listed or spec.open_slots");
  }
  if (tasks.empty() || static_cast<int64_t>(tasks.size()) > limits.tasks_per_round_max) {
    return limits.Refuse(&Limits::tasks_per_round_max, "the round has more tasks than");
  }
  return tasks;
}

std::string DigestTasks(std::span<const TaskStore::NewTask> tasks) {
  std::string digests;
  if (tasks.size() <= kDigestedTasks) return digests;
  for (size_t first = 0; first < tasks.size(); first += kDigestedTasks) {
    Sha256 hash;
    for (const TaskStore::NewTask& task : tasks.subspan(first, std::min(kDigestedTasks, tasks.size() - first))) {
      for (const std::string* part : {&task.payload, &task.data_selector, &task.requirement}) {
        hash.Update(fmt::format("{}:", part->size()));
        hash.Update(*part);
      }
    }
    digests += std::move(hash).Hex().substr(0, kTaskDigestBytes);
  }
  return digests;
}

int64_t StateBytes(v1::AggregateSpec aggregate, v1::Numerics numerics) {
  aggregate.set_numerics(numerics);
  // F32 refuses some outputs.
  if (!ValidateAggregateSpec(aggregate).ok()) return std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> bytes = EstimateStateBytes(aggregate);
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

// Dense results have their size from the start; sparse ones grow and are checked as they do.
absl::Status CheckStateSize(const v1::AggregateSpec& aggregate, const Limits& limits) {
  const std::vector<int64_t> bytes = EstimateStateBytes(aggregate);
  const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  if (total <= limits.accumulator_bytes_max) return absl::OkStatus();
  const v1::OutputSpec& largest =
      aggregate.outputs(static_cast<int>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin()));
  std::string remedy = "choose a sparse operator or a smaller shape";
  for (const v1::Numerics numerics : {v1::F32, v1::F64}) {
    const int64_t needed = StateBytes(aggregate, numerics);
    if (needed > limits.accumulator_bytes_max) continue;
    remedy = fmt::format("numerics {} needs {} bytes and would fit", v1::Numerics_Name(numerics), needed);
  }
  return limits.Refuse(&Limits::accumulator_bytes_max,
                       fmt::format("the outputs need about {} bytes of state, most of them \"{}\" ({}), over", total,
                                   largest.name(), largest.operator_()),
                       remedy);
}

absl::Status SetDuration(std::string_view field, absl::Duration fallback, google::protobuf::Duration* duration) {
  const absl::Duration value = FromProto(*duration);
  if (value < absl::ZeroDuration()) return Invalid(fmt::format("spec.{} is negative", field));
  if (value > kRoundTimeMax) return Invalid(fmt::format("spec.{} is longer than a year", field));
  // Seconds and nanoseconds may have come with different signs, or too many of them, which JSON has no form for.
  *duration = ToProto(value == absl::ZeroDuration() ? fallback : value);
  return absl::OkStatus();
}

absl::Status PrepareAnnouncement(v1::RoundSpec& spec, const Limits& limits) {
  if (!spec.announced()) {
    if (!spec.has_announce_deadline()) return absl::OkStatus();
    return Invalid("spec.announce_deadline is for announced rounds; set spec.announced, or leave it out");
  }
  if (!spec.broadcast_digest().empty()) {
    return Invalid("spec.announced is set, so the broadcast comes with OpenRound; leave spec.broadcast_digest empty");
  }
  return SetDuration("announce_deadline", limits.round_deadline_default, spec.mutable_announce_deadline());
}

// Each default is the field's: Spark's but for the quantile, which is MapReduce's "close to completion" and Spark's
// former one. Of few workers' times a higher one says little.
absl::Status PrepareStraggler(v1::StragglerPolicy& policy) {
  if (!policy.speculate() && policy.deadline_factor() == 0) {
    return Invalid("spec.straggler asks for nothing; set speculate, deadline_factor, or both");
  }
  const auto is_within = [](double value, double min, double max) { return value >= min && value <= max; };
  if (!is_within(policy.remaining_share_max(), 0, 1)) {
    return Invalid(fmt::format("spec.straggler.remaining_share_max is {}; it is a part of the round's tasks, up to 1",
                               policy.remaining_share_max()));
  }
  if (!is_within(policy.quantile(), 0, 1) || policy.quantile() == 1) {
    return Invalid(fmt::format("spec.straggler.quantile is {}; it must be less than 1", policy.quantile()));
  }
  for (const auto& [name, factor] :
       {std::pair("factor", policy.factor()), std::pair("deadline_factor", policy.deadline_factor())}) {
    if (factor == 0 || is_within(factor, 1, kStragglerFactorMax)) continue;
    return Invalid(fmt::format("spec.straggler.{} is {}; an attempt may take 1 to {} times what others took", name,
                               factor, kStragglerFactorMax));
  }
  if (policy.finished_min() < 0) return Invalid("spec.straggler.finished_min is negative");
  if (policy.remaining_share_max() == 0) policy.set_remaining_share_max(0.25);
  if (policy.quantile() == 0) policy.set_quantile(0.75);
  if (policy.factor() == 0) policy.set_factor(1.5);
  if (policy.finished_min() == 0) policy.set_finished_min(3);
  return SetDuration("straggler.age_min", absl::Milliseconds(100), policy.mutable_age_min());
}

// A discount is one of weights. What is no mean, such as a count of examples, has none, and is what it is.
absl::Status PreparePolynomial(const v1::AggregateSpec& aggregate, v1::StalenessPolicy& policy) {
  if (policy.exponent() != 0 && !(policy.exponent() > 0 && policy.exponent() <= kStalenessExponentMax)) {
    return Invalid(fmt::format("spec.staleness.exponent is {}; it must be over 0, and at most {}, or 0 for {}",
                               policy.exponent(), kStalenessExponentMax, kStalenessExponentDefault));
  }
  if (policy.exponent() == 0) policy.set_exponent(kStalenessExponentDefault);
  bool has_weights = false;
  for (const v1::OutputSpec& output : aggregate.outputs()) {
    const Operator& op = *FindOperator(Operators(), output.operator_());
    has_weights = has_weights || op.is_weighted();
    if (op.is_weighted() || op.divisor == Divisor::kNone) continue;
    return Invalid(
        fmt::format("output '{}': the discount of spec.staleness.function POLYNOMIAL is one of weights, and "
                    "'{}' has none; use 'weighted_{}'",
                    output.name(), op.symbol, op.symbol));
  }
  if (has_weights) return absl::OkStatus();
  return Invalid(
      "spec.staleness.function is POLYNOMIAL, which discounts the weights of stale contributions, and no output has an "
      "operator with weights, such as 'weighted_mean'; use one, or CONSTANT");
}

absl::Status PrepareStaleness(v1::RoundSpec& spec) {
  if (spec.continues().empty()) {
    if (!spec.has_staleness()) return absl::OkStatus();
    return Invalid("spec.staleness is for a round that continues another; set spec.continues, or leave it out");
  }
  v1::StalenessPolicy& policy = *spec.mutable_staleness();
  if (policy.function() == v1::STALENESS_FUNCTION_UNSPECIFIED) policy.set_function(v1::CONSTANT);
  if (!v1::StalenessFunction_IsValid(policy.function())) {
    return Invalid("spec.staleness.function is not CONSTANT or POLYNOMIAL");
  }
  if (policy.max() < 0 || policy.max() > kStalenessMax) {
    return Invalid(fmt::format("spec.staleness.max is {}; a task is carried through 1 to {} rounds, or 0 for {}",
                               policy.max(), kStalenessMax, kStalenessDefault));
  }
  if (policy.max() == 0) policy.set_max(kStalenessDefault);
  if (policy.function() == v1::POLYNOMIAL) return PreparePolynomial(spec.aggregate(), policy);
  if (policy.exponent() != 0) return Invalid("spec.staleness.exponent is for POLYNOMIAL; leave it out");
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> KnownOperators() { return OperatorSymbols(); }

absl::StatusOr<PreparedRound> PrepareRound(const v1::RoundSpec& requested, const Limits& limits) {
  RETURN_IF_ERROR(CheckGoal(requested));
  ASSIGN_OR_RETURN(std::vector<TaskStore::NewTask> tasks, PrepareTasks(requested, limits));
  const int32_t num_tasks = static_cast<int32_t>(tasks.size());
  std::string task_digests = DigestTasks(tasks);
  PreparedRound prepared{.spec = requested, .tasks = std::move(tasks), .task_digests = std::move(task_digests)};
  v1::RoundSpec& spec = prepared.spec;
  spec.mutable_listed()->clear_tasks();
  if (requested.has_open_slots()) {
    *spec.mutable_open_slots() = requested.open_slots();
    spec.mutable_open_slots()->set_count(num_tasks);
  }
  // What this server does not know no limit of its own bounds; and it would be kept, listed, and sent with each lease.
  spec.DiscardUnknownFields();
  if (const auto bytes = static_cast<int64_t>(spec.ByteSizeLong()); bytes > limits.round_spec_bytes_max) {
    return limits.Refuse(&Limits::round_spec_bytes_max,
                         fmt::format("the spec without its tasks has {} bytes, over", bytes));
  }

  spec.set_population(PopulationOrDefault(spec.population()));
  RETURN_IF_ERROR(ValidateName("spec.population", spec.population()));
  if (spec.job().empty()) spec.set_job("default");
  RETURN_IF_ERROR(ValidateName("spec.job", spec.job()));
  if (spec.computation().name().empty()) return Invalid("spec.computation.name is empty; say what the workers run");
  RETURN_IF_ERROR(ValidateName("spec.computation.name", spec.computation().name()));
  if (spec.computation().version_min() < 0) return Invalid("spec.computation.version_min is negative");
  if (static_cast<int64_t>(spec.computation().config().size()) > limits.task_payload_bytes_max) {
    return limits.Refuse(&Limits::task_payload_bytes_max,
                         fmt::format("spec.computation.config has {} bytes, over", spec.computation().config().size()));
  }
  if (spec.aggregate().outputs_size() > limits.outputs_per_round_max) {
    return limits.Refuse(&Limits::outputs_per_round_max,
                         fmt::format("spec.aggregate has {} outputs, over", spec.aggregate().outputs_size()));
  }
  RETURN_IF_ERROR(ValidateAggregateSpec(spec.aggregate()));
  RETURN_IF_ERROR(CheckStateSize(spec.aggregate(), limits));

  if (spec.goal() > num_tasks) {
    return Invalid(
        fmt::format("spec.goal is {}, but the round has {} tasks; ask for 0 to {}", spec.goal(), num_tasks, num_tasks));
  }
  if (spec.goal() == 0) spec.set_goal(num_tasks);
  if (spec.min_goal() < 0 || spec.min_goal() > spec.goal()) {
    return Invalid(
        fmt::format("spec.min_goal is {}; it must lie between 0 and the goal, {}", spec.min_goal(), spec.goal()));
  }
  if (spec.min_goal() == 0) spec.set_min_goal(spec.goal());
  if (spec.over_selection() == 0) spec.set_over_selection(kOverSelectionDefault);
  RETURN_IF_ERROR(SetDuration("deadline", limits.round_deadline_default, spec.mutable_deadline()));
  RETURN_IF_ERROR(SetDuration("attempt_deadline", FromProto(spec.deadline()), spec.mutable_attempt_deadline()));
  RETURN_IF_ERROR(SetDuration("lease_duration", limits.lease_default, spec.mutable_lease_duration()));
  RETURN_IF_ERROR(PrepareAnnouncement(spec, limits));
  if (spec.min_clients() < 0) return Invalid("spec.min_clients is negative");
  if (spec.min_clients() == 0) spec.set_min_clients(1);
  if (spec.priority() < 0 || spec.priority() > kPriorityMax) {
    return Invalid(fmt::format("spec.priority must be 1 (most urgent) to {}, or 0 for 3", kPriorityMax));
  }
  if (spec.priority() == 0) spec.set_priority(3);
  if (spec.retry().failed_max() < 0 || spec.retry().lost_max() < 0)
    return Invalid("spec.retry limits must not be negative");
  if (spec.retry().failed_max() == 0) spec.mutable_retry()->set_failed_max(limits.failed_attempts_max);
  if (spec.retry().lost_max() == 0) spec.mutable_retry()->set_lost_max(limits.lost_attempts_max);
  if (spec.has_straggler()) RETURN_IF_ERROR(PrepareStraggler(*spec.mutable_straggler()));
  RETURN_IF_ERROR(PrepareStaleness(spec));
  if (spec.durability() == v1::DURABILITY_UNSPECIFIED) spec.set_durability(v1::DURABLE);
  if (!v1::Durability_IsValid(spec.durability())) return Invalid("spec.durability is not DURABLE or EPHEMERAL");
  if (spec.release() == v1::RELEASE_FORM_UNSPECIFIED) spec.set_release(v1::VALUES);
  if (!v1::ReleaseForm_IsValid(spec.release())) return Invalid("spec.release is not VALUES or PARTIAL_AGGREGATE");
  if (!spec.broadcast_digest().empty() && !IsSha256Hex(spec.broadcast_digest())) {
    return Invalid("spec.broadcast_digest is not a SHA-256 in lower-case hex");
  }
  if (spec.contribution_bytes_max() < 0 || spec.contribution_bytes_max() > limits.contribution_bytes_max) {
    return Invalid(fmt::format("spec.contribution_bytes_max is {}; the server takes up to {}",
                               spec.contribution_bytes_max(), limits.contribution_bytes_max));
  }
  if (spec.contribution_bytes_max() == 0) spec.set_contribution_bytes_max(limits.contribution_bytes_max);
  return prepared;
}

}  // namespace sheaf
