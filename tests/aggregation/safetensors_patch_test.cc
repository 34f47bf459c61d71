// Patches of broadcasts: what they make of their base, and that one that does not fit it changes nothing.
#include "aggregation/wire/safetensors_patch.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "aggregation/wire/safetensors.h"
#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

std::string RandomBytes(Random& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.Below(256));
  return bytes;
}

// --- The oracle: tensors as rows of bytes, without files, headers or offsets ---

struct Model {
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  // Of a scalar there is one.
  std::vector<std::string> rows;
};
using Models = std::map<std::string, Model>;

std::string Joined(const std::vector<std::string>& rows) {
  std::string bytes;
  for (const std::string& row : rows) bytes += row;
  return bytes;
}

std::string FileOf(const Models& models, const std::map<std::string, std::string>& metadata = {}) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, model] : models) tensors.push_back({name, model.dtype, model.shape, Joined(model.rows)});
  return EncodeSafetensors(tensors, metadata);
}

Model RandomModel(Random& random) {
  static const std::vector<v1::DType> kDTypes = {v1::FLOAT32, v1::FLOAT64, v1::INT32, v1::INT64, v1::UINT64, v1::UINT8};
  Model model{.dtype = kDTypes[random.Below(kDTypes.size())]};
  const uint64_t rank = random.Below(4);
  size_t row_bytes = static_cast<size_t>(DTypeSize(model.dtype));
  int64_t num_rows = 1;
  for (uint64_t i = 0; i < rank; ++i) {
    // Now and then none.
    const auto size = static_cast<int64_t>(random.Below(i == 0 ? 12 : 4));
    model.shape.push_back(size);
    if (i == 0) {
      num_rows = size;
    } else {
      row_bytes *= static_cast<size_t>(size);
    }
  }
  for (int64_t i = 0; i < num_rows; ++i) model.rows.push_back(RandomBytes(random, row_bytes));
  return model;
}

TEST_CASE("A patch makes of its base what the same changes make of the tensors") {
  SeededRandom random(GENERATE(range(1, 40)));
  Models models;
  const uint64_t num_tensors = random.Below(6);
  for (uint64_t i = 0; i < num_tensors; ++i) models[fmt::format("t{}", i)] = RandomModel(random);
  std::string file = FileOf(models, {{"computation", "c"}});
  for (int step = 0; step < 5; ++step) {
    std::vector<TensorChange> changes;
    // What the changes point to.
    std::map<std::string, std::vector<int64_t>> rows;
    std::map<std::string, std::string> bytes;
    for (auto& [name, model] : models) {
      const uint64_t kind = random.Below(3);
      if (kind == 0) continue;
      TensorChange change{.tensor = name, .dtype = model.dtype, .shape = model.shape};
      const bool is_whole = kind == 1;
      for (size_t row = 0; row < model.rows.size(); ++row) {
        if (!is_whole && random.Chance(0.5)) continue;
        rows[name].push_back(static_cast<int64_t>(row));
        model.rows[row] = RandomBytes(random, model.rows[row].size());
        bytes[name] += model.rows[row];
      }
      change.data = bytes[name];
      if (!is_whole) {
        change.rows = rows[name];
        if (change.shape.empty()) change.shape.push_back(0);
        change.shape.front() = static_cast<int64_t>(rows[name].size());
      }
      changes.push_back(std::move(change));
    }
    const std::string base_digest = fmt::format("the digest of step {}", step);
    const std::string patch = EncodeSafetensorsPatch(base_digest, changes);
    const auto view = SafetensorsView::Parse(patch);
    REQUIRE(view.ok());
    REQUIRE(view->metadata() == std::map<std::string, std::string>{{"sheaf.base", base_digest}});
    const absl::Status applied = ApplySafetensorsPatch(patch, file);
    INFO(applied.ToString());
    REQUIRE(applied.ok());
    REQUIRE(file == FileOf(models, {{"computation", "c"}}));
  }
}

SafetensorsHeader HeaderOf(const std::string& file) {
  const auto size = static_cast<int64_t>(file.size());
  const int64_t text = SafetensorsHeader::TextBytes(file, size, {}).value();
  return SafetensorsHeader::Parse(file.substr(SafetensorsHeader::kPrefixBytes, text), size, {}).value();
}

TEST_CASE("A file is a patch if its metadata names a base") {
  CHECK(PatchBase(HeaderOf(EncodeSafetensors(std::vector<NamedTensor>(), {{"base", "b"}}))) == nullptr);
  const SafetensorsHeader header = HeaderOf(EncodeSafetensorsPatch("b", {}));
  REQUIRE(PatchBase(header) != nullptr);
  CHECK(*PatchBase(header) == "b");
}

// w: 4 rows of 2 floats. v: 3 int64. none: 5 rows of nothing. s: a scalar.
std::string ABase() {
  return EncodeSafetensors(std::vector<NamedTensor>{{"w", v1::FLOAT32, {4, 2}, std::string(32, 'w')},
                                                    {"v", v1::INT64, {3}, std::string(24, 'v')},
                                                    {"none", v1::FLOAT32, {5, 0}, ""},
                                                    {"s", v1::FLOAT32, {}, "ssss"}},
                           {});
}

