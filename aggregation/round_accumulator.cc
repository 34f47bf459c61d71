#include "aggregation/round_accumulator.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>

#include <utility>
#include <vector>

#include "aggregation/aggregate_spec.h"
#include "aggregation/contribution_check.h"
#include "aggregation/operators.h"
#include "aggregation/output/output_accumulator.h"
#include "aggregation/output/output_layout.h"
#include "aggregation/wire/state_envelope.h"
#include "base/check.h"
#include "base/huge_pages.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr uint32_t kMagic = 0x52414853;  // "SHAR"

// What stands before `bytes` bytes of a protobuf field: its number and kind, and their length. Fields below 16.
void PutFieldFrame(int field, int64_t bytes, StateWriter& out) {
  constexpr int kLengthDelimited = 2;
  uint8_t frame[1 + 10];
  frame[0] = static_cast<uint8_t>(field << 3 | kLengthDelimited);
  const uint8_t* const end =
      google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(static_cast<uint64_t>(bytes), &frame[1]);
  out.PutArray(frame, end - frame);
}
int64_t FieldFrameBytes(int64_t bytes) {
  return 1 + static_cast<int64_t>(google::protobuf::io::CodedOutputStream::VarintSize64(static_cast<uint64_t>(bytes)));
}

std::string SignatureOf(const std::vector<OutputLayout>& layouts) {
  std::string signature;
  for (const OutputLayout& layout : layouts) signature += layout.Signature() + "\n";
  return signature;
}

}  // namespace

struct RoundAccumulator::State {
  // It outlives this where somebody else has it, too.
  std::shared_ptr<ContributionValidator> validator;
  // In the order of the spec.
  std::vector<std::unique_ptr<OutputAccumulator>> outputs;
  int64_t num_contributions = 0;
  int64_t num_clients = 0;
  // Of a release for which there are no threads.
  mutable InlineFor one_by_one;

  const std::vector<OutputLayout>& layouts() const { return validator->layouts(); }
  void Fold(std::span<const ValidContribution* const> valid, ParallelFor& parallel);
  // What is released, as tensors that are written from this.
  absl::StatusOr<AggregateRelease> View(ParallelFor& parallel) const;
};

RoundAccumulator::RoundAccumulator(std::unique_ptr<State> state) : state_(std::move(state)) {}
RoundAccumulator::RoundAccumulator(RoundAccumulator&&) noexcept = default;
RoundAccumulator& RoundAccumulator::operator=(RoundAccumulator&&) noexcept = default;
RoundAccumulator::~RoundAccumulator() = default;

absl::StatusOr<RoundAccumulator> RoundAccumulator::Create(const v1::AggregateSpec& spec) {
  return Create(spec, Operators());
}

absl::StatusOr<RoundAccumulator> RoundAccumulator::Create(const v1::AggregateSpec& spec,
                                                          std::span<const Operator> operators) {
  auto state = std::make_unique<State>();
  ASSIGN_OR_RETURN(std::vector<OutputLayout> layouts, LayoutsOf(spec, operators));
  state->validator = std::make_shared<ContributionValidator>(std::move(layouts));
  for (const OutputLayout& layout : state->layouts()) state->outputs.push_back(layout.op->create(layout));
  return RoundAccumulator(std::move(state));
}

absl::StatusOr<RoundAccumulator> RoundAccumulator::Restore(const v1::AggregateSpec& spec, std::string_view state) {
  return Restore(spec, Operators(), state);
}

absl::StatusOr<RoundAccumulator> RoundAccumulator::Restore(const v1::AggregateSpec& spec,
                                                           std::span<const Operator> operators,
                                                           std::string_view bytes) {
  ASSIGN_OR_RETURN(RoundAccumulator restored, Create(spec, operators));
  State& state = restored.state();
  ASSIGN_OR_RETURN(const std::string_view body, UnwrapState(kMagic, SignatureOf(state.layouts()), bytes));
  StateReader in(body);
  ASSIGN_OR_RETURN(state.num_contributions, in.Get<int64_t>());
  ASSIGN_OR_RETURN(state.num_clients, in.Get<int64_t>());
  for (const auto& output : state.outputs) {
    ASSIGN_OR_RETURN(const std::string_view output_state, in.GetString());
    RETURN_IF_ERROR(output->Restore(output_state, StateSource::kCheckpoint));
    // Every contribution went into all outputs.
    if (output->num_clients() != state.num_clients) {
      return absl::DataLossError(fmt::format("output '{}': its state combines {} clients, the round's {}",
                                             output->layout().name, output->num_clients(), state.num_clients));
    }
  }
  if (state.num_contributions < 0 || state.num_contributions > state.num_clients) {
    return absl::DataLossError("the state's number of contributions is malformed");
  }
  RETURN_IF_ERROR(in.End());
  return restored;
}

