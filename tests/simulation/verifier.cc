#include "tests/simulation/verifier.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "aggregation/wire/safetensors.h"
#include "proto/time.h"
#include "server/stored/round_progress.h"
#include "storage/transitions.h"

namespace sheaf::simulation {
namespace {

template <typename T>
std::vector<double> Read(std::string_view data) {
  std::vector<double> values(data.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
  return values;
}

std::vector<double> Values(const TensorView& tensor) {
  switch (tensor.dtype) {
    case v1::FLOAT32:
      return Read<float>(tensor.data);
    case v1::FLOAT64:
      return Read<double>(tensor.data);
    case v1::INT32:
      return Read<int32_t>(tensor.data);
    default:
      return Read<int64_t>(tensor.data);
  }
}

// The non-zero elements of a released output.
absl::StatusOr<std::map<int64_t, double>> Elements(const SafetensorsView& file, std::string_view output) {
  const bool is_sparse = output == "sparse";
  absl::StatusOr<const TensorView*> values = file.Find(is_sparse ? "sparse.values" : output);
  if (!values.ok()) return values.status();
  std::vector<double> positions;
  if (is_sparse) {
    absl::StatusOr<const TensorView*> indices = file.Find("sparse.indices");
    if (!indices.ok()) return indices.status();
    positions = Values(**indices);
  }
  std::vector<double> numbers = Values(**values);
  if (is_sparse && positions.size() != numbers.size())
    return absl::DataLossError("indices and values differ in length");
  std::map<int64_t, double> elements;
  for (size_t i = 0; i < numbers.size(); ++i) {
    int64_t position = is_sparse ? static_cast<int64_t>(positions[i]) : static_cast<int64_t>(i);
    if (numbers[i] != 0) elements[position] += numbers[i];
  }
  return elements;
}

std::string Text(const std::map<int64_t, double>& elements) {
  std::string text;
  for (const auto& [position, value] : elements) text += fmt::format(" [{}]={}", position, value);
  return text;
}

}  // namespace

void Verifier::Check(const EndedRound& round) {
  ++statistics_.rounds[std::string(Name(round.record.state))];
  CheckEnd(round);
  CheckContributions(round);
  if (round.record.state != RoundState::kSucceeded) return;
  CheckAggregate(round);
  CheckCriticalPath(round);
}

void Verifier::CheckEnd(const EndedRound& round) {
  const RoundRecord& record = round.record;
  if (!IsFinal(record.state)) {
    return journal_.Break("every round ends", "round {} is still {}", record.id, Name(record.state));
  }
  const bool has_enough =
      record.num_contributions >= round.spec.min_goal() && record.num_clients >= round.spec.min_clients();
  if (record.state == RoundState::kSucceeded && !has_enough) {
    journal_.Break("nothing is released below min_goal", "round {} SUCCEEDED with {} contributions of {} clients",
                   record.id, record.num_contributions, record.num_clients);
  }
  if (record.state == RoundState::kFailed && has_enough && round.was_opened && round.spec.durability() == v1::DURABLE) {
    journal_.Break("a round with enough succeeds", "round {} FAILED with {} contributions, min_goal {}: {}", record.id,
                   record.num_contributions, round.spec.min_goal(), record.error);
  }
  if (record.state == RoundState::kFailed && record.error.empty()) {
    journal_.Break("a failure says why", "round {} FAILED without an error", record.id);
  }
  const bool has_broadcast = record.state == RoundState::kSucceeded || !record.broadcast_digest.empty();
  if (round.spec.announced() && has_broadcast && record.broadcast_digest != round.broadcast_digest) {
    journal_.Break("a round has one broadcast", "round {} ended with \"{}\", and its program opened it with \"{}\"",
                   record.id, record.broadcast_digest, round.broadcast_digest);
  }
  if (record.state == RoundState::kCancelled && !round.was_cancelled) {
    journal_.Break("only its program cancels a round", "round {} was CANCELLED: {}", record.id, record.error);
  }
}

// To the nanosecond, whatever crashed: from creation to end, without gaps; and the phases are as long together.
void Verifier::CheckCriticalPath(const EndedRound& round) {
  const RoundRecord& record = round.record;
  // The clock may have been set back.
  const absl::Duration wall =
      std::max(ToNanoseconds(record.end_time) - ToNanoseconds(record.create_time), absl::ZeroDuration());
  absl::Duration at;
  for (const Interval& interval : round.release.critical_path) {
    if (interval.begin != at || interval.end <= at) {
      return journal_.Break("a critical path has no gaps", "round {}: {} goes from {} to {}, behind {}", record.id,
                            interval.phase, absl::FormatDuration(interval.begin), absl::FormatDuration(interval.end),
                            absl::FormatDuration(at));
    }
    at = interval.end;
  }
  const v1::RoundPhases& phases = round.release.phases;
  absl::Duration sum;
  for (const auto* part : {&phases.wait(), &phases.download(), &phases.prepare(), &phases.compute(), &phases.upload(),
                           &phases.fold(), &phases.commit()}) {
    sum += FromProto(*part);
  }
  if (at == wall && sum == wall) return;
  journal_.Break("a critical path is as long as its round", "round {} took {}, its path {}, its phases {}", record.id,
                 absl::FormatDuration(wall), absl::FormatDuration(at), absl::FormatDuration(sum));
}

void Verifier::CheckContributions(const EndedRound& round) {
  const bool has_own = std::any_of(round.contributions.begin(), round.contributions.end(),
                                   [](const ContributionRecord& contribution) { return contribution.staleness == 0; });
  if (round.record.state == RoundState::kAnnounced && has_own) {
    journal_.Break("nothing is counted before the opening", "round {} is ANNOUNCED and has {} contributions",
                   round.record.id, round.contributions.size());
  }
  CheckStaleness(round);
  std::set<TaskId> counted;
  for (size_t i = 0; i < round.contributions.size(); ++i) {
    const ContributionRecord& contribution = round.contributions[i];
    if (contribution.sequence != static_cast<int64_t>(i) + 1) {
      journal_.Break("sequence", "contribution {} of round {} is number {}", contribution.sequence, round.record.id, i);
    }
    if (!counted.insert(contribution.task).second) {
      journal_.Break("counted once", "task {} has two contributions", contribution.task.ToString());
    }
  }
  for (const TaskRecord& task : round.tasks) {
    const std::string name = task.id.ToString();
    const bool is_counted = task.state == TaskState::kSucceeded;
    if (is_counted != counted.contains(task.id)) {
      journal_.Break("counted once", "task {} is {} and has {} contribution", name, Name(task.state),
                     is_counted ? "no" : "a");
    }
    // Whatever was accepted was under the name that its worker knows, and counts where the task is.
    if (task.carried_to) continue;
    auto acked = ledger_.acked().find(task.origin.value_or(task.id).ToString());
    if (acked == ledger_.acked().end()) continue;
    if (!is_counted || task.lease_token.value() != acked->second) {
      journal_.Break("accepted, so counted", "task {} was accepted under {} and is {} under {}", name, acked->second,
                     Name(task.state), task.lease_token);
    }
  }
}

void Verifier::CheckStaleness(const EndedRound& round) {
  std::map<int32_t, int64_t> counted;
  for (const ContributionRecord& contribution : round.contributions) {
    const TaskRecord& task = round.tasks[static_cast<size_t>(contribution.task.index)];
    if (contribution.staleness != task.staleness) {
      journal_.Break("a contribution says its staleness", "that of task {} says {} and not {}", task.id.ToString(),
                     contribution.staleness, task.staleness);
    }
    ++counted[contribution.staleness];
  }
  if (round.spec.continues().empty()) counted.clear();
  const absl::StatusOr<RoundProgress> progress = DecodeProgress(round.record);
  if (!progress.ok() || progress->staleness != counted) {
    journal_.Break("a round says how stale its contributions are", "round {} does not", round.record.id);
  }
}

void Verifier::CheckAggregate(const EndedRound& round) {
  ++statistics_.aggregates_checked;
  std::map<std::string_view, std::map<int64_t, double>> expected{{"dense", {}}, {"sparse", {}}};
  std::map<int64_t, double>& dense = expected["dense"];
  std::map<int64_t, double>& sparse = expected["sparse"];
  std::map<int64_t, double> weights;
  double all_weights = 0;
  for (const TaskRecord& task : round.tasks) {
    if (task.state != TaskState::kSucceeded) continue;
    // What was carried over was computed from what its worker was given.
    int64_t position = std::stoll(task.origin ? ledger_.PayloadOf(task.lease_token.value()) : task.payload);
    dense[position] += 1;
    sparse[position] += 1;
    sparse[0] += 1;
    const v1::StalenessPolicy& policy = round.spec.staleness();
    const bool is_discounted = policy.function() == v1::POLYNOMIAL && task.staleness > 0;
    const auto weight = static_cast<float>(is_discounted ? std::pow(1.0 + task.staleness, -policy.exponent()) : 1.0);
    weights[position] += weight;
    all_weights += weight;
    statistics_.carried["contributions with a discount"] += is_discounted;
  }
  if (round.spec.aggregate().outputs_size() == 3) {
    // So few floats add up without rounding.
    for (const auto& [position, weight] : weights) expected["mean"][position] = weight / all_weights;
  }
  absl::StatusOr<SafetensorsView> file = SafetensorsView::Parse(round.aggregate);
  if (!file.ok()) {
    return journal_.Break("the aggregate is what was counted", "round {}: {}", round.record.id,
                          file.status().ToString());
  }
  for (const auto& [output, elements] : expected) {
    absl::StatusOr<std::map<int64_t, double>> released = Elements(*file, output);
    if (!released.ok() || *released != elements) {
      journal_.Break("the aggregate is what was counted", "round {} released {}{} and counted{}", round.record.id,
                     output, released.ok() ? Text(*released) : released.status().ToString(), Text(elements));
    }
  }
  if (round.release.aggregate.num_contributions() != round.record.num_contributions) {
    journal_.Break("the aggregate is what was counted", "round {} says it combines {} contributions of {}",
                   round.record.id, round.release.aggregate.num_contributions(), round.record.num_contributions);
  }
}

}  // namespace sheaf::simulation
