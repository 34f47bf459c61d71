// Large bytes: uploads that can be resumed, broadcasts that are read in ranges.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <optional>
#include <string>

#include "aggregation/wire/safetensors.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/random.h"
#include "server/core/core.h"
#include "server/handlers/transfer_handlers.h"
#include "server/handlers/upload_handlers.h"
#include "storage/memory/memory_payload_store.h"
#include "storage/memory/memory_task_store.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

// Everything at once: there is no store to commit to.
class ImmediateExecutor final : public Executor {
 public:
  explicit ImmediateExecutor(const Clock& clock) : clock_(clock) {}
  void Post(Event event) override { event(clock_.Now()); }
  void Defer(Deferred deferred) override { deferred(absl::OkStatus()); }

 private:
  const Clock& clock_;
};

Limits SmallLimits() {
  Limits limits;
  limits.chunk_bytes_max = 10;
  limits.broadcast_bytes_max = 1000;
  limits.contribution_bytes_max = 500;
  limits.safetensors_header_bytes_max = 300;
  limits.safetensors_tensors_max = 3;
  limits.safetensors_name_bytes_max = 16;
  return limits;
}

class ABlobService {
 public:
  PayloadStore& payloads() { return payloads_; }
  TransferHandlers& transfers() { return transfers_; }

  absl::StatusOr<v1::StartUploadResponse> Start(const std::string& bytes, const std::string& request_id = "request") {
    v1::StartUploadRequest request;
    request.set_request_id(request_id);
    request.set_size_bytes(static_cast<int64_t>(bytes.size()));
    request.set_digest(Sha256Hex(bytes));
    return Start(request);
  }
  absl::StatusOr<v1::StartUploadResponse> Start(const v1::StartUploadRequest& request) {
    std::optional<absl::StatusOr<v1::StartUploadResponse>> answer;
    uploads_.StartUpload(request, {.now = clock_.Now()}, [&](auto response) { answer = std::move(response); });
    REQUIRE(answer.has_value());
    return *answer;
  }
  // The committed size, or the error.
  absl::StatusOr<int64_t> Write(const std::string& upload, int64_t offset, const std::string& data) {
    v1::WriteChunkRequest request;
    request.set_upload_id(upload);
    request.set_offset(offset);
    request.set_data(data);
    std::vector<absl::StatusOr<v1::WriteChunkResponse>> answers;
    transfers_.WriteChunk(request, [&](auto response) { answers.push_back(std::move(response)); });
    REQUIRE(answers.size() == 1);
    if (!answers[0].ok()) return answers[0].status();
    return answers[0]->committed_bytes();
  }
  bool WriteAll(const std::string& upload, const std::string& bytes) {
    for (size_t at = 0; at < bytes.size(); at += 10) {
      if (!Write(upload, static_cast<int64_t>(at), bytes.substr(at, 10)).ok()) return false;
    }
    return true;
  }
  absl::Status Finish(const std::string& upload) {
    v1::FinishUploadRequest request;
    request.set_upload_id(upload);
    std::optional<absl::Status> answer;
    uploads_.FinishUpload(request, [&](const auto& response) { answer = response.status(); });
    REQUIRE(answer.has_value());
    return *answer;
  }
  absl::StatusOr<std::string> Read(const std::string& digest, int64_t offset, int64_t length = 0) {
    v1::ReadBlobRequest request;
    request.set_digest(digest);
    request.set_offset(offset);
    request.set_length(length);
    const auto response = transfers_.ReadBlob(request, core_.limits().chunk_bytes_max);
    if (!response.ok()) return response.status();
    return response->data();
  }

