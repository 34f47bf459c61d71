#include "aggregation/round_accumulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "aggregation/contribution_check.h"
#include "aggregation/fold_growth.h"
#include "aggregation/operators.h"
#include "aggregation/output_accumulator.h"
#include "aggregation/output_layout.h"
#include "aggregation/sparse/sparse_block.h"
#include "aggregation/wire/safetensors.h"
#include "aggregation/wire/state_envelope.h"
#include "aggregation/zeroed_pool.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr uint32_t kMagic = 0x52414853;  // "SHAR"

absl::StatusOr<std::vector<OutputLayout>> LayoutsOf(const v1::AggregateSpec& spec,
                                                    std::span<const Operator> operators) {
  if (spec.outputs().empty()) {
    return absl::InvalidArgumentError(
        "the aggregate has no outputs; name at least one with its operator, dtype and shape");
  }
  if (!v1::Numerics_IsValid(spec.numerics())) {
    return absl::InvalidArgumentError("the numerics are unknown; use EXACT, which is the default, F64 or F32");
  }
  std::vector<OutputLayout> layouts;
  std::set<std::string> released;
  for (const v1::OutputSpec& output : spec.outputs()) {
    ASSIGN_OR_RETURN(OutputLayout layout, OutputLayout::FromSpec(output, spec.numerics(), operators));
    for (const std::string& name : layout.ReleasedNames()) {
      if (released.insert(name).second) continue;
      return absl::InvalidArgumentError(
          fmt::format("output '{}': another output also releases a tensor named '{}'; rename one", layout.name, name));
    }
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

std::string SignatureOf(const std::vector<OutputLayout>& layouts) {
  std::string signature;
  for (const OutputLayout& layout : layouts) signature += layout.Signature() + "\n";
  return signature;
}

}  // namespace

struct RoundAccumulator::State {
  std::vector<OutputLayout> layouts;
  std::vector<std::unique_ptr<OutputAccumulator>> outputs;
  // Somebody asked for more than a rough bound: from then on nothing waits in buckets, because nobody knows what it
  // would take.
  std::atomic<bool> is_tight = false;
  // Memory of each, when memory_bytes last looked.
  std::vector<std::atomic<int64_t>> held_bytes;
  int64_t num_contributions = 0;
  int64_t num_clients = 0;
};

struct ValidContribution::Parsed : CheckedContribution {};

ValidContribution::ValidContribution(std::unique_ptr<Parsed> parsed) : parsed_(std::move(parsed)) {}
ValidContribution::ValidContribution(ValidContribution&&) noexcept = default;
ValidContribution& ValidContribution::operator=(ValidContribution&&) noexcept = default;
ValidContribution::~ValidContribution() = default;
const v1::Contribution& ValidContribution::contribution() const { return parsed_->contribution; }
int64_t ValidContribution::num_clients() const { return parsed_->num_clients; }

int64_t ValidContribution::memory_bytes() const {
  int64_t bytes = 0;
  for (const CheckedOutput& output : parsed_->outputs) {
    if (output.partial != nullptr) bytes += output.partial->memory_bytes();
  }
  return bytes;
}

RoundAccumulator::RoundAccumulator(std::unique_ptr<State> state) : state_(std::move(state)) {}
RoundAccumulator::RoundAccumulator(RoundAccumulator&&) noexcept = default;
RoundAccumulator& RoundAccumulator::operator=(RoundAccumulator&&) noexcept = default;
RoundAccumulator::~RoundAccumulator() = default;

int64_t ReleasedTensor::size_bytes() const {
  // A shape of no elements may have any other dimensions.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  return std::accumulate(shape.begin(), shape.end(), DTypeSize(dtype), std::multiplies<int64_t>());
}

ReleasedTensor ReleaseWhole(NamedTensor tensor) {
  auto data = std::make_shared<const std::string>(std::move(tensor.data));
  return {std::move(tensor.name), tensor.dtype, std::move(tensor.shape),
          [data](const ByteSink& take) { return take(*data); }};
}

absl::Status ValidateAggregateSpec(const v1::AggregateSpec& spec) { return LayoutsOf(spec, Operators()).status(); }

std::vector<int64_t> EstimateStateBytes(const v1::AggregateSpec& spec) {
  const absl::StatusOr<std::vector<OutputLayout>> layouts = LayoutsOf(spec, Operators());
  SHEAF_CHECK(layouts.ok(), "{}", layouts.status().ToString());
  std::vector<int64_t> bytes;
  for (const OutputLayout& layout : *layouts) {
    // Rows of no values come one by one, as those of sparse results.
    const bool is_full = layout.releases_dense && layout.width > 0;
    const int64_t slot_bytes = layout.op->operand == Operand::kSparse ? SlotBytes(layout) : 0;
    const int64_t coordinate_bytes = layout.width * CellBytes(layout.cell_type()) + slot_bytes;
    bytes.push_back(is_full ? layout.num_coordinates * coordinate_bytes : 0);
  }
  return bytes;
}

absl::StatusOr<RoundAccumulator> RoundAccumulator::Create(const v1::AggregateSpec& spec) {
  return Create(spec, Operators());
}

absl::StatusOr<RoundAccumulator> RoundAccumulator::Create(const v1::AggregateSpec& spec,
                                                          std::span<const Operator> operators) {
  auto state = std::make_unique<State>();
  ASSIGN_OR_RETURN(state->layouts, LayoutsOf(spec, operators));
  for (const OutputLayout& layout : state->layouts) state->outputs.push_back(layout.op->create(layout));
  state->held_bytes = std::vector<std::atomic<int64_t>>(state->outputs.size());
  return RoundAccumulator(std::move(state));
}

absl::StatusOr<RoundAccumulator> RoundAccumulator::Restore(const v1::AggregateSpec& spec, std::string_view state) {
  return Restore(spec, Operators(), state);
}

absl::StatusOr<RoundAccumulator> RoundAccumulator::Restore(const v1::AggregateSpec& spec,
                                                           std::span<const Operator> operators,
                                                           std::string_view bytes) {
  ASSIGN_OR_RETURN(RoundAccumulator restored, Create(spec, operators));
  State& state = *restored.state_;
  ASSIGN_OR_RETURN(const std::string_view body, OpenState(kMagic, SignatureOf(state.layouts), bytes));
  StateReader in(body);
  ASSIGN_OR_RETURN(state.num_contributions, in.Get<int64_t>());
  ASSIGN_OR_RETURN(state.num_clients, in.Get<int64_t>());
  for (const auto& output : state.outputs) {
    ASSIGN_OR_RETURN(const std::string_view output_state, in.GetString());
    RETURN_IF_ERROR(output->Restore(output_state, StateSource::kCheckpoint));
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

absl::StatusOr<ValidContribution> RoundAccumulator::Validate(v1::Contribution contribution) const {
  auto parsed = std::make_unique<ValidContribution::Parsed>();
  parsed->contribution = std::move(contribution);
  RETURN_IF_ERROR(CheckContribution(state_->layouts, *parsed));
  return ValidContribution(std::move(parsed));
}

int64_t RoundAccumulator::Growth(const ValidContribution& valid, GrowthDetail detail) const {
  const ValidContribution::Parsed& parsed = *valid.parsed_;
  int64_t bytes = 0;
  for (size_t i = 0; i < parsed.outputs.size(); ++i) {
    const CheckedOutput& output = parsed.outputs[i];
    const int64_t held_bytes = state_->held_bytes[i].load(std::memory_order_relaxed);
    bytes += output.partial != nullptr ? FoldGrowth(*output.partial, held_bytes)
                                       : FoldGrowth(state_->layouts[i], output.value, held_bytes, detail);
  }
  return bytes;
}

int64_t RoundAccumulator::GrowthMax(const ValidContribution& valid, int64_t room) const {
  const int64_t worst = Growth(valid, GrowthDetail::kWorst);
  if (worst <= room) return worst;
  state_->is_tight.store(true, std::memory_order_relaxed);
  return Growth(valid, GrowthDetail::kScanned);
}

void RoundAccumulator::PrepareGrowthMax(ValidContribution& valid, int64_t memory_max) const {
  int64_t held = 0;
  for (const std::atomic<int64_t>& bytes : state_->held_bytes) held += bytes.load(std::memory_order_relaxed);
  // Others like it may be on their way.
  constexpr int64_t kOthers = 16;
  if (Growth(valid, GrowthDetail::kWorst) <= (memory_max - held) / kOthers) return;
  std::vector<CheckedOutput>& outputs = valid.parsed_->outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].partial == nullptr) outputs[i].value.bins = CountBins(state_->layouts[i], outputs[i].value);
  }
}

