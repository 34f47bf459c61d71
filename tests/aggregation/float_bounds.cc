#include "tests/aggregation/float_bounds.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include "aggregation/exact/fixed_point.h"
#include "aggregation/output/output_layout.h"
#include "aggregation/wire/tensor.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// One element of the result, and all that is added there.
struct Element {
  FixedPoint sum;
  long double magnitude = 0;
  int64_t num_addends = 0;
  bool has_nan = false, has_plus = false, has_minus = false;

  void Add(double value, float weight) {
    ++num_addends;
    has_nan |= std::isnan(value);
    has_plus |= value == std::numeric_limits<double>::infinity();
    has_minus |= value == -std::numeric_limits<double>::infinity();
    if (!std::isfinite(value)) return;
    sum.AddProduct(value, weight);
    magnitude += std::fabs(static_cast<long double>(value) * static_cast<long double>(weight));
  }
};

struct Row {
  std::vector<Element> elements;
  // By contribution.
  std::map<size_t, float> weights;
};

// By linear coordinate or key, as bytes.
using Rows = std::map<std::string, Row>;

std::string KeyOf(int64_t number) { return std::string(reinterpret_cast<const char*>(&number), sizeof number); }

double ValueAt(const char* data, int64_t i, v1::DType dtype) {
  if (dtype == v1::FLOAT32) {
    float value;
    std::memcpy(&value, data + 4 * i, sizeof value);
    return value;
  }
  double value;
  std::memcpy(&value, data + 8 * i, sizeof value);
  return value;
}

int64_t IntegerAt(const std::string& data, int64_t i, v1::DType dtype) {
  int32_t narrow;
  int64_t wide;
  if (dtype == v1::INT32) return std::memcpy(&narrow, data.data() + 4 * i, sizeof narrow), narrow;
  return std::memcpy(&wide, data.data() + 8 * i, sizeof wide), wide;
}

int64_t LinearAt(const OutputLayout& layout, const std::string& indices, int64_t row, v1::DType dtype) {
  int64_t key = 0;
  for (int d = 0; d < layout.index_dims; ++d) {
    key = key * layout.shape[static_cast<size_t>(d)] + IntegerAt(indices, row * layout.index_dims + d, dtype);
  }
  return key;
}

// The key of each row of a contribution, and its values.
std::vector<std::string> KeysOf(const OutputLayout& layout, const v1::OutputValue& value, const char*& data) {
  std::vector<std::string> keys;
  if (layout.op->operand == Operand::kDense) {
    data = value.dense().data().data();
    return {KeyOf(0)};
  }
  if (layout.op->operand == Operand::kSparse) {
    const v1::Tensor& indices = value.sparse().indices();
    data = value.sparse().values().data().data();
    for (int64_t row = 0; row < indices.shape(0); ++row) {
      keys.push_back(KeyOf(LinearAt(layout, indices.data(), row, indices.dtype())));
    }
    return keys;
  }
  const v1::KeyedTable& table = value.keyed();
  data = table.values().data().data();
  for (int64_t row = 0; row < table.values().shape(0); ++row) {
    keys.push_back(layout.key_type == v1::STRING_KEYS
                       ? table.string_keys(static_cast<int>(row))
                       : KeyOf(IntegerAt(table.int_keys().data(), row, table.int_keys().dtype())));
  }
  return keys;
}

Rows Gather(const OutputLayout& layout, int output, const std::vector<v1::Contribution>& contributions) {
  Rows rows;
  if (layout.op->operand == Operand::kDense) rows[KeyOf(0)].elements.resize(static_cast<size_t>(layout.width));
  for (size_t c = 0; c < contributions.size(); ++c) {
    const float given = contributions[c].weight() == 0 ? 1 : contributions[c].weight();
    const float weight = layout.op->is_weighted() ? given : 1;
    const char* data = nullptr;
    int64_t at = 0;
    for (const std::string& key : KeysOf(layout, contributions[c].outputs(output), data)) {
      Row& row = rows[key];
      row.elements.resize(static_cast<size_t>(layout.width));
      row.weights[c] = weight;
      for (Element& element : row.elements) element.Add(ValueAt(data, at++, layout.dtype), weight);
    }
  }
  return rows;
}

// What an element is divided by.
struct TrueDivisor {
  long double value = 1;
  // Relative.
  long double error = 0;
};

