// A server whose turn has not come moves the bytes of uploads and broadcasts itself, as far as the owner lets the
// caller.
#include "server/handlers/local_transfers.h"

#include <fmt/format.h>
#include <poll.h>

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aggregation/wire/safetensors.h"
#include "base/checksum.h"
#include "sdk/cpp/client/blob_client.h"
#include "tests/server/waiting_server.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

std::string ManyBytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  return bytes;
}

// Of the owner's metrics, `sheaf_<name>{method="BlobService/<method>"...}`, all codes together.
double CountAt(Owner& owner, const std::string& name, const std::string& method) {
  const std::string text = owner.server().runtime().Metrics();
  const std::string label = fmt::format("BlobService/{}\"", method);
  double sum = 0;
  for (size_t line = 0; line < text.size();) {
    const size_t end = text.find('\n', line);
    const std::string each = text.substr(line, end - line);
    if (each.starts_with("sheaf_" + name + "{") && each.find(label) != std::string::npos) {
      sum += std::stod(each.substr(each.rfind(' ')));
    }
    line = end + 1;
  }
  return sum;
}

v1::ReadBlobRequest FirstBytes(const std::string& digest) {
  v1::ReadBlobRequest read;
  read.set_digest(digest);
  read.set_length(4);
  return read;
}