const RoundAccumulator::State& RoundAccumulator::state() const {
  SHEAF_CHECK(state_ != nullptr, "an accumulator is used that was released, merged into another, or moved");
  return *state_;
}
RoundAccumulator::State& RoundAccumulator::state() { return const_cast<State&>(std::as_const(*this).state()); }

std::shared_ptr<const ContributionValidator> RoundAccumulator::validator() const { return state().validator; }

absl::StatusOr<ValidContribution> RoundAccumulator::Validate(v1::Contribution contribution) const {
  return state().validator->Validate(std::move(contribution));
}

void RoundAccumulator::Accumulate(const ValidContribution& valid) {
  InlineFor one_by_one;
  Accumulate(valid, one_by_one);
}

void RoundAccumulator::Accumulate(const ValidContribution& valid, ParallelFor& parallel) {
  const ValidContribution* const one = &valid;
  Accumulate({&one, 1}, parallel);
}

void RoundAccumulator::Accumulate(std::span<const ValidContribution* const> valid, ParallelFor& parallel) {
  State& to = state();
  for (const ValidContribution* const one : valid) {
    SHEAF_CHECK(one->checked_->outputs.size() == to.outputs.size(), "the contribution was validated for another spec");
    ++to.num_contributions;
    to.num_clients += one->checked_->num_clients;
  }
  if (!to.validator->is_tight()) return to.Fold(valid, parallel);
  // The room for what would wait was counted out, and somebody else has it by the time it would be folded.
  for (const ValidContribution* const& one : valid) {
    to.Fold({&one, 1}, parallel);
    for (const auto& output : to.outputs) output->Settle();
  }
}

void RoundAccumulator::State::Fold(std::span<const ValidContribution* const> valid, ParallelFor& parallel) {
  std::vector<const CheckedValue*> values;
  for (size_t i = 0; i < outputs.size(); ++i) {
    // Updates up to the next partial aggregate go in together.
    for (const ValidContribution* const one : valid) {
      const CheckedOutput& output = one->checked_->outputs[i];
      if (output.partial == nullptr) {
        values.push_back(&output.value);
        continue;
      }
      outputs[i]->Accumulate(std::exchange(values, {}), parallel);
      outputs[i]->Merge(*output.partial);
    }
    outputs[i]->Accumulate(std::exchange(values, {}), parallel);
  }
}

void RoundAccumulator::Merge(RoundAccumulator&& other) {
  State& to = state();
  SHEAF_CHECK(SignatureOf(other.state().layouts()) == SignatureOf(to.layouts()),
              "merging accumulators of different specs");
  const std::unique_ptr<State> from = std::move(other.state_);
  for (size_t i = 0; i < to.outputs.size(); ++i) to.outputs[i]->Merge(*from->outputs[i]);
  to.num_contributions += from->num_contributions;
  to.num_clients += from->num_clients;
}

std::string RoundAccumulator::Serialize() const {
  std::string bytes;
  const absl::Status gathered = Write([&bytes](std::string_view piece) {
    bytes += piece;
    return absl::OkStatus();
  });
  SHEAF_CHECK(gathered.ok());
  return bytes;
}

absl::Status RoundAccumulator::Write(const ByteSink& take) const {
  const State& from = state();
  // Lengths stand before what they are of.
  std::vector<int64_t> bodies;
  int64_t body_bytes = 2 * sizeof(int64_t);
  for (const auto& output : from.outputs) {
    bodies.push_back(output->MeasureBody());
    body_bytes += static_cast<int64_t>(sizeof(int64_t)) + output->SerializedBytes(bodies.back());
  }
  StateWriter out(take);
  const std::string signature = SignatureOf(from.layouts());
  const auto write_body = [&](StateWriter& to) {
    to.Put(from.num_contributions);
    to.Put(from.num_clients);
    for (size_t i = 0; i < bodies.size(); ++i) {
      to.Put(from.outputs[i]->SerializedBytes(bodies[i]));
      from.outputs[i]->Write(bodies[i], to);
    }
  };
  WriteWrapped({.magic = kMagic, .signature = signature, .body_bytes = body_bytes}, write_body, out);
  return out.Finish();
}

