#include "worker/runners/result_contribution.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "aggregation/operators.h"
#include "aggregation/refusal.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

absl::Status Refused(RefusalKind kind, const std::string& output, std::string_view what) {
  return RefusedAs(kind, output, absl::InvalidArgumentError(fmt::format("output '{}': {}", output, what)));
}

// The tensors of a result, each for one output to take.
class Tensors {
 public:
  explicit Tensors(std::vector<NamedTensor> tensors) {
    for (NamedTensor& tensor : tensors) {
      std::string name = tensor.name;
      by_name_.emplace(std::move(name), std::move(tensor));
    }
  }

  std::optional<NamedTensor> Take(const std::string& name) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return std::nullopt;
    NamedTensor tensor = std::move(found->second);
    by_name_.erase(found);
    return tensor;
  }
  // Of those that nobody took; empty if there is none.
  std::string AnyName() const { return by_name_.empty() ? "" : by_name_.begin()->first; }

 private:
  std::map<std::string, NamedTensor> by_name_;
};

void Fill(NamedTensor from, v1::Tensor& to) {
  to.set_dtype(from.dtype);
  to.mutable_shape()->Assign(from.shape.begin(), from.shape.end());
  *to.mutable_data() = std::move(from.data);
}

std::vector<int64_t> Integers(const NamedTensor& tensor) {
  std::vector<int64_t> values(tensor.data.size() / sizeof(int64_t));
  if (!values.empty()) std::memcpy(values.data(), tensor.data.data(), values.size() * sizeof(int64_t));
  return values;
}

class OutputReader {
 public:
  OutputReader(Tensors& tensors, const v1::OutputSpec& spec) : tensors_(tensors), spec_(spec) {}

