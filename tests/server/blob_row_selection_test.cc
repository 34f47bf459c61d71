// Selecting rows of a broadcast: what numpy's fancy indexing would give, a message at a time.
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "aggregation/wire/safetensors.h"
#include "base/random.h"
#include "server/core/broadcasts/broadcast_check.h"
#include "server/core/broadcasts/row_selection.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// w: 20 rows of 3 floats, w[i, j] = 100 i + j. b: 5 int64. scale: a scalar. none: 4 rows of nothing.
class ABroadcast {
 public:
  ABroadcast() {
    std::vector<float> w;
    for (int i = 0; i < 20; ++i) {
      for (int j = 0; j < 3; ++j) w.push_back(static_cast<float>(100 * i + j));
    }
    w_ = BytesOf(w);
    b_ = BytesOf(std::vector<int64_t>{10, 11, 12, 13, 14});
    scale_ = BytesOf(std::vector<double>{0.5});
    file_ = EncodeSafetensors(std::vector<TensorView>{{"w", v1::FLOAT32, {20, 3}, w_},
                                                      {"b", v1::INT64, {5}, b_},
                                                      {"scale", v1::FLOAT64, {}, scale_},
                                                      {"none", v1::FLOAT32, {4, 0}, ""}},
                              {});
    auto parsed = ReadSafetensorsHeader(MemoryBlobView(file_), Limits());
    REQUIRE(parsed.ok());
    header_ = *std::move(parsed);
  }
  absl::StatusOr<v1::SelectRowsResponse> Select(const v1::SelectRowsRequest& request, int64_t bytes_max) const {
    return SelectRowsOf(header_, MemoryBlobView(file_), request, bytes_max);
  }

 private:
  std::string w_, b_, scale_, file_;
  SafetensorsHeader header_;
};

struct Selection {
  std::string tensor;
  std::vector<int64_t> rows;
  bool all = false;
};

v1::SelectRowsRequest Asking(const std::vector<Selection>& selections) {
  v1::SelectRowsRequest request;
  for (const Selection& selection : selections) {
    v1::RowSelection& added = *request.add_selections();
    added.set_tensor(selection.tensor);
    for (int64_t row : selection.rows) added.add_rows(row);
    added.set_all(selection.all);
  }
  return request;
}

struct Answer {
  std::map<int, std::string> bytes;
  std::map<int, int64_t> rows;
  int num_pages = 0;
};

// Follows the cursors to the end and puts the pieces together.
Answer AskAll(const ABroadcast& broadcast, v1::SelectRowsRequest request, int64_t bytes_max) {
  Answer answer;
  do {
    const auto page = broadcast.Select(request, bytes_max);
    REQUIRE(page.ok());
    ++answer.num_pages;
    REQUIRE(answer.num_pages < 1000);
    for (const auto& piece : page->pieces()) {
      CHECK(piece.first_row() == answer.rows[piece.selection()]);
      REQUIRE(piece.rows().shape_size() >= 1);
      answer.rows[piece.selection()] += piece.rows().shape(0);
      answer.bytes[piece.selection()] += piece.rows().data();
    }
    request.set_cursor(page->next_cursor());
  } while (!request.cursor().empty());
  return answer;
}

TEST_CASE("Selected rows come in the order asked for, repeats included") {
  const ABroadcast broadcast;
  const auto page = broadcast.Select(Asking({{"w", {19, 0, 19}}, {"b", {4}}}), 1 << 20);
  REQUIRE(page.ok());
  CHECK(page->next_cursor().empty());
  REQUIRE(page->pieces_size() == 2);
  const v1::Tensor& w = page->pieces(0).rows();
  CHECK(w.dtype() == v1::FLOAT32);
  CHECK(std::vector<int64_t>(w.shape().begin(), w.shape().end()) == std::vector<int64_t>{3, 3});
  CHECK(w.data() == BytesOf(std::vector<float>{1900, 1901, 1902, 0, 1, 2, 1900, 1901, 1902}));
  const v1::Tensor& b = page->pieces(1).rows();
  CHECK(std::vector<int64_t>(b.shape().begin(), b.shape().end()) == std::vector<int64_t>{1});
  CHECK(b.data() == BytesOf(std::vector<int64_t>{14}));
}

