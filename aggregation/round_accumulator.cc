#include "aggregation/round_accumulator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>
#include <utility>

#include "aggregation/contribution_check.h"
#include "aggregation/operators.h"
#include "aggregation/output_accumulator.h"
#include "aggregation/output_layout.h"
#include "aggregation/state_envelope.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr uint32_t kMagic = 0x52414853;  // "SHAR"

absl::StatusOr<std::vector<OutputLayout>> LayoutsOf(const v1::AggregateSpec& spec) {
  if (spec.outputs().empty()) {
    return absl::InvalidArgumentError(
        "the aggregate has no outputs; name at least one with its operator, dtype and shape");
  }
  if (spec.numerics() != v1::NUMERICS_UNSPECIFIED && spec.numerics() != v1::EXACT) {
    return absl::InvalidArgumentError(fmt::format("numerics {} does not work here; use EXACT, which is the default",
                                                  v1::Numerics_Name(spec.numerics())));
  }
  std::vector<OutputLayout> layouts;
  std::set<std::string> released;
  for (const v1::OutputSpec& output : spec.outputs()) {
    ASSIGN_OR_RETURN(OutputLayout layout, OutputLayout::FromSpec(output));
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
  int64_t num_contributions = 0;
  int64_t num_clients = 0;
};

struct ValidContribution::Parsed {
  // One per output, in the order of the spec.
  struct Output {
    CheckedValue value;
    std::vector<int64_t> keys;
    // Set in a partial aggregate, instead of the value.
    std::unique_ptr<OutputAccumulator> partial;
  };
  v1::Contribution contribution;
  std::vector<Output> outputs;
  int64_t num_clients = 1;
};

namespace {

// The contribution's values, in the order of the spec: each exactly once.
absl::StatusOr<std::vector<const v1::OutputValue*>> MatchOutputs(const std::vector<OutputLayout>& layouts,
                                                                 const v1::Contribution& contribution) {
  std::map<std::string_view, size_t> positions;
  for (size_t i = 0; i < layouts.size(); ++i) positions.emplace(layouts[i].name, i);
  std::vector<const v1::OutputValue*> values(layouts.size());
  for (const v1::OutputValue& value : contribution.outputs()) {
    const auto found = positions.find(value.name());
    if (found == positions.end()) {
      std::vector<std::string_view> names;
      for (const auto& [name, position] : positions) names.push_back(name);
      return absl::InvalidArgumentError(
          fmt::format("the round has no output '{}'; it has {}", value.name().substr(0, 128), fmt::join(names, ", ")));
    }
    const v1::OutputValue*& slot = values[found->second];
    if (slot != nullptr)
      return absl::InvalidArgumentError(fmt::format("output '{}' occurs twice in the contribution", value.name()));
    slot = &value;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != nullptr) continue;
    return absl::InvalidArgumentError(fmt::format("output '{}' is missing from the contribution", layouts[i].name));
  }
  return values;
}

absl::StatusOr<float> WeightOf(const v1::Contribution& contribution) {
  const float weight = contribution.weight();
  if (weight == 0) return 1.0f;
  if (std::isfinite(weight) && weight > 0) return weight;
  return absl::InvalidArgumentError(
      fmt::format("the contribution's weight is {}; it must be finite and greater than 0", weight));
}

// What a contribution of this type is said to hold, for messages.
const char* KindOf(const v1::OutputValue& value) {
  switch (value.value_case()) {
    case v1::OutputValue::kDense:
      return "a dense tensor";
    case v1::OutputValue::kSparse:
      return "a sparse tensor";
    case v1::OutputValue::kState:
      return "a partial aggregate's state";
    case v1::OutputValue::VALUE_NOT_SET:
      return "nothing";
  }
  return "nothing";
}

absl::Status WrongKind(const OutputLayout& layout, const v1::OutputValue& value) {
  const bool is_sparse = layout.op->is_sparse;
  return absl::InvalidArgumentError(
      fmt::format("output '{}': operator '{}' takes a {} tensor, the contribution holds {}{}", layout.name,
                  layout.op->symbol, is_sparse ? "sparse" : "dense", KindOf(value),
                  !is_sparse && value.has_sparse() ? "; a sparse tensor is one operand, its indices and values are "
                                                     "never summed one by one: use a sparse operator"
                                                   : ""));
}

}  // namespace

ValidContribution::ValidContribution(std::unique_ptr<Parsed> parsed) : parsed_(std::move(parsed)) {}
ValidContribution::ValidContribution(ValidContribution&&) noexcept = default;
ValidContribution& ValidContribution::operator=(ValidContribution&&) noexcept = default;
ValidContribution::~ValidContribution() = default;
const v1::Contribution& ValidContribution::contribution() const { return parsed_->contribution; }
int64_t ValidContribution::num_clients() const { return parsed_->num_clients; }

RoundAccumulator::RoundAccumulator(std::unique_ptr<State> state) : state_(std::move(state)) {}
RoundAccumulator::RoundAccumulator(RoundAccumulator&&) noexcept = default;
RoundAccumulator& RoundAccumulator::operator=(RoundAccumulator&&) noexcept = default;
RoundAccumulator::~RoundAccumulator() = default;

absl::Status ValidateAggregateSpec(const v1::AggregateSpec& spec) { return LayoutsOf(spec).status(); }

absl::StatusOr<RoundAccumulator> RoundAccumulator::Create(const v1::AggregateSpec& spec) {
  auto state = std::make_unique<State>();
  ASSIGN_OR_RETURN(state->layouts, LayoutsOf(spec));
  for (const OutputLayout& layout : state->layouts) state->outputs.push_back(layout.op->create(layout));
  return RoundAccumulator(std::move(state));
}

