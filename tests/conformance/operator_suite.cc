#include "tests/conformance/operator_suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <catch2/catch.hpp>
#include <utility>

#include "aggregation/reference.h"

namespace sheaf {
namespace {

RoundAccumulator Empty(const v1::AggregateSpec& spec) {
  absl::StatusOr<RoundAccumulator> accumulator = RoundAccumulator::Create(spec);
  REQUIRE(accumulator.ok());
  return *std::move(accumulator);
}

void Fold(RoundAccumulator& into, const v1::Contribution& contribution) {
  const absl::StatusOr<ValidContribution> valid = into.Validate(contribution);
  INFO(valid.status().ToString());
  REQUIRE(valid.ok());
  into.Accumulate(*valid);
}

RoundAccumulator FoldAll(const v1::AggregateSpec& spec, const std::vector<v1::Contribution>& contributions) {
  RoundAccumulator all = Empty(spec);
  for (const v1::Contribution& contribution : contributions) Fold(all, contribution);
  return all;
}

RoundAccumulator ThroughBytes(const v1::AggregateSpec& spec, const RoundAccumulator& accumulator) {
  const std::string bytes = accumulator.Serialize();
  absl::StatusOr<RoundAccumulator> restored = RoundAccumulator::Restore(spec, bytes);
  INFO(restored.status().ToString());
  REQUIRE(restored.ok());
  REQUIRE(restored->Serialize() == bytes);
  return *std::move(restored);
}

std::vector<v1::Contribution> Shuffled(std::vector<v1::Contribution> contributions, Random& random) {
  for (size_t i = contributions.size(); i > 1; --i) std::swap(contributions[i - 1], contributions[random.Below(i)]);
  return contributions;
}

// Each contribution goes to one of a few groups.
std::vector<std::vector<v1::Contribution>> Grouped(const std::vector<v1::Contribution>& contributions, Random& random) {
  std::vector<std::vector<v1::Contribution>> groups(1 + random.Below(4));
  for (const v1::Contribution& contribution : contributions)
    groups[random.Below(groups.size())].push_back(contribution);
  return groups;
}

v1::Contribution PartialOf(const RoundAccumulator& accumulator) {
  v1::Contribution partial;
  partial.set_num_clients(accumulator.num_clients());
  for (auto& [name, state] : accumulator.OutputStates()) {
    v1::OutputValue& value = *partial.add_outputs();
    value.set_name(name);
    value.set_state(state);
  }
  return partial;
}

std::string TensorsOf(const absl::StatusOr<AggregateReport>& report) {
  if (!report.ok()) return Fingerprint(report);
  AggregateReport tensors = *report;
  tensors.num_contributions = 0;
  return Fingerprint(tensors);
}

}  // namespace

std::string Fingerprint(const absl::StatusOr<AggregateReport>& report) {
  if (!report.ok()) return report.status().ToString();
  std::string text = fmt::format("{} contributions, {} clients\n", report->num_contributions, report->num_clients);
  for (const NamedTensor& tensor : report->tensors) {
    text += fmt::format("{} {} [{}] ", tensor.name, v1::DType_Name(tensor.dtype), fmt::join(tensor.shape, ", "));
    for (const char byte : tensor.data) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    text += "\n";
  }
  for (const v1::OutputSummary& summary : report->outputs) text += summary.ShortDebugString() + "\n";
  return text;
}

void CheckOperatorLaws(const v1::AggregateSpec& spec, const std::vector<v1::Contribution>& contributions,
                       Random& random) {
  const RoundAccumulator one_by_one = FoldAll(spec, contributions);
  const std::string state = one_by_one.Serialize();
  const std::string report = Fingerprint(one_by_one.Report());

  // The oracle agrees.
  REQUIRE(report == Fingerprint(ReferenceAggregate(spec, contributions)));

  // Any order.
  REQUIRE(FoldAll(spec, Shuffled(contributions, random)).Serialize() == state);

  // The identity, from either side, and through bytes.
  RoundAccumulator with_identity = ThroughBytes(spec, Empty(spec));
  with_identity.Merge(ThroughBytes(spec, one_by_one));
  with_identity.Merge(Empty(spec));
  REQUIRE(with_identity.Serialize() == state);
  REQUIRE(Fingerprint(with_identity.Report()) == report);

  // Any groups, merged, through bytes, more folded in after.
  RoundAccumulator merged = Empty(spec);
  for (const auto& group : Grouped(contributions, random)) {
    if (random.Chance(0.5)) {
      merged.Merge(ThroughBytes(spec, FoldAll(spec, group)));
    } else {
      for (const v1::Contribution& contribution : group) Fold(merged, contribution);
      merged = ThroughBytes(spec, merged);
    }
  }
  REQUIRE(merged.Serialize() == state);

  // Any groups, sent as partial aggregates.
  RoundAccumulator root = Empty(spec);
  for (const auto& group : Grouped(contributions, random)) {
    if (!group.empty()) Fold(root, PartialOf(FoldAll(spec, group)));
  }
  REQUIRE(root.OutputStates() == one_by_one.OutputStates());
  REQUIRE(TensorsOf(root.Report()) == TensorsOf(one_by_one.Report()));
}

}  // namespace sheaf