absl::StatusOr<AggregateRelease> RoundAccumulator::State::View(ParallelFor& parallel) const {
  AggregateRelease release;
  for (const auto& output : outputs) RETURN_IF_ERROR(output->AppendTo(release, parallel));
  release.num_contributions = num_contributions;
  release.num_clients = num_clients;
  return release;
}

absl::StatusOr<AggregateReport> RoundAccumulator::Report() const {
  ASSIGN_OR_RETURN(AggregateRelease release, state().View(state().one_by_one));
  AggregateReport report;
  for (ReleasedTensor& tensor : release.tensors) {
    const auto size = static_cast<size_t>(tensor.size_bytes());
    std::string data;
    data.reserve(size);
    AdviseHugePages(data.data(), size);
    RETURN_IF_ERROR(tensor.write([&data](std::string_view piece) {
      data += piece;
      return absl::OkStatus();
    }));
    SHEAF_CHECK(data.size() == size, "{} has {} bytes instead of {}", tensor.name, data.size(), size);
    report.tensors.push_back({std::move(tensor.name), tensor.dtype, std::move(tensor.shape), std::move(data)});
  }
  static_cast<AggregateSummary&>(report) = std::move(release);
  return report;
}

absl::StatusOr<AggregateRelease> RoundAccumulator::Release() && { return std::move(*this).Release(state().one_by_one); }

absl::StatusOr<AggregateRelease> RoundAccumulator::Release(ParallelFor& parallel) && {
  static_cast<void>(state());
  const std::shared_ptr<const State> state = std::move(state_);
  ASSIGN_OR_RETURN(AggregateRelease release, state->View(parallel));
  // What a tensor is written from lives as long as the tensor.
  for (ReleasedTensor& tensor : release.tensors) {
    tensor.write = [state, write = std::move(tensor.write)](const ByteSink& take) { return write(take); };
  }
  return release;
}

int64_t RoundAccumulator::num_contributions() const { return state().num_contributions; }
int64_t RoundAccumulator::num_clients() const { return state().num_clients; }

int64_t RoundAccumulator::memory_bytes() const {
  const State& from = state();
  int64_t bytes = 0;
  for (size_t i = 0; i < from.outputs.size(); ++i) {
    const int64_t held_bytes = from.outputs[i]->memory_bytes();
    from.validator->SetHeldBytes(i, held_bytes);
    bytes += held_bytes;
  }
  return bytes;
}

std::map<std::string, std::string> RoundAccumulator::OutputStates() const {
  std::map<std::string, std::string> states;
  for (const auto& output : state().outputs) states.emplace(output->layout().name, output->Serialize());
  return states;
}

v1::Contribution RoundAccumulator::PartialAggregate() const {
  v1::Contribution partial;
  partial.set_num_clients(num_clients());
  for (const auto& output : state().outputs) {
    v1::OutputValue& value = *partial.add_outputs();
    value.set_name(output->layout().name);
    value.set_state(output->Serialize());
  }
  return partial;
}

absl::Status RoundAccumulator::WritePartialAggregate(const ByteSink& take) const {
  const State& from = state();
  StateWriter out(take);
  for (const auto& output : from.outputs) {
    const int64_t body_bytes = output->MeasureBody();
    const int64_t state_bytes = output->SerializedBytes(body_bytes);
    const std::string& name = output->layout().name;
    // v1::OutputValue, whose fields are both of the kind that has a length.
    const auto value_bytes = FieldFrameBytes(static_cast<int64_t>(name.size())) + static_cast<int64_t>(name.size()) +
                             FieldFrameBytes(state_bytes) + state_bytes;
    PutFieldFrame(v1::Contribution::kOutputsFieldNumber, value_bytes, out);
    PutFieldFrame(v1::OutputValue::kNameFieldNumber, static_cast<int64_t>(name.size()), out);
    out.PutBytes(name);
    PutFieldFrame(v1::OutputValue::kStateFieldNumber, state_bytes, out);
    output->Write(body_bytes, out);
  }
  v1::Contribution rest;
  rest.set_num_clients(num_clients());
  out.PutBytes(rest.SerializeAsString());
  return out.Finish();
}

}  // namespace sheaf