absl::StatusOr<RoundAccumulator> RoundAccumulator::Restore(const v1::AggregateSpec& spec, std::string_view bytes) {
  ASSIGN_OR_RETURN(RoundAccumulator restored, Create(spec));
  State& state = *restored.state_;
  ASSIGN_OR_RETURN(const std::string_view body, OpenState(kMagic, SignatureOf(state.layouts), bytes));
  StateReader in(body);
  ASSIGN_OR_RETURN(state.num_contributions, in.Get<int64_t>());
  ASSIGN_OR_RETURN(state.num_clients, in.Get<int64_t>());
  for (const auto& output : state.outputs) {
    ASSIGN_OR_RETURN(const std::string_view output_state, in.GetString());
    RETURN_IF_ERROR(output->Restore(output_state, StateOrigin::kCheckpoint));
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
  const v1::Contribution& held = parsed->contribution;
  ASSIGN_OR_RETURN(const float weight, WeightOf(held));
  if (held.num_clients() < 0 || held.num_clients() > kClientsMax) {
    return absl::InvalidArgumentError(fmt::format("num_clients is {}; it must lie in [0, 2^40]", held.num_clients()));
  }
  parsed->num_clients = std::max<int64_t>(held.num_clients(), 1);
  ASSIGN_OR_RETURN(const std::vector<const v1::OutputValue*> values, MatchOutputs(state_->layouts, held));
  const bool is_partial = values.front()->has_state();
  if (is_partial && held.weight() != 0) {
    return absl::InvalidArgumentError("a partial aggregate carries its weights inside its states; leave weight unset");
  }
  if (!is_partial && parsed->num_clients != 1) {
    return absl::InvalidArgumentError(fmt::format(
        "num_clients is {}, but the contribution carries values, which are one client's; several combine as states",
        parsed->num_clients));
  }
  parsed->outputs.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const OutputLayout& layout = state_->layouts[i];
    const v1::OutputValue& value = *values[i];
    ValidContribution::Parsed::Output& output = parsed->outputs[i];
    if (value.has_state() != is_partial) {
      return absl::InvalidArgumentError(fmt::format(
          "output '{}' holds {}, output '{}' {}; a contribution carries states for all outputs, or values for all",
          layout.name, KindOf(value), state_->layouts.front().name, KindOf(*values.front())));
    }
    if (is_partial) {
      output.partial = layout.op->create(layout);
      const absl::Status status = output.partial->Restore(value.state(), StateOrigin::kPartialAggregate);
      if (!status.ok()) {
        return absl::InvalidArgumentError(fmt::format("output '{}': {}", layout.name, std::string(status.message())));
      }
      if (output.partial->num_clients() != parsed->num_clients) {
        return absl::InvalidArgumentError(
            fmt::format("output '{}': its state combines {} clients, the contribution says {}", layout.name,
                        output.partial->num_clients(), parsed->num_clients));
      }
    } else if (layout.op->is_sparse) {
      if (!value.has_sparse()) return WrongKind(layout, value);
      RETURN_IF_ERROR(CheckSparse(layout, value.sparse(), output.keys));
      output.value = {.data = value.sparse().values().data(), .keys = output.keys, .weight = weight};
    } else {
      if (!value.has_dense()) return WrongKind(layout, value);
      RETURN_IF_ERROR(CheckDense(layout, value.dense()));
      output.value = {.data = value.dense().data(), .keys = {}, .weight = weight};
    }
  }
  return ValidContribution(std::move(parsed));
}

void RoundAccumulator::Accumulate(const ValidContribution& valid) {
  const ValidContribution::Parsed& parsed = *valid.parsed_;
  SHEAF_CHECK(parsed.outputs.size() == state_->outputs.size(), "the contribution was validated for another spec");
  for (size_t i = 0; i < parsed.outputs.size(); ++i) {
    const auto& output = parsed.outputs[i];
    if (output.partial != nullptr) {
      state_->outputs[i]->Merge(*output.partial);
    } else {
      state_->outputs[i]->Accumulate(output.value);
    }
  }
  ++state_->num_contributions;
  state_->num_clients += parsed.num_clients;
}

void RoundAccumulator::Merge(RoundAccumulator&& other) {
  const std::unique_ptr<State> from = std::move(other.state_);
  SHEAF_CHECK(SignatureOf(from->layouts) == SignatureOf(state_->layouts), "merging accumulators of different specs");
  for (size_t i = 0; i < from->outputs.size(); ++i) state_->outputs[i]->Merge(*from->outputs[i]);
  state_->num_contributions += from->num_contributions;
  state_->num_clients += from->num_clients;
}

std::string RoundAccumulator::Serialize() const {
  StateWriter out;
  out.Put(state_->num_contributions);
  out.Put(state_->num_clients);
  for (const auto& output : state_->outputs) out.PutString(output->Serialize());
  return SealState(kMagic, SignatureOf(state_->layouts), out.bytes());
}

absl::StatusOr<AggregateReport> RoundAccumulator::Report() const {
  AggregateReport report;
  for (const auto& output : state_->outputs) RETURN_IF_ERROR(output->Report(report));
  report.num_contributions = state_->num_contributions;
  report.num_clients = state_->num_clients;
  return report;
}

int64_t RoundAccumulator::num_contributions() const { return state_->num_contributions; }
int64_t RoundAccumulator::num_clients() const { return state_->num_clients; }

int64_t RoundAccumulator::memory_bytes() const {
  int64_t bytes = 0;
  for (const auto& output : state_->outputs) bytes += output->memory_bytes();
  return bytes;
}

std::map<std::string, std::string> RoundAccumulator::OutputStates() const {
  std::map<std::string, std::string> states;
  for (const auto& output : state_->outputs) states.emplace(output->layout().name, output->Serialize());
  return states;
}

}  // namespace sheaf
