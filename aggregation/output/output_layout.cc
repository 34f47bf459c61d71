#include "aggregation/output/output_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "aggregation/exact/exact_kernels.h"
#include "aggregation/wire/tensor.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '/' || c == '-';
}

absl::Status CheckName(const std::string& name) {
  if (name.empty() || name.size() > kOutputNameCharactersMax ||
      !std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return absl::InvalidArgumentError(fmt::format("output name '{}': use 1 to {} of the characters A-Z a-z 0-9 _ . / -",
                                                  name.substr(0, kOutputNameCharactersMax), kOutputNameCharactersMax));
  }
  if (name == "__metadata__") {
    return absl::InvalidArgumentError("output name '__metadata__' is taken by the file format; choose another");
  }
  return absl::OkStatus();
}

absl::Status CheckType(const OutputLayout& layout) {
  if (DTypeSize(layout.dtype) == 0 || layout.dtype == v1::UINT8) {
    return absl::InvalidArgumentError("its dtype is missing or unknown; use FLOAT32, FLOAT64, INT32, INT64 or UINT64");
  }
  const bool is_float = layout.dtype == v1::FLOAT32 || layout.dtype == v1::FLOAT64;
  if (layout.dtype == v1::FLOAT64 && layout.numerics == v1::F32 && layout.op->reduction == Reduction::kSum) {
    return absl::InvalidArgumentError(
        "numerics F32 is too narrow for FLOAT64; use F64 or EXACT, or contribute FLOAT32");
  }
  if (!is_float && !layout.op->takes_integers()) {
    return absl::InvalidArgumentError(fmt::format(
        "it does not take {}, because a mean of integers is not an integer; contribute FLOAT64, or use a sum",
        v1::DType_Name(layout.dtype)));
  }
  if (!is_float && layout.propagates_non_finite) {
    return absl::InvalidArgumentError("non_finite is for floating point; leave it unset for integers");
  }
  return absl::OkStatus();
}

bool ReleasesDense(const v1::OutputSpec& spec, const Operator& op) {
  return spec.form() == v1::OUTPUT_FORM_UNSPECIFIED ? op.releases_dense : spec.form() == v1::DENSE;
}

absl::Status CheckForm(const v1::OutputSpec& spec, const Operator& op) {
  if (spec.form() == v1::OUTPUT_FORM_UNSPECIFIED) return absl::OkStatus();
  if (!v1::OutputForm_IsValid(spec.form())) {
    return absl::InvalidArgumentError("its form is unknown; use SPARSE or DENSE, or leave it unset");
  }
  if (op.operand != Operand::kSparse) {
    return absl::InvalidArgumentError("form is for sparse operators; leave it unset");
  }
  if (spec.form() == v1::DENSE && op.reduction != Reduction::kSum) {
    return absl::InvalidArgumentError(
        "it has no dense form: coordinates that nobody touched would hold 0, which nobody sent; release it SPARSE");
  }
  return absl::OkStatus();
}

absl::Status CheckModifiers(const v1::OutputSpec& spec, const Operator& op) {
  if (spec.min_contributors() < 0 || spec.nnz_max() < 0 || spec.index_dims() < 0) {
    return absl::InvalidArgumentError("min_contributors, nnz_max and index_dims must not be negative");
  }
  const bool is_dense = op.operand == Operand::kDense;
  if (is_dense && (spec.min_contributors() > 1 || spec.nnz_max() > 0 || spec.index_dims() > 0 || spec.drop_zeros())) {
    return absl::InvalidArgumentError(
        "min_contributors, nnz_max, index_dims and drop_zeros are for sparse operators; leave them unset");
  }
  RETURN_IF_ERROR(CheckForm(spec, op));
  if (op.operand == Operand::kKeyed && spec.index_dims() > 0) {
    return absl::InvalidArgumentError("index_dims is for sparse operators; keys have no dimensions: leave it unset");
  }
  if (op.operand == Operand::kKeyed && spec.key_type() != v1::STRING_KEYS && spec.key_type() != v1::INT64_KEYS) {
    return absl::InvalidArgumentError("its key_type is missing or unknown; use STRING_KEYS or INT64_KEYS");
  }
  if (op.operand != Operand::kKeyed && spec.key_type() != v1::KEY_TYPE_UNSPECIFIED) {
    return absl::InvalidArgumentError("key_type is for keyed operators; leave it unset");
  }
  if (ReleasesDense(spec, op) && spec.drop_zeros()) {
    return absl::InvalidArgumentError("drop_zeros means nothing in a dense result; leave it unset");
  }
  if (v1::NonFinitePolicy_IsValid(spec.non_finite())) return absl::OkStatus();
  return absl::InvalidArgumentError("its non_finite policy is unknown; use REJECT_NON_FINITE or PROPAGATE_NON_FINITE");
}