void RoundAccumulator::Accumulate(const ValidContribution& valid) {
  InlineFor one_by_one;
  Accumulate(valid, one_by_one);
}

void RoundAccumulator::Accumulate(const ValidContribution& valid, ParallelFor& parallel) {
  const ValidContribution::Parsed& parsed = *valid.parsed_;
  SHEAF_CHECK(parsed.outputs.size() == state_->outputs.size(), "the contribution was validated for another spec");
  for (size_t i = 0; i < parsed.outputs.size(); ++i) {
    const CheckedOutput& output = parsed.outputs[i];
    if (output.partial != nullptr) {
      state_->outputs[i]->Merge(*output.partial);
    } else {
      state_->outputs[i]->Accumulate(output.value, parallel);
    }
  }
  ++state_->num_contributions;
  state_->num_clients += parsed.num_clients;
  if (state_->is_tight.load(std::memory_order_relaxed)) {
    for (const auto& output : state_->outputs) output->Settle();
  }
}

void RoundAccumulator::Merge(RoundAccumulator&& other) {
  const std::unique_ptr<State> from = std::move(other.state_);
  SHEAF_CHECK(SignatureOf(from->layouts) == SignatureOf(state_->layouts), "merging accumulators of different specs");
  for (size_t i = 0; i < from->outputs.size(); ++i) state_->outputs[i]->Merge(*from->outputs[i]);
  state_->num_contributions += from->num_contributions;
  state_->num_clients += from->num_clients;
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
  // Lengths stand before what they are of.
  std::vector<int64_t> bodies;
  int64_t body_bytes = 2 * sizeof(int64_t);
  for (const auto& output : state_->outputs) {
    bodies.push_back(output->MeasureBody());
    body_bytes += static_cast<int64_t>(sizeof(int64_t)) + output->SerializedBytes(bodies.back());
  }
  StateWriter out(take);
  const std::string signature = SignatureOf(state_->layouts);
  const auto write_body = [&](StateWriter& to) {
    to.Put(state_->num_contributions);
    to.Put(state_->num_clients);
    for (size_t i = 0; i < bodies.size(); ++i) {
      to.Put(state_->outputs[i]->SerializedBytes(bodies[i]));
      state_->outputs[i]->Write(bodies[i], to);
    }
  };
  WriteSealed({.magic = kMagic, .signature = signature, .body_bytes = body_bytes}, write_body, out);
  return out.Finish();
}