TEST_CASE("The bytes of a broadcast go between its callers and the store, and not through the owner") {
  Owner owner;
  WaitingServer waiting({}, owner.server().payloads());
  waiting.store().SetOwner(owner.contact());
  SystemRandom random;
  for (const bool by_http : {false, true}) {
    INFO((by_http ? "HTTP" : "gRPC"));
    const std::unique_ptr<Transport> transport = by_http ? waiting.ConnectByHttp() : waiting.Connect();
    const std::string bytes = ManyBytes((9 << 20) + (by_http ? 1 : 0));
    const std::string digest = Ok(UploadBlob(*transport, random, bytes));
    CHECK(digest == Sha256Hex(bytes));
    CHECK(Ok(ReadBlob(*transport, digest)) == bytes);
    CHECK(Ok(ReadBlob(owner.server().transport(), digest)) == bytes);
  }
  CHECK(CountAt(owner, "calls_total", "StartUpload") == 2);
  CHECK(CountAt(owner, "calls_total", "WriteChunk") == 0);
  CHECK(CountAt(owner, "calls_total", "FinishUpload") == 2);
  // What was read at the owner itself. Questions are answered with nothing.
  const double read_there = 2 * (9 << 20) + 1;
  CHECK(CountAt(owner, "call_answer_bytes_total", "ReadBlob") >= read_there);
  CHECK(CountAt(owner, "call_answer_bytes_total", "ReadBlob") < read_there + 10'000);
}

TEST_CASE("Rows of a broadcast are selected where the caller came") {
  Owner owner;
  WaitingServer waiting({}, owner.server().payloads());
  waiting.store().SetOwner(owner.contact());
  const std::unique_ptr<Transport> transport = waiting.Connect();
  SystemRandom random;
  const NamedTensor table{.name = "table", .dtype = v1::FLOAT32, .shape = {4, 2}, .data = ManyBytes(32)};
  const std::string file = EncodeSafetensors(std::vector<NamedTensor>{table}, {});
  const std::string digest = Ok(UploadBlob(*transport, random, file));
  v1::SelectRowsRequest select;
  select.set_digest(digest);
  auto& rows = *select.add_selections();
  rows.set_tensor("table");
  rows.add_rows(1);
  rows.add_rows(3);
  const auto here = Ok(BlockingCall(*transport, kSelectRows, select));
  const auto there = Ok(BlockingCall(owner.server().transport(), kSelectRows, select));
  CHECK(here.SerializeAsString() == there.SerializeAsString());
  CHECK(CountAt(owner, "calls_total", "SelectRows") == 1);
}

TEST_CASE("A server that waits refuses whom the owner refuses, in its words") {
  Owner owner;
  const std::string admin = CreateToken(owner.server().transport(), "admin", v1::OPERATOR);
  const SecretFile admin_file(admin, "admin");
  const std::unique_ptr<Transport> at_owner =
      OpenTransport(owner.server().address(), {.security = admin_file.security(), .own_connection = true});
  const std::string trainer = CreateToken(*at_owner, "trainer", v1::SUBMITTER);
  const std::string edge = CreateToken(*at_owner, "edge", v1::WORKER);
  const std::string watcher = CreateToken(*at_owner, "watcher", v1::VIEWER);
  v1::CreateTokenRequest elsewhere;
  elsewhere.set_request_id("elsewhere");
  elsewhere.set_name("elsewhere");
  elsewhere.add_roles(v1::WORKER);
  elsewhere.add_populations("islands");
  const std::string islander = Ok(BlockingCall(*at_owner, kCreateToken, elsewhere)).secret();
  TokenRecord record_of_islander = RecordOf(islander, "elsewhere", v1::WORKER);
  record_of_islander.populations = {"islands"};
  WaitingServer waiting({RecordOf(trainer, "trainer", v1::SUBMITTER), RecordOf(edge, "edge", v1::WORKER),
                         RecordOf(watcher, "watcher", v1::VIEWER), record_of_islander},
                        owner.server().payloads());
  waiting.store().SetOwner(owner.contact());
  std::vector<std::unique_ptr<SecretFile>> files;
  const auto as = [&](const std::string& secret) {
    files.push_back(std::make_unique<SecretFile>(secret, std::to_string(files.size())));
    return waiting.Connect(files.back()->security());
  };
  const std::unique_ptr<Transport> by_trainer = as(trainer);
  const std::unique_ptr<Transport> by_edge = as(edge);

  v1::StartUploadRequest start;
  const std::string bytes = ManyBytes(100);
  start.set_request_id("upload");
  start.set_size_bytes(100);
  start.set_digest(Sha256Hex(bytes));
  const std::string upload = Ok(BlockingCall(*by_trainer, kStartUpload, start)).upload_id();
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(upload);
  chunk.set_data(bytes);
  const absl::Status others = BlockingCall(*by_edge, kWriteChunk, chunk).status();
  CHECK(others.code() == absl::StatusCode::kPermissionDenied);
  CHECK_THAT(std::string(others.message()), Contains("was not started by edge"));
  CHECK(BlockingCall(*as(watcher), kWriteChunk, chunk).status().code() == absl::StatusCode::kPermissionDenied);
  chunk.set_offset(1);
  CHECK(BlockingCall(*by_trainer, kWriteChunk, chunk).status().code() == absl::StatusCode::kResourceExhausted);
  v1::FinishUploadRequest finish;
  finish.set_upload_id(upload);
  CHECK(BlockingCall(*by_trainer, kFinishUpload, finish).status().code() == absl::StatusCode::kFailedPrecondition);
  chunk.set_offset(0);
  CHECK(Ok(BlockingCall(*by_trainer, kWriteChunk, chunk)).committed_bytes() == 100);
  v1::QueryUploadRequest query;
  query.set_upload_id(upload);
  CHECK(Ok(BlockingCall(*by_trainer, kQueryUpload, query)).committed_bytes() == 100);
  CHECK(BlockingCall(*by_edge, kQueryUpload, query).status().code() == absl::StatusCode::kPermissionDenied);
  CHECK(BlockingCall(*by_trainer, kFinishUpload, finish).ok());
  // The one that was written is not among them.
  CHECK(CountAt(owner, "calls_total", "WriteChunk") == 3);

  v1::CreateRoundRequest create = ARound("round");
  create.mutable_spec()->set_broadcast_digest(start.digest());
  REQUIRE(BlockingCall(*by_trainer, kCreateRound, create).ok());
  const v1::ReadBlobRequest read = FirstBytes(start.digest());
  CHECK(Ok(BlockingCall(*by_edge, kReadBlob, read)).data() == bytes.substr(0, 4));
  // One was let, others are not.
  const absl::Status foreign = BlockingCall(*as(islander), kReadBlob, read).status();
  CHECK(foreign.code() == absl::StatusCode::kPermissionDenied);
  CHECK_THAT(std::string(foreign.message()), Contains("no round in a population"));
  CHECK(BlockingCall(*by_trainer, kReadBlob, read).status().code() == absl::StatusCode::kPermissionDenied);
  CHECK(BlockingCall(*by_edge, kReadBlob, FirstBytes(Sha256Hex("nothing"))).status().code() ==
        absl::StatusCode::kNotFound);
  CHECK(BlockingCall(*by_edge, kReadBlob, FirstBytes("no digest")).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("The owner is asked once a second whether a caller may read, and chunks need it not at all") {
  Owner owner;
  WaitingServer waiting({}, owner.server().payloads());
  waiting.store().SetOwner(owner.contact());
  const std::unique_ptr<Transport> transport = waiting.Connect();
  SystemRandom random;
  const std::string digest = Ok(UploadBlob(*transport, random, ManyBytes(100)));
  v1::StartUploadRequest start;
  start.set_request_id("next");
  start.set_size_bytes(4);
  start.set_digest(Sha256Hex("more"));
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(Ok(BlockingCall(*transport, kStartUpload, start)).upload_id());
  chunk.set_data("more");

  const SystemClock clock;
  const absl::Time asked = clock.Now();
  CHECK(BlockingCall(*transport, kReadBlob, FirstBytes(digest)).ok());
  waiting.store().SetOwner(std::nullopt);
  // A machine that stood still in between has nothing to say of it.
  const bool is_read = BlockingCall(*transport, kReadBlob, FirstBytes(digest)).ok();
  CHECK((is_read || clock.Now() - asked >= absl::Seconds(1)));
  CHECK(Ok(BlockingCall(*transport, kWriteChunk, chunk)).committed_bytes() == 4);
  ::poll(nullptr, 0, 1100);
  CHECK(BlockingCall(*transport, kReadBlob, FirstBytes(digest)).status().code() == absl::StatusCode::kUnavailable);
  v1::FinishUploadRequest finish;
  finish.set_upload_id(chunk.upload_id());
  CHECK(BlockingCall(*transport, kFinishUpload, finish).status().code() == absl::StatusCode::kUnavailable);
  waiting.store().SetOwner(owner.contact());
  CHECK(BlockingCall(*transport, kReadBlob, FirstBytes(digest)).ok());
  CHECK(BlockingCall(*transport, kFinishUpload, finish).ok());
}

TEST_CASE("What is not in the store that servers share is left to the owner, as an upload that must not reach a disk") {
  Owner owner;
  // Servers share a database, and not the memory in which such an upload lies.
  WaitingServer waiting({}, std::make_shared<MemoryPayloadStore>());
  waiting.store().SetOwner(owner.contact());
  const std::unique_ptr<Transport> transport = waiting.Connect();
  v1::CreateRoundRequest create = ARound("round");
  create.mutable_spec()->set_durability(v1::EPHEMERAL);
  REQUIRE(BlockingCall(*transport, kCreateRound, create).ok());
  const v1::SyncResponse leased = Ok(BlockingCall(*transport, kSync, AParkedPoll("worker")));
  REQUIRE(leased.leases_size() == 1);
  const std::string bytes = ManyBytes(1000);
  UploadSession upload({.bytes = bytes,
                        .request_id = "contribution",
                        .task = leased.leases(0).task(),
                        .lease_token = leased.leases(0).lease_token()});
  CHECK(RunBlocking(*transport, upload).ok());
  CHECK(upload.verdict() == v1::StartUploadResponse::SEND);
  CHECK(CountAt(owner, "calls_total", "WriteChunk") == 1);
  v1::QueryUploadRequest query;
  query.set_upload_id(upload.upload_id());
  CHECK(Ok(BlockingCall(*transport, kQueryUpload, query)).committed_bytes() == 1000);
  // Once the owner has been asked, and once without that.
  SystemRandom random;
  const std::string digest = Ok(UploadBlob(*transport, random, bytes));
  CHECK(Ok(BlockingCall(*transport, kReadBlob, FirstBytes(digest))).data() == bytes.substr(0, 4));
  CHECK(Ok(BlockingCall(*transport, kReadBlob, FirstBytes(digest))).data() == bytes.substr(0, 4));
}

// Answers when it is told to.
class HeldOwner final : public Forwarder {
 public:
  void Forward(CallId call, const MethodRow& /*method*/, const ForwardedCaller& /*caller*/,
               const google::protobuf::Message& /*request*/, google::protobuf::Message* /*response*/,
               MethodRow::Done done) override {
    call_ = call;
    done_ = std::move(done);
  }
  void Abandon(CallId call, const MethodRow& /*method*/, const Identity& /*caller*/) override {
    if (done_ && call == call_) std::exchange(done_, nullptr)(absl::CancelledError("the caller has gone"));
  }
  bool is_asked() const { return done_ != nullptr; }

 private:
  CallId call_;
  MethodRow::Done done_;
};

TEST_CASE("Who goes away while the owner is asked whether they may read takes the question along") {
  const SystemClock clock;
  SystemRandom random;
  MemoryTaskStore store;
  MemoryPayloadStore payloads;
  HeldOwner owner;
  // It runs no events: nothing here is in a batch.
  struct NoEvents final : Executor {
    void Post(Event) override {}
    void Defer(Deferred) override {}
  } executor;
  ServerParts parts(store, payloads, executor, random, clock, {.limits = {}, .data_directory = ""});
  LocalTransfers transfers(owner, payloads, parts.methods, parts.dispatcher, parts.core.limits(), clock);
  const std::string digest = Ok(payloads.PutBlob("bytes"));
  const v1::ReadBlobRequest request = FirstBytes(digest);
  v1::ReadBlobResponse response;
  absl::Status status;
  const CallId call = parts.dispatcher.NewCall();
  transfers.Forward(call, *parts.methods.Find(kReadBlob.name), {.answer_bytes_max = 100}, request,
                                      &response, [&](absl::Status ended) { status = std::move(ended); });
  REQUIRE(owner.is_asked());
  transfers.Abandon(call, *parts.methods.Find(kReadBlob.name), *Identity::Anybody());
  CHECK_FALSE(owner.is_asked());
  CHECK(status.code() == absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace sheaf
