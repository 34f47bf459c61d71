// What a stranger's bytes cost: every parser and check of the algebra takes time in proportion to what it is given,
// whatever that is. One row for each way in, with the input that is worst for it.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "aggregation/sparse/slot_index.h"
#include "aggregation/wire/safetensors.h"
#include "tests/aggregation/values.h"
#include "tests/cpu_time.h"

namespace sheaf {
namespace {

std::string FileWith(const std::string& header, int64_t data_bytes = 0) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header +
         std::string(static_cast<size_t>(data_bytes), 'd');
}

std::string EmptyTensor(const std::string& name) {
  return '"' + name + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
}

// A header of n tensors.
std::string HeaderOf(int64_t n, const std::function<std::string(int64_t)>& name_of) {
  std::string header = "{";
  for (int64_t i = 0; i < n; ++i) header += (i == 0 ? "" : ",") + EmptyTensor(name_of(i));
  return header + "}";
}

std::function<void()> Parsing(std::string file, bool is_fine = true) {
  return [file = std::move(file), is_fine] { REQUIRE(SafetensorsView::Parse(file).ok() == is_fine); };
}

// Keys of one table of `keyed_sum`.
template <typename KeyOf>
v1::Contribution StringKeys(int64_t n, KeyOf key_of) {
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name("w");
  for (int64_t i = 0; i < n; ++i) output.mutable_keyed()->add_string_keys(key_of(i));
  *output.mutable_keyed()->mutable_values() =
      ATensor(v1::INT64, {n}, BytesOf(std::vector<int64_t>(static_cast<size_t>(n), 1)));
  return contribution;
}
template <typename KeyOf>
v1::Contribution IntegerKeys(int64_t n, KeyOf key_of) {
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name("w");
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < n; ++i) keys.push_back(key_of(i));
  *output.mutable_keyed()->mutable_int_keys() = ATensor(v1::INT64, {n}, BytesOf(keys));
  *output.mutable_keyed()->mutable_values() =
      ATensor(v1::INT64, {n}, BytesOf(std::vector<int64_t>(static_cast<size_t>(n), 1)));
  return contribution;
}
v1::AggregateSpec Keyed(v1::KeyType type) {
  v1::OutputSpec output = AnOutput("keyed_sum", v1::INT64, {});
  output.set_key_type(type);
  return ASpec(output);
}
template <typename KeyOf>
v1::Contribution SparseKeys(int64_t size, int64_t n, KeyOf key_of) {
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < n; ++i) keys.push_back(key_of(i));
  return Contribute(
      Sparse({size}, ATensor(v1::INT64, {n}, BytesOf(keys)), Floats(std::vector<float>(static_cast<size_t>(n), 1.0f))));
}

// Validates, folds and releases it.
std::function<void()> Folding(const v1::AggregateSpec& spec, const v1::Contribution& contribution) {
  return [spec, contribution] {
    RoundAccumulator sum = Accumulator(spec);
    REQUIRE(Fold(sum, contribution).ok());
    REQUIRE(sum.Report().ok());
  };
}
// Validates a partial aggregate of it, and merges that.
std::function<void()> Merging(const v1::AggregateSpec& spec, const v1::Contribution& contribution) {
  RoundAccumulator part = Accumulator(spec);
  REQUIRE(Fold(part, contribution).ok());
  return [spec, partial = part.PartialAggregate()] {
    RoundAccumulator sum = Accumulator(spec);
    REQUIRE(Fold(sum, partial).ok());
  };
}

// absl::Hash of this library's release gives all of these the same value, whatever its seed: they begin with a word of
// its salt, which makes it multiply by zero.
std::string CollidingKey(int64_t i) {
  constexpr uint64_t kSalt = 0x13198A2E03707344u;
  std::string key(17, 'x');
  std::memcpy(key.data(), &kSalt, sizeof kSalt);
  std::memcpy(key.data() + sizeof kSalt, &i, sizeof i);
  return key;
}
// The order of the bytes is another.
std::string Scrambled(int64_t i) { return std::to_string(static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u); }

struct Row {
  int64_t size;
  WorkOfSize make;
};