NamedTensor Indices(const std::string& of, const std::vector<int64_t>& rows) {
  return {of + ".indices", v1::INT64, {static_cast<int64_t>(rows.size())}, BytesOf(rows)};
}
NamedTensor ValuesOfW(int64_t rows) {
  return {"w.values", v1::FLOAT32, {rows, 2}, std::string(static_cast<size_t>(rows) * 8, 'x')};
}
std::string APatch(const std::vector<NamedTensor>& tensors) {
  return EncodeSafetensors(tensors, {{"sheaf.base", "b"}});
}

TEST_CASE("A patch that does not fit its base is refused with the tensor's name, and nothing has changed") {
  struct Hostile {
    std::string what;
    std::vector<NamedTensor> tensors;
    // The message has these.
    std::string tensor;
    std::string why;
  };
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::vector<Hostile> patches = {
      {"an unknown tensor", {{"u", v1::FLOAT32, {1}, "uuuu"}}, "\"u\"", "none of the base's"},
      {"rows of an unknown tensor", {Indices("u", {0}), {"u.values", v1::FLOAT32, {1}, "uuuu"}}, "\"u.", "none of"},
      {"a suffix alone", {{".indices", v1::INT64, {0}, ""}}, "\".indices\"", "none of the base's"},
      {"rows of rows", {{"w.indices.indices", v1::INT64, {0}, ""}}, "\"w.indices.indices\"", "none of the base's"},
      {"whole of another dtype", {{"w", v1::INT32, {4, 2}, std::string(32, 'x')}}, "\"w\"", "dtype I32"},
      {"whole of another shape and size", {{"w", v1::FLOAT32, {4, 3}, std::string(48, 'x')}}, "\"w\"", "[4, 3]"},
      {"whole of another shape", {{"w", v1::FLOAT32, {2, 4}, std::string(32, 'x')}}, "\"w\"", "shape"},
      {"whole of less rows", {{"w", v1::FLOAT32, {3, 2}, std::string(24, 'x')}}, "\"w\"", "shape"},
      {"a scalar as a vector", {{"s", v1::FLOAT32, {1}, "xxxx"}}, "\"s\"", "shape"},
      {"whole and rows",
       {{"w", v1::FLOAT32, {4, 2}, std::string(32, 'x')}, Indices("w", {1}), ValuesOfW(1)},
       "\"w\"",
       "whole and in rows"},
      {"whole and indices", {{"w", v1::FLOAT32, {4, 2}, std::string(32, 'x')}, Indices("w", {})}, "\"w\"", "whole and"},
      {"indices without values", {Indices("w", {1})}, "\"w\"", "no rows"},
      {"values without indices", {ValuesOfW(1)}, "\"w\"", "no numbers of rows"},
      {"unsorted", {Indices("w", {2, 1}), ValuesOfW(2)}, "\"w\"", "row 1 after row 2"},
      {"repeated", {Indices("w", {1, 1}), ValuesOfW(2)}, "\"w\"", "row 1 after row 1"},
      {"negative", {Indices("w", {-1, 1}), ValuesOfW(2)}, "\"w\"", "row -1"},
      {"the most negative", {Indices("w", {kLeast}), ValuesOfW(1)}, "\"w\"", "is not among them"},
      {"one too large", {Indices("w", {1, 4}), ValuesOfW(2)}, "\"w\"", "has 4 rows, and row 4"},
      {"the largest", {Indices("w", {kMost}), ValuesOfW(1)}, "\"w\"", "is not among them"},
      {"more than there are", {Indices("w", {0, 1, 2, 3, 4}), ValuesOfW(5)}, "\"w\"", "row 4"},
      {"a second row of a scalar",
       {Indices("s", {0, 1}), {"s.values", v1::FLOAT32, {2}, "xxxxyyyy"}},
       "\"s\"",
       "row 1"},
      {"a row without bytes that is not there",
       {Indices("none", {5}), {"none.values", v1::FLOAT32, {1, 0}, ""}},
       "\"none\"",
       "row 5"},
      {"indices of dtype I32",
       {{"w.indices", v1::INT32, {1}, BytesOf<int32_t>({1})}, ValuesOfW(1)},
       "\"w.indices\"",
       "I64"},
      {"indices of dtype U64",
       {{"w.indices", v1::UINT64, {1}, std::string(8, '\0')}, ValuesOfW(1)},
       "\"w.indices\"",
       "I64"},
      {"indices of two dimensions",
       {{"w.indices", v1::INT64, {1, 1}, std::string(8, '\0')}, ValuesOfW(1)},
       "\"w.indices\"",
       "one dimension"},
      {"indices of none", {{"w.indices", v1::INT64, {}, std::string(8, '\0')}, ValuesOfW(1)}, "\"w.indices\"", "one"},
      {"fewer values than indices", {Indices("w", {0, 1}), ValuesOfW(1)}, "\"w.values\"", "shape"},
      {"more values than indices", {Indices("w", {0}), ValuesOfW(2)}, "\"w.values\"", "shape"},
      {"values of another dtype",
       {Indices("w", {0}), {"w.values", v1::INT32, {1, 2}, std::string(8, 'x')}},
       "\"w.values\"",
       "dtype F32"},
      {"values of another width",
       {Indices("w", {0}), {"w.values", v1::FLOAT32, {1, 3}, std::string(12, 'x')}},
       "\"w.values\"",
       "shape"},
      {"values without a width", {Indices("w", {0}), {"w.values", v1::FLOAT32, {1}, "xxxx"}}, "\"w.values\"", "shape"},
  };
  for (const Hostile& hostile : patches) {
    INFO(hostile.what);
    std::string file = ABase();
    std::vector<NamedTensor> tensors = hostile.tensors;
    // What would fit comes first, and is not applied either.
    tensors.push_back({"v", v1::INT64, {3}, std::string(24, 'n')});
    const absl::Status refused = ApplySafetensorsPatch(APatch(tensors), file);
    CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(refused.message()),
               Contains("the patch does not fit its base") && Contains(hostile.tensor) && Contains(hostile.why));
    CHECK(file == ABase());
  }
}