absl::Status SetShape(const v1::OutputSpec& spec, OutputLayout& layout) {
  const int rank = spec.dense_shape_size();
  if (rank > kRankMax)
    return absl::InvalidArgumentError(fmt::format("its shape has {} dimensions; the most is {}", rank, kRankMax));
  layout.shape.assign(spec.dense_shape().begin(), spec.dense_shape().end());
  if (std::any_of(layout.shape.begin(), layout.shape.end(), [](int64_t size) { return size < 0; })) {
    return absl::InvalidArgumentError(fmt::format("its shape {} has a negative size", ShapeText(layout.shape)));
  }
  if (layout.op->operand == Operand::kSparse) {
    layout.index_dims = spec.index_dims() > 0 ? spec.index_dims() : layout.op->default_index_dims;
    if (spec.index_dims() == 0 && layout.op->default_index_dims == kAllDims) layout.index_dims = rank;
    if (layout.index_dims > rank) {
      return absl::InvalidArgumentError(fmt::format("its indices address {} dimensions, but its shape {} has {}",
                                                    layout.index_dims, ShapeText(layout.shape), rank));
    }
  }
  const std::optional<int64_t> coordinates = Product(layout.leading_dims());
  const std::optional<int64_t> width = Product(layout.trailing_dims());
  if (!coordinates.has_value()) {
    return absl::InvalidArgumentError(
        fmt::format("its shape {} has more than 2^63 coordinates", ShapeText(layout.shape)));
  }
  const std::optional<int64_t> all = Product(layout.shape);
  if (!width.has_value() || *width > kDenseElementsMax ||
      (layout.releases_dense && (!all.has_value() || *all > kDenseElementsMax))) {
    return absl::InvalidArgumentError(
        fmt::format("its shape {} holds more than {} dense elements; use a sparse operator", ShapeText(layout.shape),
                    kDenseElementsMax));
  }
  layout.num_coordinates = *coordinates;
  layout.width = *width;
  return absl::OkStatus();
}

absl::Status FillLayout(const v1::OutputSpec& spec, OutputLayout& layout) {
  RETURN_IF_ERROR(CheckModifiers(spec, *layout.op));
  layout.dtype = spec.dtype();
  layout.key_type = spec.key_type();
  layout.releases_dense = ReleasesDense(spec, *layout.op);
  layout.min_contributors = spec.min_contributors();
  layout.nnz_max = spec.nnz_max();
  layout.drop_zeros = spec.drop_zeros();
  layout.propagates_non_finite = spec.non_finite() == v1::PROPAGATE_NON_FINITE;
  RETURN_IF_ERROR(CheckType(layout));
  return SetShape(spec, layout);
}

std::string SymbolsText(std::span<const Operator> table) {
  std::vector<std::string_view> symbols;
  for (const Operator& op : table) symbols.push_back(op.symbol);
  return fmt::format("{}", fmt::join(symbols, ", "));
}

}  // namespace

absl::StatusOr<OutputLayout> OutputLayout::FromSpec(const v1::OutputSpec& spec, v1::Numerics numerics,
                                                    std::span<const Operator> table) {
  RETURN_IF_ERROR(CheckName(spec.name()));
  OutputLayout layout;
  layout.name = spec.name();
  layout.numerics = numerics == v1::NUMERICS_UNSPECIFIED ? v1::EXACT : numerics;
  layout.op = FindOperator(table, spec.operator_());
  if (layout.op == nullptr) {
    return absl::InvalidArgumentError(
        spec.operator_().empty()
            ? fmt::format("output '{}' names no operator, and there is no default; the operators are {}", spec.name(),
                          SymbolsText(table))
            : fmt::format("output '{}': there is no operator '{}'; the operators are {}", spec.name(), spec.operator_(),
                          SymbolsText(table)));
  }
  if (const absl::Status status = FillLayout(spec, layout); !status.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("output '{}', operator '{}': {}", spec.name(), spec.operator_(), std::string(status.message())));
  }
  return layout;
}