const std::map<std::string, Row>& Rows() {
  static const std::map<std::string, Row> rows = {
      {"safetensors: tensors",
       {250, [](int64_t n) { return Parsing(FileWith(HeaderOf(n, [](int64_t i) { return std::to_string(i); }))); }}},
      {"safetensors: tensors in no order, of long names that differ at the end",
       {300,
        [](int64_t n) {
          return Parsing(FileWith(HeaderOf(n, [](int64_t i) { return std::string(200, 'a') + Scrambled(i); })));
        }}},
      {"safetensors: tensors of bytes in the reverse order",
       {250,
        [](int64_t n) {
          std::string header = "{";
          for (int64_t i = 0; i < n; ++i) {
            const std::string at = std::to_string(n - 1 - i), end = std::to_string(n - i);
            header += (i == 0 ? "\"" : ",\"") + at + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + at + "," +
                      end + "]}";
          }
          return Parsing(FileWith(header + "}", n));
        }}},
      {"safetensors: metadata",
       {100,
        [](int64_t n) {
          std::string header = R"({"__metadata__":{)";
          for (int64_t i = 0; i < n; ++i) header += (i == 0 ? "\"" : ",\"") + Scrambled(i) + R"(":"value")";
          return Parsing(FileWith(header + "}}"));
        }}},
      {"safetensors: nested arrays in a field that nobody knows",
       {10'000,
        [](int64_t n) {
          std::string header = "{" + EmptyTensor("w") + "}";
          const auto depth = static_cast<size_t>(n);
          header.insert(header.find("\"dtype\""),
                        "\"other\":" + std::string(depth, '[') + std::string(depth, ']') + ",");
          return Parsing(FileWith(header));
        }}},
      {"safetensors: fields that nobody knows",
       {2'000,
        [](int64_t n) {
          std::string fields;
          for (int64_t i = 0; i < n; ++i) fields += '"' + Scrambled(i) + R"(":{"a":1},)";
          std::string header = "{" + EmptyTensor("w") + "}";
          header.insert(header.find("\"dtype\""), fields);
          return Parsing(FileWith(header));
        }}},
      {"safetensors: a field again and again",
       {2'000,
        [](int64_t n) {
          std::string fields;
          for (int64_t i = 0; i < n; ++i) fields += R"("other":1,)";
          std::string header = "{" + EmptyTensor("w") + "}";
          header.insert(header.find("\"dtype\""), fields);
          return Parsing(FileWith(header));
        }}},
      {"safetensors: one long name, number or string",
       {10'000,
        [](int64_t n) {
          const auto size = static_cast<size_t>(n);
          std::string header = "{" + EmptyTensor(std::string(size, 'n')) + "}";
          header.insert(header.find("\"dtype\""),
                        "\"a\":0." + std::string(size, '7') + ",\"b\":\"" + std::string(size, 's') + "\",");
          return Parsing(FileWith(header));
        }}},
      {"safetensors: tensors that are looked up",
       {250,
        [](int64_t n) {
          // Parsed, too, as it is before anything is looked up: a search alone takes half as long again a name among
          // ten times as many, for its logarithm and because no branch of it can be foreseen.
          auto file = std::make_shared<std::string>(FileWith(HeaderOf(n, [](int64_t i) { return Scrambled(i); })));
          return [=] {
            const auto view = SafetensorsView::Parse(*file);
            REQUIRE(view.ok());
            for (int64_t i = 0; i < n; ++i) REQUIRE(view->Find(Scrambled(i)).ok());
            REQUIRE_FALSE(view->Find("another").ok());
          };
        }}},
      {"a dense output whose last value is NaN",
       {10'000,
        [](int64_t n) {
          std::vector<float> values(static_cast<size_t>(n), 1.0f);
          values.back() = std::numeric_limits<float>::quiet_NaN();
          auto sum = std::make_shared<RoundAccumulator>(Accumulator(ASpec("sum", v1::FLOAT32, {n})));
          return [=, contribution = Contribute(Floats(values))] { REQUIRE_FALSE(sum->Validate(contribution).ok()); };
        }}},
      {"a dense output of NaNs that propagate",
       {1'000,
        [](int64_t n) {
          v1::OutputSpec output = AnOutput("sum", v1::FLOAT32, {n});
          output.set_non_finite(v1::PROPAGATE_NON_FINITE);
          return Folding(ASpec(output), Contribute(Floats(std::vector<float>(static_cast<size_t>(n), NAN))));
        }}},
      {"a sparse output: the same coordinate again and again",
       {10'000,
        [](int64_t n) {
          return Folding(ASpec("sparse_sum", v1::FLOAT32, {1 << 30}),
                         SparseKeys(1 << 30, n, [](int64_t) { return 77; }));
        }}},
      {"a sparse output whose last value is NaN",
       {4'000,
        [](int64_t n) {
          v1::Contribution contribution = SparseKeys(1 << 30, n, [](int64_t i) { return i; });
          std::vector<float> values(static_cast<size_t>(n), 1.0f);
          values.back() = NAN;
          *contribution.mutable_outputs(0)->mutable_sparse()->mutable_values() = Floats(values);
          auto sum = std::make_shared<RoundAccumulator>(Accumulator(ASpec("sparse_sum", v1::FLOAT32, {1 << 30})));
          return [=] { REQUIRE_FALSE(sum->Validate(contribution).ok()); };
        }}},
      {"a keyed output: strings that collide in a public hash",
       {500, [](int64_t n) { return Folding(Keyed(v1::STRING_KEYS), StringKeys(n, CollidingKey)); }}},
      {"a keyed output: a partial aggregate of strings that collide in a public hash",
       {500, [](int64_t n) { return Merging(Keyed(v1::STRING_KEYS), StringKeys(n, CollidingKey)); }}},
      {"a keyed output: long strings that differ at the end",
       {60,
        [](int64_t n) {
          return Folding(Keyed(v1::STRING_KEYS),
                         StringKeys(n, [](int64_t i) { return std::string(300, 'k') + Scrambled(i); }));
        }}},
      {"a keyed output: the same string again and again",
       {3'000, [](int64_t n) { return Folding(Keyed(v1::STRING_KEYS), StringKeys(n, [](int64_t) { return "k"; })); }}},
      {"a keyed output: a partial aggregate of integers",
       {500,
        [](int64_t n) { return Merging(Keyed(v1::INT64_KEYS), IntegerKeys(n, [](int64_t i) { return i << 20; })); }}},
  };
  return rows;
}

