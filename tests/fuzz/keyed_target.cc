// Keyed tables from anyone, against a std::map. The input is a script:
//   [spec], then rows: [k] and k % 8 bytes of key (all of them a string key, the first an integer key), and one signed
//   byte per element of the value; k = 255 ends a contribution.
#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/check.h"
#include "tests/fuzz/laws.h"
#include "tests/fuzz/specs.h"
#include "tests/fuzz/targets.h"

namespace sheaf::fuzz {
namespace {

constexpr size_t kRowsMax = 4096;
constexpr char kEndOfContribution = '\xff';

struct Row {
  std::string key;
  std::vector<int8_t> values;
};
using Script = std::vector<std::vector<Row>>;

struct Entry {
  std::vector<int64_t> sums;
  int64_t num_contributors = 0;
};

std::vector<const v1::AggregateSpec*> KeyedSpecs() {
  std::vector<const v1::AggregateSpec*> keyed;
  for (const v1::AggregateSpec& spec : Specs()) {
    if (spec.outputs(0).operator_() == "keyed_sum") keyed.push_back(&spec);
  }
  return keyed;
}

bool HasIntegerKeys(const v1::OutputSpec& output) { return output.key_type() == v1::INT64_KEYS; }

size_t WidthOf(const v1::OutputSpec& output) {
  size_t width = 1;
  for (const int64_t size : output.dense_shape()) width *= static_cast<size_t>(size);
  return width;
}

Script ReadScript(const v1::OutputSpec& output, std::string_view input) {
  const size_t width = WidthOf(output);
  Script script(1);
  size_t num_rows = 0;
  while (!input.empty() && num_rows < kRowsMax) {
    const char op = input[0];
    input.remove_prefix(1);
    if (op == kEndOfContribution) {
      script.emplace_back();
      continue;
    }
    const size_t key_bytes = static_cast<uint8_t>(op) % 8;
    if (input.size() < key_bytes + width) break;
    Row row = {.key = std::string(input.substr(0, key_bytes)), .values = {}};
    for (size_t i = 0; i < width; ++i) row.values.push_back(static_cast<int8_t>(input[key_bytes + i]));
    // An integer key: its one byte, or 0.
    if (HasIntegerKeys(output)) row.key = row.key.substr(0, 1);
    script.back().push_back(row);
    input.remove_prefix(key_bytes + width);
    ++num_rows;
  }
  return script;
}

int64_t IntegerKey(const std::string& key) { return key.empty() ? 0 : int64_t{static_cast<int8_t>(key[0])} << 40; }

void AppendNumber(v1::DType dtype, int64_t number, std::string& data) {
  const auto append = [&](auto value) { data.append(reinterpret_cast<const char*>(&value), sizeof value); };
  if (dtype == v1::FLOAT32) {
    append(static_cast<float>(number));
  } else if (dtype == v1::FLOAT64) {
    append(static_cast<double>(number));
  } else {
    append(number);
  }
}

v1::Contribution ToContribution(const v1::OutputSpec& spec, const std::vector<Row>& rows) {
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name(spec.name());
  v1::KeyedTable& table = *output.mutable_keyed();
  std::string keys, values;
  for (const Row& row : rows) {
    if (HasIntegerKeys(spec)) {
      AppendNumber(v1::INT64, IntegerKey(row.key), keys);
    } else {
      table.add_string_keys(row.key);
    }
    for (const int8_t value : row.values) AppendNumber(spec.dtype(), value, values);
  }
  const int64_t num_rows = static_cast<int64_t>(rows.size());
  if (HasIntegerKeys(spec)) {
    table.mutable_int_keys()->set_dtype(v1::INT64);
    table.mutable_int_keys()->add_shape(num_rows);
    table.mutable_int_keys()->set_data(keys);
  }
  table.mutable_values()->set_dtype(spec.dtype());
  table.mutable_values()->add_shape(num_rows);
  table.mutable_values()->mutable_shape()->MergeFrom(spec.dense_shape());
  table.mutable_values()->set_data(values);
  return contribution;
}

// --- The oracle ---------------------------------------------------------------------------------------------------

// In the order of release: bytes, or integers.
std::map<std::string, Entry> Sum(const v1::OutputSpec& spec, const Script& script) {
  std::map<std::string, Entry> table;
  for (const std::vector<Row>& rows : script) {
    std::map<std::string, bool> touched;
    for (const Row& row : rows) {
      std::string key = row.key;
      if (HasIntegerKeys(spec)) {
        // Big-endian with the sign turned: bytes in the order of the integers.
        uint64_t bits = static_cast<uint64_t>(IntegerKey(row.key)) ^ (uint64_t{1} << 63);
        key.clear();
        for (int shift = 56; shift >= 0; shift -= 8) key += static_cast<char>(bits >> shift);
      }
      Entry& entry = table[key];
      entry.sums.resize(row.values.size());
      for (size_t i = 0; i < row.values.size(); ++i) entry.sums[i] += row.values[i];
      if (!touched[key]) ++entry.num_contributors;
      touched[key] = true;
    }
  }
  for (auto it = table.begin(); it != table.end();) {
    const bool is_zero =
        std::all_of(it->second.sums.begin(), it->second.sums.end(), [](int64_t sum) { return sum == 0; });
    const bool is_released = it->second.num_contributors >= spec.min_contributors() && !(spec.drop_zeros() && is_zero);
    it = is_released ? std::next(it) : table.erase(it);
  }
  return table;
}

AggregateReport Expected(const v1::OutputSpec& spec, const Script& script) {
  const std::map<std::string, Entry> table = Sum(spec, script);
  const int64_t n = static_cast<int64_t>(table.size());
  std::string keys, offsets, values;
  AppendNumber(v1::INT64, 0, offsets);
  for (const auto& [key, entry] : table) {
    if (HasIntegerKeys(spec)) {
      uint64_t bits = 0;
      for (const char byte : key) bits = bits << 8 | static_cast<uint8_t>(byte);
      AppendNumber(v1::INT64, static_cast<int64_t>(bits ^ (uint64_t{1} << 63)), keys);
    } else {
      keys += key;
      AppendNumber(v1::INT64, static_cast<int64_t>(keys.size()), offsets);
    }
    for (const int64_t sum : entry.sums) AppendNumber(spec.dtype(), sum, values);
  }
  AggregateReport report;
  if (HasIntegerKeys(spec)) {
    report.tensors.push_back({spec.name() + ".keys", v1::INT64, {n}, keys});
  } else {
    report.tensors.push_back({spec.name() + ".keys", v1::UINT8, {static_cast<int64_t>(keys.size())}, keys});
    report.tensors.push_back({spec.name() + ".key_offsets", v1::INT64, {n + 1}, offsets});
  }
  std::vector<int64_t> shape = {n};
  shape.insert(shape.end(), spec.dense_shape().begin(), spec.dense_shape().end());
  report.tensors.push_back({spec.name() + ".values", spec.dtype(), shape, values});
  return report;
}

void Fold(RoundAccumulator& accumulator, const v1::Contribution& contribution) {
  const absl::StatusOr<ValidContribution> valid = accumulator.Validate(contribution);
  SHEAF_CHECK(valid.ok(), "{}", valid.status().ToString());
  accumulator.Accumulate(*valid);
}

}  // namespace

void RunKeyed(std::string_view input) {
  static const std::vector<const v1::AggregateSpec*> specs = KeyedSpecs();
  if (input.empty() || specs.empty()) return;
  const v1::AggregateSpec& spec = *specs[static_cast<uint8_t>(input[0]) % specs.size()];
  absl::StatusOr<RoundAccumulator> all = RoundAccumulator::Create(spec);
  if (!all.ok()) return;
  const v1::OutputSpec& output = spec.outputs(0);
  const Script script = ReadScript(output, input.substr(1));
  // One by one, and odd and even ones apart.
  std::array<RoundAccumulator, 2> parts = {RoundAccumulator::Create(spec).value(),
                                           RoundAccumulator::Create(spec).value()};
  for (size_t i = 0; i < script.size(); ++i) {
    Fold(*all, ToContribution(output, script[i]));
    Fold(parts[i % 2], ToContribution(output, script[i]));
  }
  CheckSameReport(all->Report(), Expected(output, script));
  parts[0].Merge(std::move(parts[1]));
  CheckSameReport(parts[0].Report(), all->Report());
  CheckState(spec, *all, Provenance::kValues);
}

}  // namespace sheaf::fuzz
