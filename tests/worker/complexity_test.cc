// What a server's answers cost a worker, and whoever else uses the C++ client: time in proportion to what they hold,
// also where the server is hostile, or broken. One row for each way in.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>

#include "aggregation/wire/safetensors.h"
#include "base/checksum.h"
#include "base/retry_hint.h"
#include "probe/history.h"
#include "probe/one_hot.h"
#include "sdk/cpp/client/blob_client.h"
#include "sdk/cpp/program/released_rows.h"
#include "tests/cpu_time.h"
#include "tests/worker/loop_harness.h"

namespace sheaf {
namespace {

// Drives `sequence` against `answer`, which fills the answer to each call.
template <typename Answer>
void Drive(CallSequence& sequence, Answer answer) {
  while (!sequence.done()) {
    const CallSequence::NextCall call = sequence.Next();
    answer(call);
    sequence.OnDone(absl::OkStatus());
  }
}

// Rows of four bytes, of which a window has 256 and a page 50.
void FetchRows(int64_t n) {
  constexpr int64_t kPage = 50;
  v1::RowSelection selection;
  selection.set_tensor("w");
  for (int64_t i = 0; i < n; ++i) selection.add_rows(i);
  RowFetch fetch("digest", {selection}, kReadBytesMax, 256);
  Drive(fetch, [&](const CallSequence::NextCall& call) {
    const auto& request = static_cast<const v1::SelectRowsRequest&>(*call.request);
    auto& response = static_cast<v1::SelectRowsResponse&>(*call.response);
    const int64_t first = request.cursor().empty() ? 0 : std::stoll(request.cursor());
    const int64_t num_rows = std::min<int64_t>(kPage, request.selections(0).rows_size() - first);
    v1::SelectRowsResponse::Piece& piece = *response.add_pieces();
    piece.set_first_row(first);
    piece.mutable_rows()->set_dtype(v1::INT32);
    piece.mutable_rows()->add_shape(num_rows);
    piece.mutable_rows()->set_data(std::string(static_cast<size_t>(4 * num_rows), 'd'));
    if (first + num_rows < request.selections(0).rows_size())
      response.set_next_cursor(std::to_string(first + num_rows));
  });
  REQUIRE(fetch.status().ok());
}

// A worker with one lease, and an answer that is worked through again and again.
std::function<void()> Answering(v1::SyncResponse response) {
  // It asks on, as it has room for another.
  auto test = std::make_shared<LoopHarness>(WorkerOptions{.worker = "w", .concurrency = 2});
  test->AnswerLastSync(Granting({"t"}, absl::Hours(1000)));
  return [test, response = std::move(response)] {
    test->Advance(absl::Seconds(1));
    test->AnswerLastSync(response);
  };
}

struct Row {
  int64_t size;
  WorkOfSize make;
};

const std::map<std::string, Row>& Rows() {
  static const std::map<std::string, Row> rows = {
      {"a Sync's answer: leases, each with another token",
       {500,
        [](int64_t n) {
          std::vector<std::string> tasks;
          for (int64_t i = 0; i < n; ++i) tasks.push_back(fmt::format("t{}", i));
          return [response = Granting(tasks)] {
            LoopHarness test(WorkerOptions{.worker = "w"});
            test.AnswerLastSync(response);
          };
        }}},
      {"a Sync's answer: the same lease again and again",
       {500,
        [](int64_t n) {
          return Answering(Granting(std::vector<std::string>(static_cast<size_t>(n), "t"), absl::Hours(1000)));
        }}},
      {"a Sync's answer: verdicts on results of nobody",
       {500,
        [](int64_t n) {
          v1::SyncResponse response;
          for (int64_t i = 0; i < n; ++i) response.add_verdicts()->set_lease_token(fmt::format("token-{}", i));
          return Answering(response);
        }}},
      {"a Sync's answer: updates of leases of nobody",
       {500,
        [](int64_t n) {
          v1::SyncResponse response;
          for (int64_t i = 0; i < n; ++i) response.add_held()->set_lease_token(fmt::format("token-{}", i));
          return Answering(response);
        }}},
      {"a blob, range by range",
       {200,
        [](int64_t n) {
          const std::string bytes(static_cast<size_t>(1000 * n), 'd');
          return [bytes, digest = Sha256Hex(bytes)] {
            BlobFetch fetch(digest);
            Drive(fetch, [&](const CallSequence::NextCall& call) {
              const auto& request = static_cast<const v1::ReadBlobRequest&>(*call.request);
              auto& response = static_cast<v1::ReadBlobResponse&>(*call.response);
              response.set_data(bytes.substr(static_cast<size_t>(request.offset()), 1000));
              response.set_size_bytes(static_cast<int64_t>(bytes.size()));
            });
            REQUIRE(fetch.status().ok());
          };
        }}},
      {"an upload, chunk by chunk",
       {200,
        [](int64_t n) {
          return [bytes = std::string(static_cast<size_t>(1000 * n), 'd')] {
            UploadSession upload({.bytes = bytes, .digest = std::string(64, 'a'), .request_id = "request"});
            Drive(upload, [](const CallSequence::NextCall& call) {
              if (auto* started = dynamic_cast<v1::StartUploadResponse*>(call.response.get())) {
                started->set_verdict(v1::StartUploadResponse::SEND);
                started->set_chunk_bytes_max(1000);
              } else if (auto* written = dynamic_cast<v1::WriteChunkResponse*>(call.response.get())) {
                const auto& request = static_cast<const v1::WriteChunkRequest&>(*call.request);
                written->set_committed_bytes(request.offset() + static_cast<int64_t>(request.data().size()));
              }
            });
            REQUIRE(upload.status().ok());
          };
        }}},
      {"rows of a broadcast, page by page", {1000, [](int64_t n) { return [n] { FetchRows(n); }; }}},
      {"rows of a broadcast, very few on a page",
       {100,
        [](int64_t n) {
          v1::RowSelection selection;
          selection.set_all(true);
          return [n, selection] {
            RowFetch fetch("digest", {selection});
            int64_t row = 0;
            Drive(fetch, [&](const CallSequence::NextCall& call) {
              auto& response = static_cast<v1::SelectRowsResponse&>(*call.response);
              v1::SelectRowsResponse::Piece& piece = *response.add_pieces();
              piece.set_first_row(row);
              piece.mutable_rows()->set_dtype(v1::INT32);
              piece.mutable_rows()->add_shape(1);
              piece.mutable_rows()->set_data("1234");
              if (++row < n) response.set_next_cursor(std::to_string(row));
            });
            REQUIRE(fetch.status().ok());
          };
        }}},
      {"a retry hint of many digits",
       {10'000,
        [](int64_t n) {
          absl::Status status = absl::ResourceExhaustedError("no");
          status.SetPayload("sheaf/retry-after-ms", absl::Cord(std::string(static_cast<size_t>(n), '1')));
          return [status] { REQUIRE_FALSE(RetryAfter(status).has_value()); };
        }}},
      {"the rows of an aggregate",
       {2'000,
        [](int64_t n) {
          std::vector<int64_t> indices;
          for (int64_t i = 0; i < n; ++i) indices.push_back(i);
          const NamedTensor index{
              .name = "rows.indices",
              .dtype = v1::INT64,
              .shape = {n, 1},
              .data = std::string(reinterpret_cast<const char*>(indices.data()), indices.size() * 8)};
          const NamedTensor values{.name = "rows.values",
                                   .dtype = v1::FLOAT32,
                                   .shape = {n, 4},
                                   .data = std::string(static_cast<size_t>(16 * n), '\0')};
          const auto file =
              std::make_shared<std::string>(EncodeSafetensors(std::vector<NamedTensor>{index, values}, {}));
          return [file, n] {
            const auto view = SafetensorsView::Parse(*file);
            REQUIRE(view.ok());
            REQUIRE(ReadReleasedRows(*view, "rows", {.num_rows = n, .width = 4}).ok());
          };
        }}},
      {"a history: verdicts on one round's tasks",
       {60,
        [](int64_t n) {
          std::vector<std::string> tasks;
          for (int64_t i = 0; i < n; ++i) tasks.push_back(fmt::format("r-1/{}", i));
          return [tasks, counts = std::vector<int64_t>(static_cast<size_t>(n), 1)] {
            History history;
            for (const std::string& task : tasks) {
              history.Attempted(task, "token");
              history.Acknowledged(task, "token");
            }
            REQUIRE(history.Check("r-1", counts).ok());
          };
        }}},
      {"a lease: outputs that are to be filled",
       {20,
        [](int64_t n) {
          v1::AggregateSpec spec;
          for (int64_t i = 0; i < n; ++i) {
            v1::OutputSpec& output = *spec.add_outputs();
            output.set_name(fmt::format("output-{}", i));
            output.set_operator_("sum");
            output.set_dtype(v1::FLOAT32);
            output.add_dense_shape(10);
          }
          return [spec] { REQUIRE(OneHotContribution(spec, 0, OneHotForm::kMeeting).ok()); };
        }}},
  };
  return rows;
}

TEST_CASE("Ten times as much in a server's answer takes a client ten times as long") {
  for (const auto& [name, row] : Rows()) {
    INFO(name);
    CHECK(CpuRatio(row.make, row.size) <= kLinear);
  }
}

}  // namespace
}  // namespace sheaf