TEST_CASE("A whole tensor can be asked for without naming its rows") {
  const ABroadcast broadcast;
  const Answer answer = AskAll(broadcast, Asking({{"b", {}, true}, {"scale", {}, true}}), 1 << 20);
  CHECK(answer.bytes.at(0) == BytesOf(std::vector<int64_t>{10, 11, 12, 13, 14}));
  CHECK(answer.bytes.at(1) == BytesOf(std::vector<double>{0.5}));
  CHECK(answer.rows.at(1) == 1);
}

TEST_CASE("A scalar is one row, whether it is named or all of it is asked for") {
  const ABroadcast broadcast;
  for (const Selection& selection : {Selection{"scale", {}, true}, Selection{"scale", {0}}}) {
    const auto page = broadcast.Select(Asking({selection}), 1 << 20);
    REQUIRE(page.ok());
    REQUIRE(page->pieces_size() == 1);
    const v1::Tensor& rows = page->pieces(0).rows();
    CHECK(std::vector<int64_t>(rows.shape().begin(), rows.shape().end()) == std::vector<int64_t>{1});
    CHECK(rows.data() == BytesOf(std::vector<double>{0.5}));
  }
  CHECK(broadcast.Select(Asking({{"scale", {0, 0}}}), 1 << 20)->pieces(0).rows().shape(0) == 2);
  CHECK(broadcast.Select(Asking({{"scale", {1}}}), 1 << 20).status().code() == absl::StatusCode::kOutOfRange);
}

TEST_CASE("An empty selection is answered with dtype and shape of no rows") {
  const ABroadcast broadcast;
  const auto page = broadcast.Select(Asking({{"w", {}}, {"b", {1}}}), 1 << 20);
  REQUIRE(page.ok());
  REQUIRE(page->pieces_size() == 2);
  CHECK(page->pieces(0).rows().dtype() == v1::FLOAT32);
  CHECK(page->pieces(0).rows().shape(0) == 0);
  CHECK(page->pieces(0).rows().shape(1) == 3);
}

TEST_CASE("Rows without bytes are counted and never end a page") {
  const ABroadcast broadcast;
  const Answer answer = AskAll(broadcast, Asking({{"none", {}, true}, {"none", {0, 3, 3}}}), 12);
  CHECK(answer.rows.at(0) == 4);
  CHECK(answer.rows.at(1) == 3);
  CHECK(answer.num_pages == 1);
}

TEST_CASE("However small the pages, together they are what numpy's indexing gives") {
  const uint64_t seed = GENERATE(range(0, 50));
  INFO("seed " << seed);
  SeededRandom random(seed);
  const ABroadcast broadcast;
  std::vector<Selection> selections;
  std::vector<std::string> expected;
  for (uint64_t s = 0; s < 1 + random.Below(4); ++s) {
    const bool is_all = random.Chance(0.3);
    Selection selection = {.tensor = "w", .rows = {}, .all = is_all};
    std::vector<float> values;
    const uint64_t num_rows = is_all ? 20 : random.Below(30);
    for (uint64_t i = 0; i < num_rows; ++i) {
      const auto row = static_cast<int64_t>(is_all ? i : random.Below(20));
      if (!is_all) selection.rows.push_back(row);
      for (int j = 0; j < 3; ++j) values.push_back(static_cast<float>(100 * row + j));
    }
    selections.push_back(selection);
    expected.push_back(BytesOf(values));
  }
  // From less than a row (12 bytes; one is sent all the same) to everything at once.
  const auto bytes_max = static_cast<int64_t>(3 + random.Below(400));
  const Answer answer = AskAll(broadcast, Asking(selections), bytes_max);
  for (size_t s = 0; s < expected.size(); ++s) CHECK(answer.bytes.at(static_cast<int>(s)) == expected[s]);
}