 private:
  ManualClock clock_;
  SeededRandom random_{1};
  MemoryTaskStore store_;
  MemoryPayloadStore payloads_;
  ImmediateExecutor executor_{clock_};
  Core core_{store_, payloads_, executor_, random_, {.limits = SmallLimits(), .data_directory = ""}};
  UploadHandlers uploads_{core_, payloads_};
  TransferHandlers transfers_{payloads_, core_.open_blobs(), core_.limits()};
};

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST_CASE("A broadcast is uploaded in chunks and can then be read in ranges") {
  ABlobService service;
  const std::string bytes = "a broadcast of 25 bytes !";
  const auto started = service.Start(bytes);
  REQUIRE(started.ok());
  CHECK(started->verdict() == v1::StartUploadResponse::SEND);
  CHECK(started->committed_bytes() == 0);
  CHECK(started->chunk_bytes_max() == 10);
  CHECK(*service.Write(started->upload_id(), 0, bytes.substr(0, 10)) == 10);
  CHECK(*service.Write(started->upload_id(), 10, bytes.substr(10, 10)) == 20);
  CHECK(*service.Write(started->upload_id(), 20, bytes.substr(20)) == 25);
  REQUIRE(service.Finish(started->upload_id()).ok());

  const std::string digest = Sha256Hex(bytes);
  CHECK(*service.Read(digest, 0) == bytes.substr(0, 10));
  CHECK(*service.Read(digest, 3, 4) == bytes.substr(3, 4));
  CHECK(*service.Read(digest, 20, 100) == bytes.substr(20));
  CHECK(*service.Read(digest, 25) == "");
}

TEST_CASE("Starting an upload again continues where it was") {
  ABlobService service;
  const std::string bytes = "0123456789abcde";
  const std::string upload = service.Start(bytes)->upload_id();
  REQUIRE(service.Write(upload, 0, bytes.substr(0, 10)).ok());
  const auto again = service.Start(bytes);
  REQUIRE(again.ok());
  CHECK(again->upload_id() == upload);
  CHECK(again->committed_bytes() == 10);

  v1::QueryUploadRequest query;
  query.set_upload_id(upload);
  const auto answer = service.transfers().QueryUpload(query);
  REQUIRE(answer.ok());
  CHECK(answer->committed_bytes() == 10);
  CHECK(answer->size_bytes() == 15);
}

TEST_CASE("Two callers that upload the same broadcast do not disturb each other") {
  ABlobService service;
  const std::string bytes = "0123456789";
  const std::string first = service.Start(bytes, "one")->upload_id();
  const std::string second = service.Start(bytes, "two")->upload_id();
  CHECK(first != second);
  REQUIRE(service.Write(first, 0, bytes).ok());
  REQUIRE(service.Write(second, 0, "01234").ok());
  CHECK(service.Finish(first).ok());
  CHECK(*service.Write(second, 5, "56789") == 10);
  CHECK(service.Finish(second).ok());
}

TEST_CASE("A broadcast that is there already need not be sent") {
  ABlobService service;
  REQUIRE(service.payloads().PutBlob("known").ok());
  const auto started = service.Start("known");
  REQUIRE(started.ok());
  CHECK(started->verdict() == v1::StartUploadResponse::ALREADY_STORED);
}

TEST_CASE("A chunk that comes twice is acknowledged again and changes nothing") {
  ABlobService service;
  const std::string bytes = "0123456789abcde";
  const std::string upload = service.Start(bytes)->upload_id();
  CHECK(*service.Write(upload, 0, bytes.substr(0, 10)) == 10);
  CHECK(*service.Write(upload, 0, bytes.substr(0, 10)) == 10);
  CHECK(*service.Write(upload, 10, bytes.substr(10)) == 15);
  CHECK(service.Finish(upload).ok());
}

TEST_CASE("A chunk that would leave a gap is refused with the committed size") {
  ABlobService service;
  const std::string upload = service.Start("0123456789abcde")->upload_id();
  REQUIRE(service.Write(upload, 0, "0123").ok());
  const auto gap = service.Write(upload, 8, "89");
  CHECK(gap.status().code() == absl::StatusCode::kOutOfRange);
  CHECK_THAT(Text(gap.status()), Contains("4"));
}

