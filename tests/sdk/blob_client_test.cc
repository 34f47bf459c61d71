#include "sdk/cpp/client/blob_client.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "aggregation/wire/safetensors.h"
#include "base/checksum.h"
#include "sdk/cpp/client/round_client.h"
#include "tests/sdk/program_local_server.h"

namespace sheaf {
namespace {

std::string SomeBytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
  return bytes;
}

// Fails the n-th call to `method`, before it is handled or when its answer travels.
LocalServer::Fault FailOnce(const char* method, int n, bool on_answer, absl::Status status) {
  return [=, seen = 0](std::string_view called, bool is_answer) mutable {
    if (called != method || is_answer != on_answer || ++seen != n) return absl::OkStatus();
    return status;
  };
}

TEST_CASE("A blob is uploaded in chunks and read back in ranges") {
  LocalServer server;
  server.set_answer_bytes_max(1000);
  SeededRandom random(1);
  const std::string bytes = SomeBytes(4500);
  const auto digest = UploadBlob(server, random, bytes);
  REQUIRE(digest.ok());
  CHECK(*digest == Sha256Hex(bytes));
  CHECK(server.num_calls(kWriteChunk.name) == 5);
  CHECK(ReadBlob(server, *digest).value() == bytes);
  CHECK(server.num_calls(kReadBlob.name) == 5);
}

TEST_CASE("A blob that the server has already is not sent again") {
  LocalServer server;
  SeededRandom random(1);
  REQUIRE(UploadBlob(server, random, "the same bytes").ok());
  const int64_t written = server.bytes_written();
  REQUIRE(UploadBlob(server, random, "the same bytes").ok());
  CHECK(server.bytes_written() == written);
}

TEST_CASE("An upload says for which population it is, also when it begins again") {
  LocalServer server;
  SeededRandom random(1);
  server.set_fault(FailOnce(kFinishUpload.name, 1, false, absl::DataLossError("damaged")));
  REQUIRE(UploadBlob(server, random, "a broadcast", "wards").ok());
  REQUIRE(UploadBlob(server, random, "for all").ok());
  CHECK(server.upload_populations() == std::vector<std::string>{"wards", "wards", ""});
}

TEST_CASE("An empty blob can be uploaded and read") {
  LocalServer server;
  SeededRandom random(1);
  const auto digest = UploadBlob(server, random, "");
  REQUIRE(digest.ok());
  CHECK(ReadBlob(server, *digest).value().empty());
}

TEST_CASE("An upload goes on from the committed bytes when any call or answer is lost") {
  const char* method = GENERATE(kStartUpload.name, kWriteChunk.name, kFinishUpload.name);
  const bool on_answer = GENERATE(false, true);
  CAPTURE(method, on_answer);
  LocalServer server;
  server.set_answer_bytes_max(1000);
  server.set_fault(FailOnce(method, 1, on_answer, absl::UnavailableError("the connection broke")));
  SeededRandom random(1);
  const std::string bytes = SomeBytes(4500);
  REQUIRE(UploadBlob(server, random, bytes).ok());
  CHECK(server.blobs().at(Sha256Hex(bytes)) == bytes);
  CHECK(server.bytes_written() == 4500);
}

TEST_CASE("An upload goes back when the server lost bytes, and begins again when it lost the upload") {
  const int64_t keep = GENERATE(0, 700, -1);
  CAPTURE(keep);
  LocalServer server;
  server.set_answer_bytes_max(1000);
  bool is_lost = false;
  server.set_fault([&](std::string_view method, bool is_answer) {
    if (method == kWriteChunk.name && !is_answer && server.bytes_written() == 3000 && !is_lost) {
      is_lost = true;
      server.LoseUploads(keep);
    }
    return absl::OkStatus();
  });
  SeededRandom random(1);
  const std::string bytes = SomeBytes(4500);
  const auto digest = UploadBlob(server, random, bytes);
  REQUIRE(digest.ok());
  CHECK(is_lost);
  CHECK(server.blobs().at(*digest) == bytes);
}

TEST_CASE("An upload that arrives damaged is begun again, but not for ever") {
  LocalServer server;
  const bool is_permanent = GENERATE(false, true);
  server.set_fault([&, seen = 0](std::string_view method, bool is_answer) mutable {
    if (method != kFinishUpload.name || is_answer || (++seen > 1 && !is_permanent)) return absl::OkStatus();
    server.LoseUploads(-1);
    return absl::DataLossError("the digest differs");
  });
  SeededRandom random(1);
  const auto digest = UploadBlob(server, random, "bytes");
  CHECK(digest.status().code() == (is_permanent ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk));
  CHECK(server.num_calls(kStartUpload.name) == (is_permanent ? 4 : 2));
}

TEST_CASE("An upload gives up when the server stays away or refuses") {
  LocalServer server;
  const absl::StatusCode code = GENERATE(absl::StatusCode::kUnavailable, absl::StatusCode::kResourceExhausted);
  server.set_fault([&](std::string_view method, bool) {
    return method == kWriteChunk.name ? absl::Status(code, "no") : absl::OkStatus();
  });
  SeededRandom random(1);
  CHECK(UploadBlob(server, random, "bytes").status().code() == code);
}

TEST_CASE("A contribution that is not needed is not sent") {
  LocalServer server;
  const auto verdict = GENERATE(v1::StartUploadResponse::NOT_NEEDED, v1::StartUploadResponse::LEASE_LOST);
  server.set_upload_verdict(verdict);
  const auto outcome = UploadContribution(
      server, {.bytes = "a contribution", .request_id = "request", .task = "r-1/0", .lease_token = "token"});
  REQUIRE(outcome.ok());
  CHECK(outcome->verdict == verdict);
  CHECK(server.num_calls(kWriteChunk.name) == 0);
}

TEST_CASE("A contribution that is needed is sent and named for the result") {
  LocalServer server;
  const auto outcome = UploadContribution(
      server, {.bytes = "a contribution", .request_id = "request", .task = "r-1/0", .lease_token = "token"});
  REQUIRE(outcome.ok());
  CHECK(outcome->verdict == v1::StartUploadResponse::SEND);
  CHECK(outcome->upload_id == "request");
}

TEST_CASE("A sequence dropped in mid-call leaves its messages to the caller") {
  auto upload = std::make_unique<UploadSession>(UploadParams{.bytes = "bytes", .request_id = "request"});
  const CallSequence::NextCall call = upload->Next();
  upload.reset();
  CHECK(call.method == kStartUpload.name);
  CHECK(static_cast<const v1::StartUploadRequest&>(*call.request).size_bytes() == 5);
  CHECK(call.response != nullptr);
}

class RowsFixture {
 public:
  RowsFixture() {
    NamedTensor w{.name = "w", .dtype = v1::INT32, .shape = {10, 4}};
    for (int32_t i = 0; i < 40; ++i) w.data.append(reinterpret_cast<const char*>(&i), 4);
    NamedTensor b{.name = "b", .dtype = v1::INT32, .shape = {10}};
    b.data = w.data.substr(0, 40);
    file_ = EncodeSafetensors(std::vector<NamedTensor>{w, b}, {});
    SeededRandom random(1);
    digest_ = UploadBlob(server_, random, file_).value();
  }

