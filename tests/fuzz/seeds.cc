#include "tests/fuzz/seeds.h"

#include "aggregation/aggregate_spec.h"
#include "aggregation/round_accumulator.h"
#include "tests/aggregation/values.h"
#include "tests/fuzz/specs.h"
#include "tests/fuzz/state_input.h"

namespace sheaf::fuzz {
namespace {

v1::Contribution RandomContributionToAll(const v1::AggregateSpec& spec, Random& random) {
  v1::Contribution contribution;
  for (const v1::OutputSpec& output : spec.outputs()) {
    const v1::OutputValue value = RandomContribution(ASpec(output), random).outputs(0);
    *contribution.add_outputs() = value;
    contribution.mutable_outputs(contribution.outputs_size() - 1)->set_name(output.name());
  }
  return contribution;
}

void AddStates(size_t index, const RoundAccumulator& accumulator, std::vector<Seed>& seeds) {
  StateInput input = {.spec = static_cast<uint8_t>(index),
                      .num_clients = accumulator.num_clients(),
                      .num_contributions = accumulator.num_contributions()};
  const auto add = [&](StateInput::Kind kind, const std::string& bytes) {
    input.kind = kind;
    input.bytes = bytes;
    seeds.push_back({"state", WriteStateInput(input)});
  };
  const std::string state = accumulator.OutputStates().begin()->second;
  add(StateInput::kCheckpoint, accumulator.Serialize());
  add(StateInput::kPartial, state);
  add(StateInput::kCheckpointInside, OpenEnvelope(state).body);
  add(StateInput::kPartialInside, OpenEnvelope(state).body);
}

void AddFoldsOf(size_t index, std::vector<Seed>& seeds) {
  const v1::AggregateSpec& spec = Specs()[index];
  const std::string prefix(1, static_cast<char>(index));
  SeededRandom random(index);
  RoundAccumulator accumulator = RoundAccumulator::Create(spec).value();
  for (int repeat = 0; repeat < 2; ++repeat) {
    const v1::Contribution contribution = RandomContributionToAll(spec, random);
    seeds.push_back({"contribution", prefix + contribution.SerializeAsString()});
    const absl::StatusOr<ValidContribution> valid = accumulator.Validate(contribution);
    if (valid.ok()) accumulator.Accumulate(*valid);
  }
  seeds.push_back({"contribution", prefix + accumulator.PartialAggregate().SerializeAsString()});
  AddStates(index, accumulator, seeds);
}

}  // namespace

std::vector<Seed> Seeds() {
  using namespace std::string_literals;
  std::vector<Seed> seeds = {{"keyed",
                              "\x00\x01"
                              "a\x05\x02"
                              "aa\xff\x01"
                              "b\x03\xff\x01"
                              "a\xfb\x00\x09"s},
                             {"keyed",
                              "\x01\x01"
                              "a\x05\x02\x01"
                              "a\xfb\xfe\xff\x01\xff\x03\x04\x00\x01\x01"s},
                             {"keyed",
                              "\x02\x07"
                              "package\x01\xff\x07"
                              "package\x7f\xff\x06"
                              "packag\x80\x05\x00\xff\x00\x01\x01"s}};
  for (size_t i = 0; i < Specs().size(); ++i) {
    seeds.push_back({"spec", Specs()[i].SerializeAsString()});
    if (ValidateAggregateSpec(Specs()[i]).ok()) AddFoldsOf(i, seeds);
  }
  return seeds;
}

}  // namespace sheaf::fuzz