TEST_CASE("A chunk is refused if it is too large, empty, or runs past the announced size") {
  ABlobService service;
  const std::string upload = service.Start("0123456789abcde")->upload_id();
  const auto large = service.Write(upload, 0, "0123456789a");
  CHECK(large.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(Text(large.status()), Contains("1 to 10 bytes (chunk_bytes_max)"));
  CHECK(service.Write(upload, 0, "").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(service.Write(upload, -1, "0").status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(service.Write(upload, 10, "abcdef").status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(service.Write(upload, std::numeric_limits<int64_t>::max(), "0").status().code() ==
        absl::StatusCode::kResourceExhausted);
}

TEST_CASE("An upload whose bytes are missing cannot be finished, and can be continued") {
  ABlobService service;
  const std::string bytes = "0123456789";
  const std::string upload = service.Start(bytes)->upload_id();
  REQUIRE(service.Write(upload, 0, "01234").ok());
  CHECK(service.Finish(upload).code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(service.Write(upload, 5, "56789").ok());
  CHECK(service.Finish(upload).ok());
}

TEST_CASE("An upload with the wrong bytes is gone once it is finished, and can be started again") {
  ABlobService service;
  const std::string bytes = "0123456789";
  const std::string upload = service.Start(bytes)->upload_id();
  REQUIRE(service.Write(upload, 0, "0123456780").ok());
  CHECK(service.Finish(upload).code() == absl::StatusCode::kDataLoss);
  CHECK(service.Finish(upload).code() == absl::StatusCode::kNotFound);
  const auto again = service.Start(bytes);
  REQUIRE(again.ok());
  CHECK(again->committed_bytes() == 0);
  REQUIRE(service.Write(again->upload_id(), 0, bytes).ok());
  CHECK(service.Finish(again->upload_id()).ok());
}

TEST_CASE("Finishing a broadcast twice is fine: the first answer may have been lost") {
  ABlobService service;
  const std::string upload = service.Start("0123")->upload_id();
  REQUIRE(service.Write(upload, 0, "0123").ok());
  CHECK(service.Finish(upload).ok());
  CHECK(service.Finish(upload).ok());
}

TEST_CASE("An upload that is malformed or too large is refused before it begins") {
  ABlobService service;
  v1::StartUploadRequest request;
  request.set_request_id("request");
  request.set_size_bytes(10);
  request.set_digest("../../etc/passwd");
  CHECK(service.Start(request).status().code() == absl::StatusCode::kInvalidArgument);
  request.set_digest(Sha256Hex("x"));
  request.set_size_bytes(-1);
  CHECK(service.Start(request).status().code() == absl::StatusCode::kInvalidArgument);
  request.set_size_bytes(1001);
  const auto large = service.Start(request);
  CHECK(large.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(Text(large.status()), Contains("broadcast_bytes_max = 1000"));
  request.set_size_bytes(501);
  request.mutable_contribution()->set_task("r-aaaaaaaa/0");
  CHECK_THAT(Text(service.Start(request).status()), Contains("contribution_bytes_max = 500"));
  request.set_size_bytes(10);
  request.clear_request_id();
  CHECK(service.Start(request).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("A contribution for a task that does not exist is not uploaded") {
  ABlobService service;
  v1::StartUploadRequest request;
  request.set_request_id("request");
  request.set_size_bytes(10);
  request.set_digest(Sha256Hex("x"));
  request.mutable_contribution()->set_task("r-aaaaaaaa/0");
  request.mutable_contribution()->set_lease_token("token");
  CHECK(service.Start(request).status().code() == absl::StatusCode::kNotFound);
  request.mutable_contribution()->set_task("nonsense");
  CHECK(service.Start(request).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("An upload id that the server never gave is not found, whatever it looks like") {
  ABlobService service;
  const std::string digest = Sha256Hex("x");
  for (const std::string& id :
       {std::string(), std::string("../../blobs/x"), std::string(99, 'b'), "b-" + digest + "-" + std::string(32, '/'),
        "b-" + digest + "-" + std::string(32, '0')}) {
    INFO("upload " << id);
    CHECK(service.Write(id, 0, "0").status().code() == absl::StatusCode::kNotFound);
    CHECK(service.Finish(id).code() == absl::StatusCode::kNotFound);
  }
}

TEST_CASE("A blob is refused outside its bounds, and is not found once it is deleted") {
  ABlobService service;
  const std::string digest = *service.payloads().PutBlob("0123456789");
  CHECK(*service.Read(digest, 0) == "0123456789");
  CHECK(service.Read(digest, 11).status().code() == absl::StatusCode::kOutOfRange);
  CHECK(service.Read(digest, -1).status().code() == absl::StatusCode::kOutOfRange);
  CHECK(service.Read(digest, 0, -1).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(service.Read("0123", 0).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(service.payloads().DeleteBlob(digest).ok());
  const auto gone = service.Read(digest, 0);
  CHECK(gone.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(Text(gone.status()), Contains(digest));
}

std::string SafetensorsFile(const std::string& header, const std::string& data = "") {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data;
}

TEST_CASE("A broadcast that is no proper safetensors file is refused when its upload is finished, and says why") {
  const std::string good = SafetensorsFile(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "abcd");
  // Types that this server cannot select rows of are the workers' to read.
  const std::string narrow = SafetensorsFile(R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})", "abcd");
  // Other bytes, some of them with a brace behind eight bytes.
  const std::string text = "01234567{\"text\": 1}", opaque = std::string("\x00\xff\x00", 3) + "anything", few = "1";
  for (const std::string& bytes : {good, narrow, text, opaque, few}) {
    ABlobService service;
    const std::string upload = service.Start(bytes)->upload_id();
    REQUIRE(service.WriteAll(upload, bytes));
    CHECK(service.Finish(upload).ok());
    CHECK(service.Start(bytes)->verdict() == v1::StartUploadResponse::ALREADY_STORED);
  }
  struct Bad {
    std::string bytes;
    std::string reason;
    absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  };
  std::string many = "{";
  for (char name = 'a'; name <= 'd'; ++name) {
    many += std::string(name == 'a' ? "" : ",") + '"' + name + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  for (const Bad& bad : {
           Bad{SafetensorsFile("{\"w\":1}"), "tensor 'w' is not described by an object"},
           Bad{SafetensorsFile("{]"), "not a JSON object"},
           Bad{good + "e", "bytes behind the last tensor"},
           Bad{good.substr(0, good.size() - 1), "outside the file"},
           Bad{good.substr(0, 20), "ends before its header does"},
           Bad{SafetensorsFile(many + "}"), "safetensors_tensors_max = 3", absl::StatusCode::kResourceExhausted},
           Bad{SafetensorsFile("{\"" + std::string(17, 'n') + "\":{}}"), "safetensors_name_bytes_max = 16",
               absl::StatusCode::kResourceExhausted},
           Bad{SafetensorsFile("{" + std::string(400, ' ') + "}"), "safetensors_header_bytes_max = 300",
               absl::StatusCode::kResourceExhausted},
       }) {
    ABlobService service;
    const std::string upload = service.Start(bad.bytes)->upload_id();
    REQUIRE(service.WriteAll(upload, bad.bytes));
    const absl::Status refused = service.Finish(upload);
    INFO(refused.ToString());
    CHECK(refused.code() == bad.code);
    CHECK_THAT(Text(refused), Contains(bad.reason));
    // It has not become a broadcast, and takes no room.
    CHECK_FALSE(service.payloads().HasBlob(Sha256Hex(bad.bytes)));
    CHECK(service.payloads().GetUploadUse("").num_uploads == 0);
    CHECK(service.Start(bad.bytes)->committed_bytes() == 0);
  }
}

TEST_CASE("The headers that are kept take no more memory than they may") {
  MemoryPayloadStore payloads;
  Limits limits;
  limits.open_header_bytes_max = 100'000;
  OpenBlobs open(payloads, limits);
  for (int i = 0; i < 20; ++i) {
    std::vector<NamedTensor> tensors;
    for (int t = 0; t < 100; ++t) tensors.push_back({fmt::format("{}-{}", i, t), v1::UINT8, {0}, ""});
    const auto blob = open.OpenTensors(*payloads.PutBlob(EncodeSafetensors(tensors, {})));
    REQUIRE(blob.ok());
    // It can be read, although others may have pushed it out.
    CHECK((*blob)->header().tensors().size() == 100);
    CHECK(open.header_bytes() >= (*blob)->header().memory_bytes());
    CHECK(open.header_bytes() <= limits.open_header_bytes_max);
  }
}

TEST_CASE("Rows are selected from a safetensors file and from nothing else") {
  ABlobService service;
  const std::string data(8, '\1');
  const std::string file = EncodeSafetensors(std::vector<TensorView>{{"w", v1::FLOAT32, {2, 1}, data}}, {});
  v1::SelectRowsRequest request;
  request.set_digest(*service.payloads().PutBlob(file));
  request.add_selections()->set_tensor("w");
  request.mutable_selections(0)->add_rows(1);
  const auto rows = service.transfers().SelectRows(request, 1 << 20);
  REQUIRE(rows.ok());
  CHECK(rows->pieces(0).rows().data() == data.substr(4));

  request.set_digest(*service.payloads().PutBlob("no tensors in here"));
  const auto refused = service.transfers().SelectRows(request, 1 << 20);
  CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(Text(refused.status()), Contains("not a safetensors file"));
}

}  // namespace
}  // namespace sheaf