 protected:
  static v1::RowSelection Rows(const char* tensor, std::vector<int64_t> rows) {
    v1::RowSelection selection;
    selection.set_tensor(tensor);
    selection.mutable_rows()->Add(rows.begin(), rows.end());
    return selection;
  }
  static v1::RowSelection All(const char* tensor) {
    v1::RowSelection selection;
    selection.set_tensor(tensor);
    selection.set_all(true);
    return selection;
  }
  static std::vector<int32_t> Values(const NamedTensor& tensor) {
    const auto* values = reinterpret_cast<const int32_t*>(tensor.data.data());
    return {values, values + tensor.data.size() / 4};
  }

  LocalServer server_;
  std::string file_;
  std::string digest_;
};

TEST_CASE_METHOD(RowsFixture, "Selected rows come in the order asked for, however the server cuts its answer") {
  server_.set_answer_bytes_max(GENERATE(16, 32, 1 << 20));
  const auto tensors = SelectRows(server_, digest_, {Rows("w", {7, 0, 7}), All("b")});
  REQUIRE(tensors.ok());
  REQUIRE(tensors->size() == 2);
  CHECK((*tensors)[0].name == "w");
  CHECK((*tensors)[0].shape == std::vector<int64_t>{3, 4});
  CHECK(Values((*tensors)[0]) == std::vector<int32_t>{28, 29, 30, 31, 0, 1, 2, 3, 28, 29, 30, 31});
  CHECK((*tensors)[1].shape == std::vector<int64_t>{10});
  CHECK(Values((*tensors)[1]) == std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE_METHOD(RowsFixture, "No rows can be selected, too") {
  const auto tensors = SelectRows(server_, digest_, {Rows("w", {})});
  REQUIRE(tensors.ok());
  CHECK((*tensors)[0].shape == std::vector<int64_t>{0, 4});
  CHECK(SelectRows(server_, digest_, {}).value().empty());
  // First of all, on a page of its own.
  const auto some = SelectRows(server_, digest_, {Rows("w", {}), Rows("w", {1})});
  INFO(some.status().ToString());
  REQUIRE(some.ok());
  CHECK((*some)[0].shape == std::vector<int64_t>{0, 4});
  CHECK((*some)[1].shape == std::vector<int64_t>{1, 4});
}

// Answers one SelectRows with what the test says.
absl::Status JoinAnswer(const std::function<void(v1::SelectRowsResponse&)>& fill) {
  v1::RowSelection selection;
  selection.set_tensor("w");
  selection.add_rows(3);
  selection.add_rows(4);
  RowFetch fetch("digest", {selection});
  const CallSequence::NextCall call = fetch.Next();
  auto& response = static_cast<v1::SelectRowsResponse&>(*call.response);
  v1::SelectRowsResponse::Piece& piece = *response.add_pieces();
  piece.mutable_rows()->set_dtype(v1::INT32);
  piece.mutable_rows()->add_shape(2);
  piece.mutable_rows()->set_data("12345678");
  fill(response);
  fetch.OnDone(absl::OkStatus());
  CHECK(fetch.done());
  return fetch.status();
}

TEST_CASE("An answer with rows that does not add up is refused and never becomes a tensor") {
  CHECK(JoinAnswer([](auto&) {}).ok());
  const auto refused = [](const std::function<void(v1::SelectRowsResponse&)>& fill) {
    return JoinAnswer(fill).code() == absl::StatusCode::kDataLoss;
  };
  CHECK(refused([](auto& response) { response.mutable_pieces(0)->set_first_row(1); }));
  CHECK(refused([](auto& response) { response.mutable_pieces(0)->set_selection(1); }));
  CHECK(refused([](auto& response) { response.mutable_pieces(0)->mutable_rows()->set_data("1234567"); }));
  CHECK(refused([](auto& response) { response.mutable_pieces(0)->mutable_rows()->set_shape(0, 1); }));
  CHECK(refused([](auto& response) { response.mutable_pieces(0)->mutable_rows()->set_shape(0, -2); }));
  CHECK(refused([](auto& response) { response.mutable_pieces(0)->mutable_rows()->clear_shape(); }));
  CHECK(refused([](auto& response) { response.clear_pieces(); }));
  CHECK(refused([](auto& response) {
    response.clear_pieces();
    response.set_next_cursor("on");
  }));
  CHECK(refused([](auto& response) {
    v1::SelectRowsResponse::Piece& piece = *response.add_pieces();
    piece = response.pieces(0);
    piece.set_first_row(2);
    piece.mutable_rows()->set_dtype(v1::FLOAT32);
  }));
}

// A server that has no end: `answer` fills the answer to the n-th request.
absl::Status FetchFromEndlessServer(v1::RowSelection selection, int64_t bytes_max,
                                    const std::function<void(int n, v1::SelectRowsResponse&)>& answer) {
  selection.set_tensor("w");
  RowFetch fetch("digest", {selection}, bytes_max);
  int n = 0;
  while (!fetch.done() && n < 1000) {
    const CallSequence::NextCall call = fetch.Next();
    auto& response = static_cast<v1::SelectRowsResponse&>(*call.response);
    response.set_next_cursor(std::to_string(n + 1));
    answer(n++, response);
    fetch.OnDone(absl::OkStatus());
  }
  INFO(n << " calls");
  CHECK(fetch.done());
  CHECK(fetch.bytes_received() <= bytes_max);
  return fetch.status();
}

void AddPiece(v1::SelectRowsResponse& response, int64_t first_row, int64_t num_rows, int64_t row_bytes) {
  v1::SelectRowsResponse::Piece& piece = *response.add_pieces();
  piece.set_first_row(first_row);
  piece.mutable_rows()->set_dtype(v1::UINT8);
  piece.mutable_rows()->add_shape(num_rows);
  piece.mutable_rows()->add_shape(row_bytes);
  piece.mutable_rows()->set_data(std::string(static_cast<size_t>(num_rows * row_bytes), 'd'));
}

TEST_CASE(
    "A server that never ends its pages of rows is refused: by the rows asked for, the bytes taken, or progress") {
  v1::RowSelection two;
  two.add_rows(3);
  two.add_rows(4);
  const absl::Status more =
      FetchFromEndlessServer(two, 1 << 20, [](int n, auto& response) { AddPiece(response, n, 1, 4); });
  CHECK(more.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(more.message()), Catch::Contains("\"w\"") && Catch::Contains("2 were asked for"));

  v1::RowSelection all;
  all.set_all(true);
  const absl::Status bytes =
      FetchFromEndlessServer(all, 1000, [](int n, auto& response) { AddPiece(response, 10 * n, 10, 40); });
  CHECK(bytes.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(bytes.message()), Catch::Contains("more than 1000 bytes"));

  // Pages of no rows, and of rows that have no bytes.
  for (const int64_t num_rows : {0, 7}) {
    const absl::Status nothing = FetchFromEndlessServer(
        all, 1000, [&](int n, auto& response) { AddPiece(response, n * num_rows, num_rows, 0); });
    CHECK(nothing.code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(nothing.message()), Catch::Contains("bring no more of the selected rows"));
  }
  const absl::Status most = FetchFromEndlessServer(all, 1000, [&](int, auto& response) {
    AddPiece(response, 0, 1, 0);
    response.mutable_pieces(0)->mutable_rows()->set_shape(0, std::numeric_limits<int64_t>::max());
    AddPiece(response, std::numeric_limits<int64_t>::max(), 1, 0);
  });
  CHECK(most.code() == absl::StatusCode::kDataLoss);
}

TEST_CASE_METHOD(RowsFixture,
                 "Very many rows are asked for in windows, each of which travels again with its pages only") {
  std::vector<int64_t> rows;
  std::vector<int32_t> expected;
  for (int64_t i = 0; i < 2 * RowFetch::kWindowRows + 5; ++i) {
    rows.push_back(i * 7 % 10);
    expected.push_back(static_cast<int32_t>(rows.back()));
  }
  int64_t largest = 0;
  class Listening final : public Transport {
   public:
    Listening(Transport& inner, int64_t& largest) : inner_(inner), largest_(largest) {}
    void CallMethod(std::string_view method, const google::protobuf::Message& request,
                    google::protobuf::Message* response, const CallOptions& options, Done done) override {
      int64_t num_rows = 0;
      for (const auto& selection : static_cast<const v1::SelectRowsRequest&>(request).selections()) {
        num_rows += selection.rows_size();
      }
      largest_ = std::max(largest_, num_rows);
      inner_.CallMethod(method, request, response, options, std::move(done));
    }

   private:
    Transport& inner_;
    int64_t& largest_;
  } transport(server_, largest);
  // The second window begins within the second selection.
  const auto tensors = SelectRows(transport, digest_, {Rows("w", {1, 2}), Rows("b", rows), Rows("w", {}), All("w")});
  INFO(tensors.status().ToString());
  REQUIRE(tensors.ok());
  CHECK((*tensors)[0].shape == std::vector<int64_t>{2, 4});
  CHECK((*tensors)[1].shape == std::vector<int64_t>{static_cast<int64_t>(rows.size())});
  CHECK(Values((*tensors)[1]) == expected);
  CHECK((*tensors)[2].shape == std::vector<int64_t>{0, 4});
  CHECK((*tensors)[3].shape == std::vector<int64_t>{10, 4});
  CHECK(largest == RowFetch::kWindowRows);
}

TEST_CASE("A server that loses the bytes of an upload again and again is given up") {
  LocalServer server;
  server.set_answer_bytes_max(1000);
  int num_chunks = 0;
  server.set_fault([&](std::string_view method, bool is_answer) {
    // It takes a chunk and has lost it when the next comes.
    if (method == kWriteChunk.name && !is_answer && ++num_chunks % 2 == 0 && num_chunks < 1000) server.LoseUploads(0);
    return absl::OkStatus();
  });
  SeededRandom random(1);
  const auto digest = UploadBlob(server, random, SomeBytes(4500));
  CHECK(absl::IsInternal(digest.status()));
  CHECK_THAT(std::string(digest.status().message()), Catch::Contains("again and again"));
  CHECK(num_chunks < 100);
}

TEST_CASE("A blob or an aggregate larger than its reader takes is refused by its size, before it is read") {
  LocalServer server;
  SeededRandom random(1);
  const auto digest = UploadBlob(server, random, SomeBytes(4500));
  REQUIRE(digest.ok());
  const auto blob = ReadBlob(server, *digest, 4499);
  CHECK(absl::IsResourceExhausted(blob.status()));
  CHECK_THAT(std::string(blob.status().message()), Catch::Contains("4500 bytes") && Catch::Contains("4499"));
  CHECK(ReadBlob(server, *digest, 4500).ok());

  // Its claim alone.
  class Claiming final : public Transport {
   public:
    void CallMethod(std::string_view, const google::protobuf::Message&, google::protobuf::Message* response,
                    const CallOptions&, Done done) override {
      REQUIRE(++num_calls < 1000);
      auto& answer = static_cast<v1::ReadAggregateResponse&>(*response);
      answer.set_size_bytes(std::numeric_limits<int64_t>::max());
      answer.set_data("1");
      done(absl::OkStatus());
    }
    int num_calls = 0;
  } endless;
  const auto aggregate = ReadAggregate(endless, "r-1");
  CHECK(absl::IsResourceExhausted(aggregate.status()));
  CHECK_THAT(std::string(aggregate.status().message()), Catch::Contains("r-1"));
}

TEST_CASE("A blob whose bytes changed on the way is refused") {
  BlobFetch fetch(Sha256Hex("what was asked for"));
  const CallSequence::NextCall call = fetch.Next();
  auto& response = static_cast<v1::ReadBlobResponse&>(*call.response);
  response.set_data("what was delivered");
  response.set_size_bytes(18);
  fetch.OnDone(absl::OkStatus());
  CHECK(fetch.done());
  CHECK(fetch.status().code() == absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace sheaf
