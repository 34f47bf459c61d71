// The file format of broadcasts and aggregates: what we write, everybody reads; what others write, we check.
#include "aggregation/wire/safetensors.h"

#include <catch2/catch.hpp>

#include "tests/aggregation/values.h"

namespace sheaf {
namespace {

std::string FileWith(const std::string& header, const std::string& data = "") {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

std::string RefusalOf(const std::string& file) {
  const absl::Status status = SafetensorsView::Parse(file).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST_CASE("Tensors come back as they went in") {
  const std::vector<NamedTensor> tensors = {{"a", v1::FLOAT32, {3}, BytesOf<float>({1, 2, 3})},
                                            {"b.indices", v1::INT64, {2, 1}, BytesOf<int64_t>({4, 5})},
                                            {"empty", v1::FLOAT64, {0, 7}, ""},
                                            {"scalar", v1::UINT64, {}, BytesOf<uint64_t>({9})}};
  const std::string file = EncodeSafetensors(tensors, {{"round", "r-1"}});
  const absl::StatusOr<SafetensorsView> view = SafetensorsView::Parse(file);
  INFO(view.status().ToString());
  REQUIRE(view.ok());
  REQUIRE(view->metadata() == std::map<std::string, std::string>{{"round", "r-1"}});
  REQUIRE(view->tensors().size() == tensors.size());
  for (const NamedTensor& tensor : tensors) {
    const absl::StatusOr<const TensorView*> found = view->Find(tensor.name);
    REQUIRE(found.ok());
    REQUIRE((*found)->dtype == tensor.dtype);
    REQUIRE((*found)->shape == tensor.shape);
    REQUIRE((*found)->data == tensor.data);
    // Aligned for its elements, counted from the start of the file.
    if (!tensor.data.empty()) REQUIRE(((*found)->data.data() - file.data()) % DTypeSize(tensor.dtype) == 0);
  }
  REQUIRE((*view->Find("b.indices"))->num_rows() == 2);
  REQUIRE((*view->Find("b.indices"))->row_bytes() == 8);
  REQUIRE((*view->Find("scalar"))->num_rows() == 1);
  REQUIRE((*view->Find("empty"))->row_bytes() == 56);
  const absl::Status missing = view->Find("c").status();
  REQUIRE(missing.code() == absl::StatusCode::kNotFound);
  REQUIRE(std::string(missing.message()).find("scalar") != std::string::npos);
}

TEST_CASE("A tensor without elements has rows of no bytes where no number says how many they would have") {
  constexpr int64_t kMuch = int64_t{1} << 61;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0, 3, kMuch}, {0, kMuch, kMuch}, {4, kMuch, 7, 0}}) {
    const std::string file = EncodeSafetensors(std::vector<NamedTensor>{{"t", v1::FLOAT32, shape, ""}}, {});
    const auto view = SafetensorsView::Parse(file);
    REQUIRE(view.ok());
    CHECK((*view->Find("t"))->row_bytes() == 0);
  }
}

TEST_CASE("The same tensors in another order give the same file") {
  const NamedTensor a = {"a", v1::FLOAT32, {1}, "1234"}, b = {"b", v1::INT64, {1}, "12345678"};
  REQUIRE(EncodeSafetensors(std::vector<NamedTensor>{a, b}, {}) ==
          EncodeSafetensors(std::vector<NamedTensor>{b, a}, {}));
}

TEST_CASE("The bytes of a small file are these") {
  REQUIRE(EncodeSafetensors(std::vector<NamedTensor>{{"w", v1::FLOAT32, {1}, "abcd"}}, {}) ==
          FileWith(R"({"w":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}}  )", "abcd"));
}

TEST_CASE("A malformed file is refused with the reason") {
  REQUIRE(RefusalOf("") == "safetensors: the file ends before its header does");
  REQUIRE(RefusalOf(std::string(8, '\xff')).find("ends before its header") != std::string::npos);
  REQUIRE(RefusalOf(FileWith("[1]")) == "safetensors: the header is not a JSON object");
  REQUIRE(RefusalOf(FileWith("{")) == "safetensors: the header is not a JSON object");
  REQUIRE(RefusalOf(FileWith(std::string(100'000, '['))) == "safetensors: the header is not a JSON object");
  REQUIRE(RefusalOf(FileWith(R"({"w":1})")) == "safetensors: tensor 'w' is not described by an object");
  REQUIRE(
      RefusalOf(FileWith(R"({"w":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})", "ab")).find("no dtype known") !=
      std::string::npos);
  REQUIRE(RefusalOf(FileWith(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "abcd")).find("shape") !=
          std::string::npos);
  REQUIRE(RefusalOf(FileWith(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "abcd"))
              .find("outside the file") != std::string::npos);
  REQUIRE(RefusalOf(FileWith(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "abcd"))
              .find("outside the file") != std::string::npos);
  REQUIRE(RefusalOf(FileWith(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "abcd")).find("do not fit") !=
          std::string::npos);
  REQUIRE(RefusalOf(FileWith(R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})"))
              .find("do not fit") != std::string::npos);
  REQUIRE(RefusalOf(FileWith(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcde"))
              .find("behind the last") != std::string::npos);
  REQUIRE(RefusalOf(FileWith(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "abcdefgh")).find("a gap") !=
          std::string::npos);
  REQUIRE(
      RefusalOf(
          FileWith(
              R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
              "abcd"))
          .find("twice") != std::string::npos);
  REQUIRE(RefusalOf(FileWith(R"({"__metadata__":{"a":1}})")) == "safetensors: metadata 'a' is not a string");
}

TEST_CASE("A header that is nested very deeply is refused, and does not end the process that reads it") {
  constexpr size_t kDepth = 1'000'000;
  const std::string nested = std::string(kDepth, '[') + std::string(kDepth, ']');
  for (const std::string value : {R"("F32")", "[0]", "[0,0]"}) {
    std::string header = R"({"t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})";
    REQUIRE(SafetensorsView::Parse(FileWith(header)).ok());
    header.replace(header.find(value), value.size(), nested);
    INFO(value);
    CHECK_FALSE(SafetensorsView::Parse(FileWith(header)).ok());
  }
}

TEST_CASE("Whoever parses for strangers says how much a header may have, and an error names the limit") {
  const auto file = FileWith(
      R"({"__metadata__":{"a":"b"},"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"yyyy":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})");
  const auto refusal = [&](const SafetensorsLimits& limits) {
    const absl::Status status = SafetensorsView::Parse(file, limits).status();
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    return std::string(status.message());
  };
  const auto header_bytes = static_cast<int64_t>(file.size()) - 8;
  REQUIRE(
      SafetensorsView::Parse(file, {.header_bytes_max = header_bytes, .tensors_max = 3, .name_bytes_max = 12}).ok());
  CHECK_THAT(refusal({.header_bytes_max = header_bytes - 1}),
             Catch::Contains("safetensors_header_bytes_max = " + std::to_string(header_bytes - 1)));
  CHECK_THAT(refusal({.tensors_max = 2}), Catch::Contains("safetensors_tensors_max = 2"));
  CHECK_THAT(refusal({.name_bytes_max = 11}), Catch::Contains("safetensors_name_bytes_max = 11"));
}

TEST_CASE("What the format does not know in a tensor's description is passed over, however deep") {
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& value : {std::string("1"), std::string("null"), std::string("\"text\""), nested,
                                   std::string(R"({"dtype":"F64","shape":[9],"deep":{"a":[{}]}})")}) {
    const auto view = SafetensorsView::Parse(
        FileWith(R"({"w":{"other":)" + value + R"(,"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd"));
    REQUIRE(view.ok());
    CHECK((*view->Find("w"))->shape == std::vector<int64_t>{1});
    CHECK((*view->Find("w"))->dtype == v1::FLOAT32);
  }
}

TEST_CASE("A header that says anything twice is refused, wherever") {
  const std::string tensor = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  for (const std::string& header :
       {R"({"a":)" + tensor + R"(,"b":)" + tensor + R"(,"a":)" + tensor + "}",
        R"({"a":)" + tensor + R"(,"\u0061":)" + tensor + "}",
        std::string(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
        std::string(R"({"a":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}})"),
        std::string(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"data_offsets":[0,0]}})"),
        std::string(R"({"__metadata__":{"k":"1","k":"2"}})"),
        std::string(R"({"__metadata__":{},"__metadata__":{}})")}) {
    INFO(header);
    CHECK_THAT(RefusalOf(FileWith(header)), Catch::Contains("twice"));
  }
}

TEST_CASE("What is missing or of another kind in a tensor's description is named") {
  const std::string good = R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  REQUIRE(SafetensorsView::Parse(FileWith(good)).ok());
  const std::map<std::string, std::string> spoiled = {{R"("dtype":"U8",)", ""},
                                                      {R"("shape":[0],)", ""},
                                                      {R"(,"data_offsets":[0,0])", ""},
                                                      {R"("U8")", "8"},
                                                      {R"("U8")" + std::string(), R"({"a":1})"},
                                                      {"[0],", R"({"a":0},)"},
                                                      {"[0],", "0,"},
                                                      {"[0],", R"(["0"],)"},
                                                      {"[0],", "[[0]],"},
                                                      {"[0],", "[-1],"},
                                                      {"[0],", "[0.5],"},
                                                      {"[0,0]", "[0]"},
                                                      {"[0,0]", "[0,0,0]"},
                                                      {"[0,0]", "[0,null]"},
                                                      {"[0],", "[18446744073709551615],"}};
  for (const auto& [what, by] : spoiled) {
    std::string header = good;
    header.replace(header.find(what), what.size(), by);
    INFO(header);
    CHECK_THAT(RefusalOf(FileWith(header)), Catch::Contains("tensor 'w'"));
  }
}

TEST_CASE("No damage to a file crashes the reader") {
  const std::string file = EncodeSafetensors(
      std::vector<NamedTensor>{{"w", v1::FLOAT32, {2, 2}, std::string(16, 'x')}, {"v", v1::INT64, {1}, "12345678"}},
      {{"k", "v"}});
  SeededRandom random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = file;
    for (uint64_t n = 1 + random.Below(3); n > 0; --n)
      damaged[random.Below(damaged.size())] = static_cast<char>(random.Bits());
    if (random.Chance(0.1)) damaged.resize(random.Below(damaged.size()));
    const absl::StatusOr<SafetensorsView> view = SafetensorsView::Parse(damaged);
    if (!view.ok()) continue;
    for (const TensorView& tensor : view->tensors()) REQUIRE(tensor.data.size() <= damaged.size());
  }
}

}  // namespace
}  // namespace sheaf