TEST_CASE("Ten times as much of anything that strangers send takes ten times as long to check and fold") {
  for (const auto& [name, row] : Rows()) {
    INFO(name);
    CHECK(CpuRatio(row.make, row.size) <= kLinear);
  }
}

// Series of keys at distances of powers of two: whatever is added to their bits, they stay one.
TEST_CASE("No series of integer keys or coordinates costs more than another") {
  constexpr int64_t kKeys = 50'000;
  const auto seconds = [](const std::function<void()>& work) {
    double least = 1e9;
    for (int run = 0; run < 3; ++run) least = std::min(least, CpuSeconds(work));
    return least;
  };
  const auto index = [](const std::vector<uint64_t>& keys) {
    return [&keys] {
      SlotIndex<uint64_t> numbers;
      for (const uint64_t key : keys) numbers.FindOrAdd(key);
      REQUIRE(numbers.size() == static_cast<int64_t>(keys.size()));
    };
  };
  std::vector<uint64_t> keys(kKeys);
  SeededRandom random(1);
  for (uint64_t& key : keys) key = random.Bits();
  const double usual = seconds(index(keys));
  for (int shift = 0; shift < 48; ++shift) {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = uint64_t{i} << shift;
    INFO("keys at distances of 2^" << shift);
    CHECK(seconds(index(keys)) <= 8 * usual);
  }
}

TEST_CASE("No series of coordinates of a sparse output costs more than another") {
  constexpr int64_t kSize = int64_t{1} << 60;
  constexpr int64_t kKeys = 50'000;
  const auto seconds = [](const std::function<void()>& work) {
    double least = 1e9;
    for (int run = 0; run < 3; ++run) least = std::min(least, CpuSeconds(work));
    return least;
  };
  for (const char* op : {"sparse_sum", "coordinate_mean"}) {
    const v1::AggregateSpec spec = ASpec(op, v1::FLOAT32, {kSize});
    SeededRandom random(1);
    const double usual = seconds(
        Folding(spec, SparseKeys(kSize, kKeys, [&](int64_t) { return static_cast<int64_t>(random.Below(kSize)); })));
    for (int shift = 0; shift <= 44; shift += 4) {
      INFO(op << ": coordinates at distances of 2^" << shift);
      CHECK(seconds(Folding(spec, SparseKeys(kSize, kKeys, [&](int64_t i) { return i << shift; }))) <= 8 * usual);
    }
  }
}

}  // namespace
}  // namespace sheaf