std::string OutputLayout::ElementName(int64_t coordinate, int64_t offset) const {
  std::vector<int64_t> position(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    int64_t& rest = d >= static_cast<size_t>(index_dims) ? offset : coordinate;
    if (shape[d] == 0) continue;
    position[d] = rest % shape[d];
    rest /= shape[d];
  }
  return name + ShapeText(position);
}

int64_t OutputLayout::NumFitting(const char* values, int64_t count) const {
  const bool is_float = dtype == v1::FLOAT32 || dtype == v1::FLOAT64;
  if (!is_float || op->reduction != Reduction::kSum || propagates_non_finite) return count;
  // So few that those before the first are not looked at again and again where there are many.
  constexpr int64_t kRun = 64;
  const int64_t size = DTypeSize(dtype);
  const auto is_finite = [&](int64_t at, int64_t n) {
    return dtype == v1::FLOAT32 ? AllFinite32(values + at * size, n) : AllFinite64(values + at * size, n);
  };
  for (int64_t at = 0; at < count; at += kRun) {
    const int64_t end = std::min(at + kRun, count);
    if (is_finite(at, end - at)) continue;
    while (is_finite(at, 1)) ++at;
    return at;
  }
  return count;
}

absl::Status OutputLayout::Misfit(std::string_view element) const {
  const char* remedy = "";
  switch (dtype) {
    case v1::FLOAT32:
      remedy = "declare FLOAT64, or contribute smaller numbers";
      break;
    case v1::FLOAT64:
      remedy = "no dtype is wider: contribute smaller numbers";
      break;
    case v1::INT32:
      remedy = "declare INT64";
      break;
    default:
      remedy = "no integer is wider: contribute smaller numbers, or FLOAT64, whose sum is rounded";
      break;
  }
  const bool is_float = dtype == v1::FLOAT32 || dtype == v1::FLOAT64;
  const bool is_rounded = is_float && numerics != v1::EXACT;
  return absl::OutOfRangeError(fmt::format(
      "{}: the {} does not fit into {}{}; {}{}", element, op->divisor == Divisor::kNone ? "sum" : "mean",
      v1::DType_Name(dtype),
      is_rounded ? fmt::format(", or its sum left the range of {} on the way", v1::Numerics_Name(numerics)) : "",
      is_rounded ? "use numerics EXACT, or " : "", remedy));
}

bool OutputLayout::is_exact_sum() const {
  const bool is_float = dtype == v1::FLOAT32 || dtype == v1::FLOAT64;
  return is_float && op->reduction == Reduction::kSum && numerics == v1::EXACT;
}

bool OutputLayout::counts_contributors() const {
  return min_contributors > 1 || op->divisor == Divisor::kTouchingCount;
}

std::string OutputLayout::Signature() const {
  return fmt::format("{} {} {} {} {} index_dims={} {} non_finite={} counted={}", name, op->symbol,
                     v1::DType_Name(dtype), v1::Numerics_Name(numerics), ShapeText(shape), index_dims,
                     v1::KeyType_Name(key_type), propagates_non_finite, counts_contributors());
}

std::vector<std::string> OutputLayout::ReleasedNames() const {
  if (op->operand == Operand::kKeyed) {
    if (key_type == v1::INT64_KEYS) return {name + ".keys", name + ".values"};
    return {name + ".keys", name + ".key_offsets", name + ".values"};
  }
  if (releases_dense) return {name};
  return {name + ".indices", name + ".values", name + ".dense_shape"};
}

std::string KeyText(std::string_view key) {
  constexpr size_t kShown = 64;
  std::string text;
  for (const char c : key.substr(0, kShown)) {
    const bool is_plain = c >= ' ' && c <= '~' && c != '\\';
    text += is_plain ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return key.size() > kShown ? text + "..." : text;
}

}  // namespace sheaf
