#include "aggregation/reference.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "aggregation/aggregate_spec.h"
#include "aggregation/contribution_validator.h"
#include "aggregation/exact/fixed_point.h"
#include "aggregation/operators.h"
#include "aggregation/output/output_layout.h"
#include "aggregation/wire/tensor.h"
#include "base/status_macros.h"

// What a round releases, by its definition. C are the contributions; each has a weight w, which is 1 unless the
// operator is weighted, and for an output some rows (x, v): a value v of `width` elements at a coordinate, or key, x. A
// dense tensor is one row, at the coordinate of no numbers. At each x that occurs, and for each element of v:
//
//   C(x)         the contributions that have a row at x
//   kSum         S(x) = the sum of w * v over all rows at x
//   kMin, kMax   the least or largest v of them;  kCountNonzero  how many of them are not 0
//   the divisor  |C(x)|, |C|, W(x) = the sum of w over C(x), or W = the sum of w over C
//   released is  S(x), or S(x) / divisor, rounded once, where |C(x)| >= min_contributors; with drop_zeros, only if
//                some element at x is not 0
//
// The functions below are these lines, one after the other, for one output; nothing is shared between elements, nothing
// is cached, and every sum is a FixedPoint, which cannot round.

namespace sheaf {
namespace {

using Coordinate = std::vector<int64_t>;

// One (x, v) of a contribution, without its x.
struct Row {
  // v, as it came.
  const char* values;
  // w, and which of C it is.
  float weight;
  size_t contribution;
};

// Everything that was said of one output.
struct Gathered {
  // By x.
  std::map<Coordinate, std::vector<Row>> rows;
  // w, by contribution.
  std::vector<float> weights;
};

template <typename T>
T At(const char* values, int64_t i) {
  T value;
  std::memcpy(&value, values + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// It is there: the contribution was validated.
const v1::OutputValue& FindValue(const v1::Contribution& contribution, const std::string& name) {
  for (const v1::OutputValue& value : contribution.outputs()) {
    if (value.name() == name) return value;
  }
  return contribution.outputs(0);
}

void GatherSparse(const OutputLayout& layout, const v1::SparseTensor& tensor, float weight, size_t contribution,
                  Gathered& gathered) {
  const int64_t row_bytes = layout.width * DTypeSize(layout.dtype);
  for (int64_t row = 0; row < tensor.indices().shape(0); ++row) {
    Coordinate coordinate;
    for (int column = 0; column < layout.index_dims; ++column) {
      const int64_t at = row * layout.index_dims + column;
      const char* const data = tensor.indices().data().data();
      coordinate.push_back(tensor.indices().dtype() == v1::INT32 ? At<int32_t>(data, at) : At<int64_t>(data, at));
    }
    gathered.rows[coordinate].push_back({tensor.values().data().data() + row * row_bytes, weight, contribution});
  }
}

// Keys are coordinates of their own: a string by its bytes, an integer by itself.
void GatherKeyed(const OutputLayout& layout, const v1::KeyedTable& table, size_t contribution, Gathered& gathered) {
  const int64_t row_bytes = layout.width * DTypeSize(layout.dtype);
  for (int64_t row = 0; row < table.values().shape(0); ++row) {
    Coordinate key;
    if (layout.key_type == v1::STRING_KEYS) {
      for (const char byte : table.string_keys(static_cast<int>(row))) key.push_back(static_cast<unsigned char>(byte));
    } else {
      const char* const data = table.int_keys().data().data();
      key.push_back(table.int_keys().dtype() == v1::INT32 ? At<int32_t>(data, row) : At<int64_t>(data, row));
    }
    gathered.rows[key].push_back({table.values().data().data() + row * row_bytes, 1, contribution});
  }
}

// A weight that is not set is 1. A dense output has its row even if nobody contributed: that of no values.
Gathered Gather(const OutputLayout& layout, std::span<const v1::Contribution> contributions) {
  Gathered gathered;
  if (layout.op->operand == Operand::kDense) gathered.rows[{}];
  for (size_t c = 0; c < contributions.size(); ++c) {
    const v1::OutputValue& value = FindValue(contributions[c], layout.name);
    float weight = contributions[c].weight() == 0 ? 1.0f : contributions[c].weight();
    if (!layout.op->is_weighted()) weight = 1.0f;
    gathered.weights.push_back(weight);
    if (layout.op->operand == Operand::kSparse) {
      GatherSparse(layout, value.sparse(), weight, c, gathered);
    } else if (layout.op->operand == Operand::kKeyed) {
      GatherKeyed(layout, value.keyed(), c, gathered);
    } else {
      gathered.rows[{}].push_back({value.dense().data().data(), weight, c});
    }
  }
  return gathered;
}

// C(x).
std::set<size_t> ContributorsOf(const std::vector<Row>& rows) {
  std::set<size_t> contributors;
  for (const Row& row : rows) contributors.insert(row.contribution);
  return contributors;
}

FixedPoint SumOfWeights(const std::vector<float>& weights) {
  FixedPoint sum;
  for (const float weight : weights) sum.AddProduct(1.0, weight);
  return sum;
}

FixedPoint Count(size_t number) {
  FixedPoint count;
  count.AddProduct(static_cast<double>(number), 1);
  return count;
}

// Nothing if the operator has none.
std::optional<FixedPoint> DivisorFor(const OutputLayout& layout, const Gathered& gathered,
                                     const std::vector<Row>& rows) {
  std::vector<float> touching;
  for (const size_t contribution : ContributorsOf(rows)) touching.push_back(gathered.weights[contribution]);
  switch (layout.op->divisor) {
    case Divisor::kNone:
      return std::nullopt;
    case Divisor::kTouchingCount:
      return Count(touching.size());
    case Divisor::kCount:
      return Count(gathered.weights.size());
    case Divisor::kTouchingWeight:
      return SumOfWeights(touching);
    case Divisor::kWeight:
      return SumOfWeights(gathered.weights);
  }
  return std::nullopt;
}

// S(x), or S(x) / divisor. NaN and infinities are added as IEEE 754 says, which no order changes: any NaN, or
// infinities of both signs, make a NaN; else an infinity stays.
template <typename Float>
Float SumFloats(const std::vector<Row>& rows, int64_t offset, const std::optional<FixedPoint>& divisor) {
  FixedPoint sum;
  bool has_nan = false, has_plus = false, has_minus = false;
  for (const Row& row : rows) {
    const Float value = At<Float>(row.values, offset);
    if (std::isfinite(value)) {
      sum.AddProduct(value, row.weight);
    } else {
      has_nan |= std::isnan(value);
      has_plus |= value > 0;
      has_minus |= value < 0;
    }
  }
  if (has_nan || (has_plus && has_minus)) return std::numeric_limits<Float>::quiet_NaN();
  if (has_plus || has_minus) return (has_plus ? 1 : -1) * std::numeric_limits<Float>::infinity();
  // The one rounding.
  if (divisor.has_value()) {
    return static_cast<Float>(sizeof(Float) == 4 ? sum.QuotientToFloat(*divisor) : sum.QuotientToDouble(*divisor));
  }
  return static_cast<Float>(sizeof(Float) == 4 ? sum.ToFloat() : sum.ToDouble());
}

// Appends the sum at one element of a row; false if it does not fit.
template <typename Value>
bool AppendSum(const OutputLayout& layout, const std::vector<Row>& rows, int64_t offset,
               const std::optional<FixedPoint>& divisor, std::string& data) {
  Value value{};
  if constexpr (std::is_floating_point_v<Value>) {
    value = SumFloats<Value>(rows, offset, divisor);
    if (!layout.propagates_non_finite && !std::isfinite(value)) return false;
  } else {
    __int128 sum = 0;
    for (const Row& row : rows) sum += At<Value>(row.values, offset);
    if (sum < std::numeric_limits<Value>::min() || sum > std::numeric_limits<Value>::max()) return false;
    value = static_cast<Value>(sum);
  }
  data.append(reinterpret_cast<const char*>(&value), sizeof value);
  return true;
}

// The least (or, negated, the largest) of all values; -0 is +0, a NaN wins.
template <typename Value>
Value ExtremeOf(const std::vector<Row>& rows, int64_t offset, bool is_max) {
  using Limits = std::numeric_limits<Value>;
  Value extreme = is_max ? Limits::lowest() : Limits::max();
  if constexpr (Limits::has_infinity) extreme = is_max ? -Limits::infinity() : Limits::infinity();
  for (const Row& row : rows) {
    const Value value = At<Value>(row.values, offset);
    if constexpr (Limits::has_infinity) {
      if (std::isnan(value)) return Limits::quiet_NaN();
    }
    if (is_max ? value > extreme : value < extreme) extreme = value;
  }
  return extreme == 0 ? 0 : extreme;
}

template <typename Value>
bool AppendReduced(const OutputLayout& layout, const std::vector<Row>& rows, int64_t offset,
                   const std::optional<FixedPoint>& divisor, std::string& data) {
  switch (layout.op->reduction) {
    case Reduction::kSum:
      return AppendSum<Value>(layout, rows, offset, divisor, data);
    case Reduction::kMin:
    case Reduction::kMax: {
      const Value value = ExtremeOf<Value>(rows, offset, layout.op->reduction == Reduction::kMax);
      data.append(reinterpret_cast<const char*>(&value), sizeof value);
      return true;
    }
    case Reduction::kCountNonzero: {
      int64_t count = 0;
      for (const Row& row : rows) count += At<Value>(row.values, offset) == 0 ? 0 : 1;
      data.append(reinterpret_cast<const char*>(&count), sizeof count);
      return true;
    }
  }
  return false;
}

// Appends what the rows come to at one element; false if it does not fit.
bool AppendElement(const OutputLayout& layout, const std::vector<Row>& rows, int64_t offset,
                   const std::optional<FixedPoint>& divisor, std::string& data) {
  switch (layout.dtype) {
    case v1::FLOAT32:
      return AppendReduced<float>(layout, rows, offset, divisor, data);
    case v1::FLOAT64:
      return AppendReduced<double>(layout, rows, offset, divisor, data);
    case v1::INT32:
      return AppendReduced<int32_t>(layout, rows, offset, divisor, data);
    case v1::INT64:
      return AppendReduced<int64_t>(layout, rows, offset, divisor, data);
    default:
      return AppendReduced<uint64_t>(layout, rows, offset, divisor, data);
  }
}

bool IsAllZero(const OutputLayout& layout, const std::string& row) {
  for (int64_t i = 0; i < layout.width; ++i) {
    if (layout.dtype == v1::FLOAT32 && At<float>(row.data(), i) != 0) return false;
    if (layout.dtype == v1::FLOAT64 && At<double>(row.data(), i) != 0) return false;
    if (layout.dtype == v1::INT32 && At<int32_t>(row.data(), i) != 0) return false;
    if ((layout.dtype == v1::INT64 || layout.dtype == v1::UINT64) && At<int64_t>(row.data(), i) != 0) return false;
  }
  return true;
}

// Row-major.
int64_t Linear(const OutputLayout& layout, const Coordinate& coordinate) {
  int64_t key = 0;
  for (size_t d = 0; d < coordinate.size(); ++d) key = key * layout.shape[d] + coordinate[d];
  return key;
}

std::string BytesOfKey(const Coordinate& key) {
  std::string bytes;
  for (const int64_t byte : key) bytes += static_cast<char>(byte);
  return bytes;
}

std::string ElementText(const OutputLayout& layout, const Coordinate& coordinate, int64_t offset) {
  if (layout.op->operand != Operand::kKeyed) return layout.ElementName(Linear(layout, coordinate), offset);
  if (layout.key_type == v1::INT64_KEYS) return fmt::format("{}[{}]", layout.name, coordinate.at(0));
  return fmt::format("{}['{}']", layout.name, KeyText(BytesOfKey(coordinate)));
}

// The released rows, in order of coordinate.
absl::StatusOr<std::map<Coordinate, std::string>> ReleasedRows(const OutputLayout& layout, const Gathered& gathered) {
  std::map<Coordinate, std::string> released;
  for (const auto& [coordinate, rows] : gathered.rows) {
    if (layout.op->operand != Operand::kDense &&
        static_cast<int64_t>(ContributorsOf(rows).size()) < layout.min_contributors)
      continue;
    const std::optional<FixedPoint> divisor = rows.empty() ? std::nullopt : DivisorFor(layout, gathered, rows);
    std::string data;
    for (int64_t offset = 0; offset < layout.width; ++offset) {
      if (AppendElement(layout, rows, offset, divisor, data)) continue;
      return layout.Misfit(ElementText(layout, coordinate, offset));
    }
    if (layout.drop_zeros && IsAllZero(layout, data)) continue;
    released.emplace(coordinate, std::move(data));
  }
  return released;
}

std::string BytesOf(const std::vector<int64_t>& integers) {
  return std::string(reinterpret_cast<const char*>(integers.data()), integers.size() * sizeof(int64_t));
}

void ReleaseDense(const OutputLayout& layout, const std::map<Coordinate, std::string>& rows, AggregateReport& report) {
  const size_t row_bytes = static_cast<size_t>(layout.width * DTypeSize(layout.released_dtype()));
  std::string data(static_cast<size_t>(layout.num_coordinates) * row_bytes, '\0');
  for (const auto& [coordinate, row] : rows) {
    data.replace(static_cast<size_t>(Linear(layout, coordinate)) * row_bytes, row_bytes, row);
  }
  report.tensors.push_back({layout.name, layout.released_dtype(), layout.shape, std::move(data)});
}

void ReleaseSparse(const OutputLayout& layout, const std::map<Coordinate, std::string>& rows, AggregateReport& report) {
  const int64_t n = static_cast<int64_t>(rows.size());
  std::vector<int64_t> indices;
  std::string values;
  for (const auto& [coordinate, row] : rows) {
    indices.insert(indices.end(), coordinate.begin(), coordinate.end());
    values += row;
  }
  std::vector<int64_t> values_shape = {n};
  values_shape.insert(values_shape.end(), layout.shape.begin() + layout.index_dims, layout.shape.end());
  report.tensors.push_back({layout.name + ".indices", v1::INT64, {n, layout.index_dims}, BytesOf(indices)});
  report.tensors.push_back({layout.name + ".values", layout.dtype, values_shape, std::move(values)});
  report.tensors.push_back(
      {layout.name + ".dense_shape", v1::INT64, {static_cast<int64_t>(layout.shape.size())}, BytesOf(layout.shape)});
}

void ReleaseKeyed(const OutputLayout& layout, const std::map<Coordinate, std::string>& rows, AggregateReport& report) {
  const int64_t n = static_cast<int64_t>(rows.size());
  std::vector<int64_t> integers, offsets = {0};
  std::string strings, values;
  for (const auto& [key, row] : rows) {
    if (layout.key_type == v1::INT64_KEYS) integers.push_back(key.at(0));
    if (layout.key_type == v1::STRING_KEYS) strings += BytesOfKey(key);
    offsets.push_back(static_cast<int64_t>(strings.size()));
    values += row;
  }
  std::vector<int64_t> values_shape = {n};
  values_shape.insert(values_shape.end(), layout.shape.begin(), layout.shape.end());
  if (layout.key_type == v1::INT64_KEYS) {
    report.tensors.push_back({layout.name + ".keys", v1::INT64, {n}, BytesOf(integers)});
  } else {
    report.tensors.push_back({layout.name + ".keys", v1::UINT8, {offsets.back()}, strings});
    report.tensors.push_back({layout.name + ".key_offsets", v1::INT64, {n + 1}, BytesOf(offsets)});
  }
  report.tensors.push_back({layout.name + ".values", layout.dtype, values_shape, std::move(values)});
}

absl::Status AggregateOutput(const OutputLayout& layout, std::span<const v1::Contribution> contributions,
                             AggregateReport& report) {
  const Gathered gathered = Gather(layout, contributions);
  ASSIGN_OR_RETURN(const auto rows, ReleasedRows(layout, gathered));
  if (layout.op->operand == Operand::kKeyed) {
    ReleaseKeyed(layout, rows, report);
  } else {
    layout.releases_dense ? ReleaseDense(layout, rows, report) : ReleaseSparse(layout, rows, report);
  }
  v1::OutputSummary summary;
  summary.set_name(layout.name);
  summary.set_operator_(std::string(layout.op->symbol));
  summary.set_divisor(std::string(DivisorText(layout.op->divisor)));
  if (layout.op->divisor == Divisor::kCount) summary.set_divisor_value(static_cast<double>(contributions.size()));
  if (layout.op->divisor == Divisor::kWeight) summary.set_divisor_value(SumOfWeights(gathered.weights).ToDouble());
  const bool is_dense = layout.op->operand == Operand::kDense;
  summary.set_touched(is_dense ? layout.width : static_cast<int64_t>(gathered.rows.size()));
  summary.set_released(is_dense ? layout.width : static_cast<int64_t>(rows.size()));
  report.outputs.push_back(std::move(summary));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AggregateReport> ReferenceAggregate(const v1::AggregateSpec& spec,
                                                   std::span<const v1::Contribution> contributions) {
  ASSIGN_OR_RETURN(std::vector<OutputLayout> layouts, LayoutsOf(spec, Operators()));
  const ContributionValidator validator(std::move(layouts));
  for (const v1::Contribution& contribution : contributions) {
    RETURN_IF_ERROR(validator.Validate(contribution).status());
    if (contribution.outputs(0).has_state()) {
      return absl::InvalidArgumentError("the oracle takes contributions that carry values, not partial aggregates");
    }
  }
  AggregateReport report;
  report.num_contributions = report.num_clients = static_cast<int64_t>(contributions.size());
  for (const OutputLayout& layout : validator.layouts()) {
    RETURN_IF_ERROR(AggregateOutput(layout, contributions, report));
  }
  return report;
}

}  // namespace sheaf
