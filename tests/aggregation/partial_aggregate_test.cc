// docs/reference/partial-aggregates.md defines the bytes of states; the vectors beside it hold the library to the page,
// in both directions. partial_aggregate_test.py makes the same vectors from the page alone.
#include <google/protobuf/util/json_util.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "aggregation/operators.h"
#include "aggregation/round_accumulator.h"
#include "aggregation/wire/safetensors.h"
#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

using nlohmann::json;

json Vectors(const std::string& list) {
  std::ifstream file(SHEAF_SOURCE "/docs/reference/partial-aggregates.json");
  REQUIRE(file.is_open());
  return json::parse(file).at(list);
}

v1::AggregateSpec SpecOf(const json& vector) {
  v1::AggregateSpec spec;
  REQUIRE(google::protobuf::util::JsonStringToMessage(vector.at("output").dump(), spec.add_outputs()).ok());
  v1::Numerics numerics = v1::NUMERICS_UNSPECIFIED;
  REQUIRE(v1::Numerics_Parse(vector.at("numerics").get<std::string>(), &numerics));
  spec.set_numerics(numerics);
  return spec;
}

double FloatOf(const json& number) {
  return number.is_string() ? std::strtod(number.get<std::string>().c_str(), nullptr) : number.get<double>();
}

std::string BytesOf(const json& numbers, v1::DType dtype) {
  std::string bytes;
  const auto put = [&bytes](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
  for (const json& number : numbers) {
    if (dtype == v1::FLOAT32) put(static_cast<float>(FloatOf(number)));
    if (dtype == v1::FLOAT64) put(FloatOf(number));
    if (dtype == v1::INT32) put(number.get<int32_t>());
    if (dtype == v1::INT64) put(number.get<int64_t>());
    if (dtype == v1::UINT64) put(number.get<uint64_t>());
  }
  return bytes;
}

v1::Contribution ContributionOf(const v1::OutputSpec& output, const json& client) {
  v1::Contribution contribution;
  contribution.set_weight(client.contains("weight") ? static_cast<float>(FloatOf(client.at("weight"))) : 0);
  v1::OutputValue& value = *contribution.add_outputs();
  value.set_name(output.name());
  const std::vector<int64_t> shape(output.dense_shape().begin(), output.dense_shape().end());
  if (client.contains("dense")) {
    *value.mutable_dense() = ATensor(output.dtype(), shape, BytesOf(client.at("dense"), output.dtype()));
    return contribution;
  }
  const bool is_keyed = client.contains("keys");
  const json& places = client.at(is_keyed ? "keys" : "indices");
  const auto num_rows = static_cast<int64_t>(places.size());
  const OutputLayout layout = OutputLayout::FromSpec(output, v1::EXACT, Operators()).value();
  std::vector<int64_t> values_shape = {num_rows};
  values_shape.insert(values_shape.end(), layout.trailing_dims().begin(), layout.trailing_dims().end());
  const v1::Tensor values = ATensor(output.dtype(), values_shape, BytesOf(client.at("values"), output.dtype()));
  if (!is_keyed) {
    std::string indices;
    for (const json& index : places) indices += BytesOf(index, v1::INT64);
    *value.mutable_sparse() = Sparse(shape, ATensor(v1::INT64, {num_rows, layout.index_dims}, indices), values);
    return contribution;
  }
  v1::KeyedTable& table = *value.mutable_keyed();
  *table.mutable_values() = values;
  if (output.key_type() == v1::STRING_KEYS) {
    for (const json& key : places) table.add_string_keys(key.get<std::string>());
  } else {
    *table.mutable_int_keys() = ATensor(v1::INT64, {num_rows}, BytesOf(places, v1::INT64));
  }
  return contribution;
}

std::string Hex(const std::string& bytes) {
  std::string hex;
  for (const char byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(byte) >> 4];
    hex += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return hex;
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

v1::Contribution PartialOf(const json& vector, int64_t num_clients) {
  v1::Contribution partial;
  partial.set_num_clients(num_clients);
  partial.add_outputs()->set_name("w");
  partial.mutable_outputs(0)->set_state(FromHex(vector.at("state")));
  return partial;
}

TEST_CASE("The clients of each published vector fold to its state, byte by byte") {
  std::set<std::string> operators, numerics;
  for (const json& vector : Vectors("made")) {
    INFO(vector.at("name"));
    const v1::AggregateSpec spec = SpecOf(vector);
    RoundAccumulator leaf = Accumulator(spec);
    for (const json& client : vector.at("clients")) {
      REQUIRE(Fold(leaf, ContributionOf(spec.outputs(0), client)) == absl::OkStatus());
    }
    CHECK(Hex(leaf.OutputStates().at("w")) == vector.at("state"));
    std::string pieces;
    REQUIRE(leaf.WritePartialAggregate([&](std::string_view piece) {
                  pieces += piece;
                  return absl::OkStatus();
                })
                .ok());
    CHECK(Hex(pieces) == Hex(leaf.PartialAggregate().SerializeAsString()));
    operators.insert(spec.outputs(0).operator_());
    numerics.insert(v1::Numerics_Name(spec.numerics()));
  }
  // No operator and no numerics without a vector.
  CHECK(operators.size() == Operators().size());
  CHECK(numerics.size() == 3);
}

TEST_CASE("Each published state is taken, and releases what its clients would have") {
  for (const json& vector : Vectors("made")) {
    INFO(vector.at("name"));
    const v1::AggregateSpec spec = SpecOf(vector);
    RoundAccumulator one_by_one = Accumulator(spec), root = Accumulator(spec);
    for (const json& client : vector.at("clients")) {
      REQUIRE(Fold(one_by_one, ContributionOf(spec.outputs(0), client)) == absl::OkStatus());
    }
    const auto num_clients = static_cast<int64_t>(vector.at("clients").size());
    REQUIRE(Fold(root, PartialOf(vector, num_clients)) == absl::OkStatus());
    CHECK(Hex(root.OutputStates().at("w")) == vector.at("state"));
    const absl::StatusOr<AggregateReport> expected = one_by_one.Report(), found = root.Report();
    REQUIRE(expected.status() == found.status());
    if (!expected.ok()) continue;
    CHECK(EncodeSafetensors(expected->tensors, {}) == EncodeSafetensors(found->tensors, {}));
  }
}

TEST_CASE("Each published state that is wrong is refused, for its reason, and folds nothing") {
  for (const json& vector : Vectors("refused")) {
    INFO(vector.at("name"));
    const v1::AggregateSpec spec = SpecOf(vector);
    RoundAccumulator root = Accumulator(spec);
    const std::string before = root.Serialize();
    const absl::Status status = Fold(root, PartialOf(vector, vector.at("num_clients").get<int64_t>()));
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), Catch::Contains(vector.at("because").get<std::string>()));
    CHECK(root.Serialize() == before);
  }
}

}  // namespace
}  // namespace sheaf