TrueDivisor DivisorOf(const OutputLayout& layout, const Row& row, const std::vector<v1::Contribution>& contributions) {
  constexpr long double kUnit = 0x1p-53L;
  long double weight = 0;
  switch (layout.op->divisor) {
    case Divisor::kNone:
      return {};
    case Divisor::kCount:
      return {.value = contributions.empty() ? 1 : static_cast<long double>(contributions.size())};
    case Divisor::kTouchingCount:
      return {.value = static_cast<long double>(row.weights.size())};
    case Divisor::kTouchingWeight:
      for (const auto& [contribution, w] : row.weights) weight += w;
      // Added up in doubles.
      return {.value = weight, .error = 1.01L * static_cast<long double>(row.weights.size()) * kUnit};
    case Divisor::kWeight:
      for (const v1::Contribution& c : contributions) weight += c.weight() == 0 ? 1 : c.weight();
      return {.value = contributions.empty() ? 1 : weight, .error = kUnit};
  }
  return {};
}

struct Precision {
  long double unit, smallest, largest;
};
Precision CellPrecision(const OutputLayout& layout) {
  if (layout.numerics == v1::F32) return {0x1p-23L, 0x1p-149L, std::numeric_limits<float>::max()};
  return {0x1p-53L, 0x1p-1074L, std::numeric_limits<double>::max()};
}

// How far a finite element may lie from its true value; nothing if it may have overflowed.
std::optional<long double> BoundOf(const OutputLayout& layout, const Element& element, const TrueDivisor& divisor) {
  constexpr long double kSlack = 1.0001L;
  const Precision cell = CellPrecision(layout);
  if (element.magnitude * kSlack >= cell.largest) return std::nullopt;
  const long double n = static_cast<long double>(element.num_addends);
  long double bound = 1.01L * n * cell.unit * element.magnitude;
  if (layout.op->is_weighted()) bound += n * cell.smallest / 2;
  const long double value = std::fabs(static_cast<long double>(element.sum.ToDouble())) / divisor.value;
  bound = bound / divisor.value * kSlack;
  if (layout.op->divisor != Divisor::kNone) bound += (value + bound) * (divisor.error + 0x1p-52L) + 0x1p-1074L;
  const bool is_narrow = layout.dtype == v1::FLOAT32;
  bound += (value + bound) * (is_narrow ? 0x1p-24L : 0x1p-53L) * kSlack + (is_narrow ? 0x1p-149L : 0x1p-1074L);
  const long double largest = is_narrow ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
  if ((value + bound) * kSlack >= largest) return std::nullopt;
  return bound;
}

bool IsRight(const OutputLayout& layout, const Element& element, const TrueDivisor& divisor, double found) {
  if (element.has_nan || (element.has_plus && element.has_minus)) return std::isnan(found);
  const std::optional<long double> bound = BoundOf(layout, element, divisor);
  if (element.has_plus || element.has_minus) {
    return std::isinf(found) ? (found > 0) == element.has_plus || !bound.has_value()
                             : std::isnan(found) && !bound.has_value();
  }
  if (!bound.has_value()) return true;
  return std::fabs(static_cast<long double>(found) -
                   static_cast<long double>(element.sum.ToDouble()) / divisor.value) <= *bound;
}

const std::string* DataOf(const AggregateReport& report, const std::string& name) {
  for (const NamedTensor& tensor : report.tensors) {
    if (tensor.name == name) return &tensor.data;
  }
  return nullptr;
}

// The released rows by key.
std::map<std::string, const char*> Released(const OutputLayout& layout, const AggregateReport& report) {
  std::map<std::string, const char*> released;
  const bool is_whole = layout.op->operand != Operand::kKeyed && layout.releases_dense;
  const std::string& values = *DataOf(report, is_whole ? layout.name : layout.name + ".values");
  const int64_t row_bytes = layout.width * DTypeSize(layout.dtype);
  const auto add = [&](std::string key, int64_t row) { released[key] = values.data() + row * row_bytes; };
  if (is_whole) {
    for (int64_t row = 0; row < layout.num_coordinates; ++row) add(KeyOf(row), row);
  } else if (layout.op->operand == Operand::kSparse) {
    const std::string& indices = *DataOf(report, layout.name + ".indices");
    const int64_t n = DataOf(report, layout.name + ".values")->empty() && layout.index_dims > 0
                          ? static_cast<int64_t>(indices.size()) / (8 * layout.index_dims)
                      : row_bytes == 0 ? 0
                                       : static_cast<int64_t>(values.size()) / row_bytes;
    for (int64_t row = 0; row < n; ++row) add(KeyOf(LinearAt(layout, indices, row, v1::INT64)), row);
  } else if (layout.key_type == v1::INT64_KEYS) {
    const std::string& keys = *DataOf(report, layout.name + ".keys");
    for (int64_t row = 0; row < static_cast<int64_t>(keys.size()) / 8; ++row)
      add(keys.substr(static_cast<size_t>(8 * row), 8), row);
  } else {
    const std::string& keys = *DataOf(report, layout.name + ".keys");
    const std::string& offsets = *DataOf(report, layout.name + ".key_offsets");
    for (int64_t row = 0; row + 1 < static_cast<int64_t>(offsets.size()) / 8; ++row) {
      const size_t begin = static_cast<size_t>(IntegerAt(offsets, row, v1::INT64));
      add(keys.substr(begin, static_cast<size_t>(IntegerAt(offsets, row + 1, v1::INT64)) - begin), row);
    }
  }
  return released;
}

