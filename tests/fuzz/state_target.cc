// Serialised states from anyone: checkpoints of rounds and partial aggregates. Their checksum would keep every mutant
// out, so some inputs are the inside of a state and are sealed here.
#include "aggregation/wire/state_bytes.h"
#include "base/check.h"
#include "tests/fuzz/laws.h"
#include "tests/fuzz/specs.h"
#include "tests/fuzz/state_input.h"
#include "tests/fuzz/targets.h"

namespace sheaf::fuzz {
namespace {

std::string SealCheckpoint(const RoundAccumulator& empty, const StateInput& input) {
  StateWriter out;
  out.Put(input.num_contributions);
  out.Put(input.num_clients);
  out.PutString(SealLike(empty.OutputStates().begin()->second, input.bytes));
  return SealLike(empty.Serialize(), out.bytes());
}

void RunCheckpoint(const v1::AggregateSpec& spec, const std::string& state) {
  const absl::StatusOr<RoundAccumulator> restored = RoundAccumulator::Restore(spec, state);
  if (!restored.ok()) return CheckRefusal(restored.status());
  SHEAF_CHECK(restored->Serialize() == state, "two states of equal meaning have different bytes");
  CheckState(spec, *restored, Provenance::kStates);
}

void RunPartial(const v1::AggregateSpec& spec, int64_t num_clients, const std::string& state) {
  v1::Contribution contribution;
  contribution.set_num_clients(num_clients);
  for (const v1::OutputSpec& output : spec.outputs()) {
    contribution.add_outputs()->set_name(output.name());
    contribution.mutable_outputs(contribution.outputs_size() - 1)->set_state(state);
  }
  RoundAccumulator accumulator = RoundAccumulator::Create(spec).value();
  const absl::StatusOr<ValidContribution> valid = accumulator.Validate(contribution);
  if (!valid.ok()) return CheckRefusal(valid.status());
  accumulator.Accumulate(*valid);
  SHEAF_CHECK(!IsExact(spec) || accumulator.OutputStates().begin()->second == state,
              "two states of equal meaning have different bytes");
  CheckState(spec, accumulator, Provenance::kStates);
  accumulator.Accumulate(*valid);
  CheckState(spec, accumulator, Provenance::kStates);
}

}  // namespace

void RunState(std::string_view bytes) {
  const std::optional<StateInput> input = ReadStateInput(bytes);
  if (!input) return;
  const v1::AggregateSpec& spec = SpecAt(input->spec);
  const absl::StatusOr<RoundAccumulator> empty = RoundAccumulator::Create(spec);
  if (!empty.ok()) return;
  switch (input->kind) {
    case StateInput::kCheckpoint:
      return RunCheckpoint(spec, std::string(input->bytes));
    case StateInput::kCheckpointInside:
      if (spec.outputs_size() == 1) RunCheckpoint(spec, SealCheckpoint(*empty, *input));
      return;
    case StateInput::kPartial:
      return RunPartial(spec, input->num_clients, std::string(input->bytes));
    case StateInput::kPartialInside:
      return RunPartial(spec, input->num_clients, SealLike(empty->OutputStates().begin()->second, input->bytes));
    case StateInput::kNumKinds:
      return;
  }
}

}  // namespace sheaf::fuzz