absl::StatusOr<AggregateReport> RoundAccumulator::Report() const {
  ASSIGN_OR_RETURN(AggregateRelease release, Release());
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

absl::StatusOr<AggregateRelease> RoundAccumulator::Release() const {
  AggregateRelease release;
  for (const auto& output : state_->outputs) RETURN_IF_ERROR(output->Release(release));
  release.num_contributions = state_->num_contributions;
  release.num_clients = state_->num_clients;
  return release;
}

int64_t RoundAccumulator::num_contributions() const { return state_->num_contributions; }
int64_t RoundAccumulator::num_clients() const { return state_->num_clients; }

int64_t RoundAccumulator::memory_bytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < state_->outputs.size(); ++i) {
    const int64_t held_bytes = state_->outputs[i]->memory_bytes();
    state_->held_bytes[i].store(held_bytes, std::memory_order_relaxed);
    bytes += held_bytes;
  }
  return bytes;
}

std::map<std::string, std::string> RoundAccumulator::OutputStates() const {
  std::map<std::string, std::string> states;
  for (const auto& output : state_->outputs) states.emplace(output->layout().name, output->Serialize());
  return states;
}

v1::Contribution RoundAccumulator::PartialAggregate() const {
  v1::Contribution partial;
  partial.set_num_clients(num_clients());
  for (const auto& output : state_->outputs) {
    v1::OutputValue& value = *partial.add_outputs();
    value.set_name(output->layout().name);
    value.set_state(output->Serialize());
  }
  return partial;
}

}  // namespace sheaf