  absl::Status Read(Operand operand, v1::OutputValue& value) {
    value.set_name(spec_.name());
    switch (operand) {
      case Operand::kDense:
        return ReadDense(*value.mutable_dense());
      case Operand::kSparse:
        return ReadSparse(*value.mutable_sparse());
      case Operand::kKeyed:
        return ReadKeyed(*value.mutable_keyed());
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<NamedTensor> Required(std::string_view part) {
    const std::string name = fmt::format("{}{}", spec_.name(), part);
    if (std::optional<NamedTensor> tensor = tensors_.Take(name)) return *std::move(tensor);
    return Refused(RefusalKind::kMissingOutput, spec_.name(), fmt::format("the result has no tensor '{}'", name));
  }

  absl::Status ReadDense(v1::Tensor& value) {
    // Its parts, if it is a sparse value, are nobody's to add up.
    if (tensors_.Take(spec_.name() + ".indices").has_value()) {
      return Refused(
          RefusalKind::kWrongOperand, spec_.name(),
          fmt::format("operator '{}' takes a dense tensor, and the result holds a sparse one; a sparse tensor is "
                      "one operand, its indices and values are never summed one by one: use a sparse operator",
                      spec_.operator_()));
    }
    ASSIGN_OR_RETURN(NamedTensor tensor, Required(""));
    Fill(std::move(tensor), value);
    return absl::OkStatus();
  }

  absl::Status ReadSparse(v1::SparseTensor& value) {
    ASSIGN_OR_RETURN(NamedTensor indices, Required(".indices"));
    ASSIGN_OR_RETURN(NamedTensor values, Required(".values"));
    if (const std::optional<NamedTensor> shape = tensors_.Take(spec_.name() + ".dense_shape")) {
      if (shape->dtype != v1::INT64) {
        return Refused(RefusalKind::kDType, spec_.name(), fmt::format("'{}' is not I64", shape->name));
      }
      const std::vector<int64_t> sizes = Integers(*shape);
      value.mutable_dense_shape()->Assign(sizes.begin(), sizes.end());
    } else {
      *value.mutable_dense_shape() = spec_.dense_shape();
    }
    Fill(std::move(indices), *value.mutable_indices());
    Fill(std::move(values), *value.mutable_values());
    return absl::OkStatus();
  }

  absl::Status ReadKeyed(v1::KeyedTable& value) {
    ASSIGN_OR_RETURN(NamedTensor keys, Required(".keys"));
    ASSIGN_OR_RETURN(NamedTensor values, Required(".values"));
    if (spec_.key_type() == v1::STRING_KEYS) {
      ASSIGN_OR_RETURN(const NamedTensor offsets, Required(".key_offsets"));
      RETURN_IF_ERROR(CutKeys(keys, offsets, value));
    } else {
      Fill(std::move(keys), *value.mutable_int_keys());
    }
    Fill(std::move(values), *value.mutable_values());
    return absl::OkStatus();
  }

  absl::Status CutKeys(const NamedTensor& keys, const NamedTensor& offsets, v1::KeyedTable& value) {
    if (keys.dtype != v1::UINT8 || offsets.dtype != v1::INT64) {
      return Refused(RefusalKind::kKeyType, spec_.name(),
                     fmt::format("string keys are a U8 tensor '{}' and an I64 tensor '{}'", keys.name, offsets.name));
    }
    const std::vector<int64_t> ends = Integers(offsets);
    bool is_ascending = !ends.empty() && ends.front() == 0 && ends.back() == static_cast<int64_t>(keys.data.size());
    for (size_t i = 1; i < ends.size(); ++i) is_ascending &= ends[i - 1] <= ends[i];
    if (!is_ascending) {
      return Refused(RefusalKind::kKeyLength, spec_.name(),
                     fmt::format("'{}' does not ascend from 0 to the {} bytes of '{}'", offsets.name, keys.data.size(),
                                 keys.name));
    }
    for (size_t i = 1; i < ends.size(); ++i) {
      value.add_string_keys(
          keys.data.substr(static_cast<size_t>(ends[i - 1]), static_cast<size_t>(ends[i] - ends[i - 1])));
    }
    return absl::OkStatus();
  }

  Tensors& tensors_;
  const v1::OutputSpec& spec_;
};

}  // namespace

absl::StatusOr<ResultMetrics> ParseResultMetrics(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("the metrics are not a JSON object");
  ResultMetrics metrics;
  for (const auto& [name, value] : json.items()) {
    if (!value.is_number() || !std::isfinite(value.get<double>())) {
      return absl::InvalidArgumentError("a metric is not a finite number");
    }
    if (name != "weight") {
      metrics.others.emplace(name, value.get<double>());
      continue;
    }
    metrics.weight = value.get<double>();
    if (!(metrics.weight > 0)) return absl::InvalidArgumentError("the weight is not above 0");
  }
  return metrics;
}

absl::StatusOr<v1::Contribution> ContributionOf(std::vector<NamedTensor> tensors, const ResultMetrics& metrics,
                                                const v1::AggregateSpec& aggregate) {
  Tensors left(std::move(tensors));
  v1::Contribution contribution;
  for (const v1::OutputSpec& spec : aggregate.outputs()) {
    const Operator* const op = FindOperator(Operators(), spec.operator_());
    if (op == nullptr) {
      return absl::UnimplementedError(fmt::format("this worker does not know the operator '{}'", spec.operator_()));
    }
    RETURN_IF_ERROR(OutputReader(left, spec).Read(op->operand, *contribution.add_outputs()));
  }
  if (const std::string name = left.AnyName(); !name.empty()) {
    return RefusedAs(RefusalKind::kUnknownOutput, "",
                     absl::InvalidArgumentError(
                         fmt::format("the result has a tensor '{}', which belongs to no output of the round", name)));
  }
  contribution.set_weight(static_cast<float>(metrics.weight));
  contribution.mutable_metrics()->insert(metrics.others.begin(), metrics.others.end());
  return contribution;
}

}  // namespace sheaf