TEST_CASE("Very many selections of nothing come in pages, as rows do") {
  const ABroadcast broadcast;
  v1::SelectRowsRequest request;
  constexpr int kSelections = 10'000;
  for (int i = 0; i < kSelections; ++i) request.add_selections()->set_tensor("w");
  const auto first = broadcast.Select(request, 2 << 20);
  REQUIRE(first.ok());
  CHECK(first->pieces_size() < kSelections / 2);
  const Answer answer = AskAll(broadcast, request, 2 << 20);
  CHECK(answer.num_pages == 3);
  CHECK(answer.rows.size() == kSelections);
}

TEST_CASE("Rows of a tensor of a type that is not known here are not selected, those beside it are") {
  const std::string header =
      R"({"half":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"w":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  const uint64_t size = header.size();
  const MemoryBlobView file(std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + "abcdef");
  const auto parsed = ReadSafetensorsHeader(file, Limits());
  REQUIRE(parsed.ok());
  const auto half = SelectRowsOf(*parsed, file, Asking({{"half", {0}}}), 100);
  CHECK(half.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(half.status().message()), Contains("half") && Contains("read the blob in ranges"));
  const auto w = SelectRowsOf(*parsed, file, Asking({{"w", {1}}}), 100);
  REQUIRE(w.ok());
  CHECK(w->pieces(0).rows().data() == "f");
}

TEST_CASE("A cursor that was made up reaches no row that is not there") {
  const ABroadcast broadcast;
  v1::SelectRowsRequest request = Asking({{"w", {0, 1, 20, 3}}});
  CHECK(broadcast.Select(request, 12).status().code() == absl::StatusCode::kOutOfRange);
  request.set_cursor("0:1");
  CHECK(broadcast.Select(request, 12)->pieces(0).rows().shape(0) == 1);
  request.set_cursor("0:2");
  CHECK(broadcast.Select(request, 12).status().code() == absl::StatusCode::kOutOfRange);
}

TEST_CASE("A row that is not in the tensor is named, and nothing is answered") {
  const ABroadcast broadcast;
  for (const int64_t row : {int64_t{20}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    const auto page = broadcast.Select(Asking({{"b", {0}}, {"w", {3, row}}}), 1 << 20);
    REQUIRE(page.status().code() == absl::StatusCode::kOutOfRange);
    CHECK(std::string(page.status().message()) ==
          "row " + std::to_string(row) + " (at position 1) is not in tensor w, which has 20 rows");
  }
}

TEST_CASE("A tensor that is not in the broadcast is not found") {
  const ABroadcast broadcast;
  const auto page = broadcast.Select(Asking({{"weights", {0}}}), 1 << 20);
  CHECK(page.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(page.status().message()), Contains("weights"));
}

TEST_CASE("A row too large for a message is refused before anything is copied") {
  const ABroadcast broadcast;
  const auto page = broadcast.Select(Asking({{"w", {0}}}), 2);
  CHECK(page.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(page.status().message()), Contains("read the blob in ranges"));
}

TEST_CASE("A cursor that no answer gave is refused") {
  const ABroadcast broadcast;
  for (const std::string cursor : {"x", ":", "0:", ":0", "0:2", "2:0", "-1:0", "0:-1", "0:1 ", "0:99999999999999999999",
                                   "99999999999:0", "0:1:2"}) {
    v1::SelectRowsRequest request = Asking({{"w", {1, 2}}, {"b", {0}}});
    request.set_cursor(cursor);
    INFO("cursor " << cursor);
    CHECK(broadcast.Select(request, 1 << 20).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace sheaf