absl::Status CheckOutput(const OutputLayout& layout, int output, const OperatorTrial& trial,
                         const AggregateReport& found) {
  const Rows rows = Gather(layout, output, trial.contributions);
  std::map<std::string, const char*> released = Released(layout, found);
  int64_t num_released = 0, num_droppable = 0;
  for (const auto& [key, row] : rows) {
    const bool is_dense = layout.op->operand == Operand::kDense;
    const bool passes = is_dense || static_cast<int64_t>(row.weights.size()) >= layout.min_contributors;
    const auto at = released.find(key);
    if (!passes && at != released.end() && !layout.releases_dense)
      return absl::InternalError("a row of too few contributors is released");
    if (!passes) continue;
    const bool is_there = at != released.end();
    if (!is_there && !layout.drop_zeros) return absl::InternalError("a row is missing");
    is_there ? ++num_released : ++num_droppable;
    const TrueDivisor divisor = DivisorOf(layout, row, trial.contributions);
    for (int64_t i = 0; i < layout.width; ++i) {
      const double value = is_there ? ValueAt(at->second, i, layout.dtype) : 0;
      const Element& element = row.elements[static_cast<size_t>(i)];
      if (IsRight(layout, element, divisor, value)) continue;
      return absl::InternalError(fmt::format(
          "element {} of a row is {:a} ({}), the true sum is {:a} over {}, of {} addends with magnitudes of {}", i,
          value, value, element.sum.ToDouble(), divisor.value, element.num_addends, element.magnitude));
    }
    if (is_there) released.erase(at);
  }
  for (const auto& [key, values] : released) {
    if (!layout.releases_dense) return absl::InternalError("a row is released that nobody touched");
    for (int64_t i = 0; i < layout.width; ++i) {
      if (ValueAt(values, i, layout.dtype) != 0) return absl::InternalError("a value is released that nobody sent");
    }
  }
  const v1::OutputSummary& summary = found.outputs[static_cast<size_t>(output)];
  const bool is_dense = layout.op->operand == Operand::kDense;
  if (!is_dense && (summary.touched() != static_cast<int64_t>(rows.size()) || summary.released() != num_released)) {
    return absl::InternalError(fmt::format("the summary is {}, but {} rows were touched and {} released",
                                           summary.ShortDebugString(), rows.size(), num_released));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WithinFloatBounds(const OperatorTrial& trial, const AggregateReport& expected,
                               const AggregateReport& found) {
  if (found.num_contributions != expected.num_contributions || found.num_clients != expected.num_clients) {
    return absl::InternalError("the numbers of contributions or clients are wrong");
  }
  for (int i = 0; i < trial.spec.outputs_size(); ++i) {
    ASSIGN_OR_RETURN(const OutputLayout layout,
                     OutputLayout::FromSpec(trial.spec.outputs(i), trial.spec.numerics(), Operators()));
    RETURN_IF_ERROR(CheckOutput(layout, i, trial, found));
  }
  return absl::OkStatus();
}

bool MayOverflow(const OperatorTrial& trial) {
  const OutputLayout layout = OutputLayout::FromSpec(trial.spec.outputs(0), trial.spec.numerics(), Operators()).value();
  for (const auto& [key, row] : Gather(layout, 0, trial.contributions)) {
    for (const Element& element : row.elements) {
      if (!BoundOf(layout, element, {}).has_value()) return true;
    }
  }
  return false;
}

}  // namespace sheaf
