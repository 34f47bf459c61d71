#include "aggregation/contribution_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "aggregation/refusal.h"
#include "aggregation/tensor_check.h"
#include "aggregation/wire/state_origin.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// INVALID_ARGUMENT; `output` is the round's name for it, or empty.
absl::Status Refuse(RefusalKind kind, std::string_view output, const std::string& message) {
  return RefusedAs(kind, output, absl::InvalidArgumentError(message));
}

// The contribution's values, in the order of the spec: each exactly once.
absl::StatusOr<std::vector<const v1::OutputValue*>> MatchOutputs(std::span<const OutputLayout> layouts,
                                                                 const v1::Contribution& contribution) {
  std::map<std::string_view, size_t> positions;
  for (size_t i = 0; i < layouts.size(); ++i) positions.emplace(layouts[i].name, i);
  std::vector<const v1::OutputValue*> values(layouts.size());
  for (const v1::OutputValue& value : contribution.outputs()) {
    const auto found = positions.find(value.name());
    if (found == positions.end()) {
      std::vector<std::string_view> names;
      for (const auto& [name, position] : positions) names.push_back(name);
      return Refuse(
          RefusalKind::kUnknownOutput, "",
          fmt::format("the round has no output '{}'; it has {}", value.name().substr(0, 128), fmt::join(names, ", ")));
    }
    const v1::OutputValue*& slot = values[found->second];
    if (slot != nullptr)
      return Refuse(RefusalKind::kRepeatedOutput, value.name(),
                    fmt::format("output '{}' occurs twice in the contribution", value.name()));
    slot = &value;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != nullptr) continue;
    return Refuse(RefusalKind::kMissingOutput, layouts[i].name,
                  fmt::format("output '{}' is missing from the contribution", layouts[i].name));
  }
  return values;
}

absl::StatusOr<float> WeightOf(const v1::Contribution& contribution) {
  const float weight = contribution.weight();
  if (weight == 0) return 1.0f;
  if (std::isfinite(weight) && weight > 0) return weight;
  return Refuse(RefusalKind::kWeight, "",
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
    case v1::OutputValue::kKeyed:
      return "a keyed table";
    case v1::OutputValue::VALUE_NOT_SET:
      return "nothing";
  }
  return "nothing";
}

absl::Status WrongKind(const OutputLayout& layout, const v1::OutputValue& value) {
  const Operand operand = layout.op->operand;
  const char* expected = operand == Operand::kDense    ? "dense tensor"
                         : operand == Operand::kSparse ? "sparse tensor"
                                                       : "keyed table";
  const bool is_split = operand == Operand::kDense && value.has_sparse();
  return Refuse(
      RefusalKind::kWrongOperand, layout.name,
      fmt::format(
          "output '{}': operator '{}' takes a {}, the contribution holds {}{}", layout.name, layout.op->symbol,
          expected, KindOf(value),
          is_split
              ? "; a sparse tensor is one operand, its indices and values are never summed one by one: use a sparse "
                "operator"
              : ""));
}

absl::Status CheckClients(const v1::Contribution& contribution, bool is_partial) {
  const int64_t num_clients = contribution.num_clients();
  if (num_clients < 0 || num_clients > kClientsMax) {
    return Refuse(RefusalKind::kNumClients, "",
                  fmt::format("num_clients is {}; it must lie in [0, 2^40]", num_clients));
  }
  if (!is_partial && num_clients > 1) {
    return Refuse(
        RefusalKind::kNumClients, "",
        fmt::format(
            "num_clients is {}, but the contribution carries values, which are one client's; several combine as states",
            num_clients));
  }
  if (is_partial && contribution.weight() != 0) {
    return Refuse(RefusalKind::kWeight, "",
                  "a partial aggregate carries its weights inside its states; leave weight unset");
  }
  return absl::OkStatus();
}

absl::Status CheckPartial(const OutputLayout& layout, const v1::OutputValue& value, int64_t num_clients,
                          CheckedOutput& output) {
  output.partial = layout.op->create(layout);
  const absl::Status status =
      output.partial->Restore(value.state(), layout.propagates_non_finite ? StateSource::kPartialAggregate
                                                                          : StateSource::kFinitePartialAggregate);
  if (!status.ok()) {
    return Refuse(RefusalKind::kState, layout.name,
                  fmt::format("output '{}': {}", layout.name, std::string(status.message())));
  }
  if (output.partial->num_clients() == num_clients) return absl::OkStatus();
  return Refuse(RefusalKind::kNumClients, layout.name,
                fmt::format("output '{}': its state combines {} clients, the contribution says {}", layout.name,
                            output.partial->num_clients(), num_clients));
}

absl::Status CheckValue(const OutputLayout& layout, const v1::OutputValue& value, float weight, ParallelFor& parallel,
                        CheckedOutput& output) {
  output.value.weight = weight;
  switch (layout.op->operand) {
    case Operand::kDense:
      if (!value.has_dense()) return WrongKind(layout, value);
      RETURN_IF_ERROR(CheckDense(layout, value.dense(), parallel, output.ranges));
      output.value.data = value.dense().data();
      output.value.ranges = output.ranges;
      break;
    case Operand::kSparse:
      if (!value.has_sparse()) return WrongKind(layout, value);
      RETURN_IF_ERROR(CheckSparse(layout, value.sparse(), parallel, output.keys));
      output.value.data = value.sparse().values().data();
      output.value.keys = output.keys;
      break;
    case Operand::kKeyed:
      if (!value.has_keyed()) return WrongKind(layout, value);
      RETURN_IF_ERROR(CheckKeyed(layout, value.keyed(), parallel, output.keys));
      output.value.data = value.keyed().values().data();
      output.value.keys = output.keys;
      output.value.string_keys = &value.keyed().string_keys();
      break;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckContribution(std::span<const OutputLayout> layouts, ParallelFor& parallel,
                               CheckedContribution& checked) {
  const v1::Contribution& contribution = checked.contribution;
  ASSIGN_OR_RETURN(const float weight, WeightOf(contribution));
  ASSIGN_OR_RETURN(const std::vector<const v1::OutputValue*> values, MatchOutputs(layouts, contribution));
  const bool is_partial = values.front()->has_state();
  RETURN_IF_ERROR(CheckClients(contribution, is_partial));
  checked.num_clients = std::max<int64_t>(contribution.num_clients(), 1);
  checked.outputs.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const v1::OutputValue& value = *values[i];
    if (value.has_state() != is_partial) {
      return Refuse(
          RefusalKind::kMixedOperands, "",
          fmt::format("output '{}' holds {}, but output '{}' holds {}; a contribution carries states for all outputs, "
                      "or values for all",
                      value.name(), KindOf(value), values.front()->name(), KindOf(*values.front())));
    }
    RETURN_IF_ERROR(is_partial ? CheckPartial(layouts[i], value, checked.num_clients, checked.outputs[i])
                               : CheckValue(layouts[i], value, weight, parallel, checked.outputs[i]));
  }
  return absl::OkStatus();
}

}  // namespace sheaf