TEST_CASE("A name that the base has means that tensor, also if it ends like the rows of another") {
  const auto base = [] {
    return EncodeSafetensors(std::vector<NamedTensor>{{"w", v1::FLOAT32, {4}, std::string(16, 'w')},
                                                      {"w.indices", v1::INT64, {1}, BytesOf<int64_t>({7})}},
                             {});
  };
  std::string file = base();
  // Whole; a row number 9 of w is not what it says.
  REQUIRE(ApplySafetensorsPatch(APatch({{"w.indices", v1::INT64, {1}, BytesOf<int64_t>({9})}}), file).ok());
  CHECK((*SafetensorsView::Parse(file)->Find("w.indices"))->data == BytesOf<int64_t>({9}));
  CHECK((*SafetensorsView::Parse(file)->Find("w"))->data == std::string(16, 'w'));

  file = base();
  REQUIRE(ApplySafetensorsPatch(APatch({{"w.indices.indices", v1::INT64, {1}, BytesOf<int64_t>({0})},
                                        {"w.indices.values", v1::INT64, {1}, BytesOf<int64_t>({11})}}),
                                file)
              .ok());
  CHECK((*SafetensorsView::Parse(file)->Find("w.indices"))->data == BytesOf<int64_t>({11}));

  // So that no rows of w can be said.
  file = base();
  const absl::Status refused =
      ApplySafetensorsPatch(APatch({Indices("w", {1}), {"w.values", v1::FLOAT32, {1}, "xxxx"}}), file);
  CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(refused.message()), Contains("\"w\"") && Contains("no numbers of rows"));
  CHECK(file == base());
}

// A file with a tensor of a dtype that is not known here.
std::string FileOfBf16(const std::string& dtype, const std::string& shape, const std::string& bytes,
                       const std::string& metadata = "{}") {
  const std::string header =
      fmt::format(R"({{"__metadata__":{},"h":{{"dtype":"{}","shape":{},"data_offsets":[0,{}]}}}})", metadata, dtype,
                  shape, bytes.size());
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + bytes;
}

TEST_CASE("A tensor whose dtype is not known here is replaced as a whole, and in no rows") {
  const std::string named = R"({"sheaf.base":"b"})";
  std::string file = FileOfBf16("BF16", "[2]", "abcd");
  REQUIRE(ApplySafetensorsPatch(FileOfBf16("BF16", "[2]", "wxyz", named), file).ok());
  CHECK(file == FileOfBf16("BF16", "[2]", "wxyz"));
  // Nothing but its bytes says how many there are.
  CHECK(ApplySafetensorsPatch(FileOfBf16("BF16", "[2]", "wxyz12", named), file).code() ==
        absl::StatusCode::kInvalidArgument);
  const absl::Status rows =
      ApplySafetensorsPatch(APatch({Indices("h", {0}), {"h.values", v1::FLOAT32, {1}, "1234"}}), file);
  CHECK(rows.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(rows.message()), Contains("\"h.values\""));
  CHECK(file == FileOfBf16("BF16", "[2]", "wxyz"));
}

TEST_CASE("What is no safetensors file is no patch, and has none") {
  std::string file = ABase();
  for (const std::string& patch : {std::string(), std::string("text"), APatch({}).substr(0, 20)}) {
    CHECK(ApplySafetensorsPatch(patch, file).code() == absl::StatusCode::kInvalidArgument);
    CHECK(file == ABase());
  }
  std::string cut_off = ABase().substr(0, 40);
  CHECK(ApplySafetensorsPatch(APatch({}), cut_off).code() == absl::StatusCode::kInvalidArgument);
  CHECK(cut_off == ABase().substr(0, 40));
}

}  // namespace
}  // namespace sheaf
