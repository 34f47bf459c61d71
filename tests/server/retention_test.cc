// How long broadcasts, aggregates and rounds that have ended are kept.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "proto/time.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Verdict = v1::ResultVerdict;

TEST_CASE("A broadcast whose round ended before a crash is deleted after the restart") {
  Limits limits;
  CoreFederation server(limits);
  const std::string former = *server.payloads().PutBlob("model of round 1");
  const std::string current = *server.payloads().PutBlob("model of round 2");
  const std::string fresh = *server.payloads().PutBlob("model of round 3");
  v1::RoundSpec spec = SumRound(1);
  spec.set_broadcast_digest(former);
  server.CreateRound(spec);
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  spec.set_broadcast_digest(current);
  server.CreateRound(spec);
  server.CrashAndRestart();
  REQUIRE(server.payloads().HasBlob(former));  // For a moment: the next round may name it again.
  server.Advance(limits.broadcast_linger);
  REQUIRE_FALSE(server.payloads().HasBlob(former));
  REQUIRE(server.payloads().HasBlob(current));
  REQUIRE(server.payloads().HasBlob(fresh));
}

// An upload of `bytes` that only has to be finished; its id.
std::string AlmostUpload(CoreFederation& server, const std::string& bytes) {
  v1::StartUploadRequest start;
  start.set_request_id("upload");
  start.set_size_bytes(static_cast<int64_t>(bytes.size()));
  start.set_digest(Sha256Hex(bytes));
  const auto upload = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start);
  REQUIRE(upload.ok());
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(upload->upload_id());
  chunk.set_data(bytes);
  REQUIRE(server.Call<v1::WriteChunkResponse>("BlobService/WriteChunk", chunk).ok());
  return upload->upload_id();
}

// How long it is promised to be kept.
absl::Duration FinishUpload(CoreFederation& server, const std::string& upload_id) {
  v1::FinishUploadRequest finish;
  finish.set_upload_id(upload_id);
  const auto finished = server.Call<v1::FinishUploadResponse>("BlobService/FinishUpload", finish);
  REQUIRE(finished.ok());
  return FromProto(finished->keep());
}

TEST_CASE("A broadcast is deleted when its round has ended, however lately it was uploaded") {
  Limits limits;
  CoreFederation server(limits);
  const std::string bytes = "a model of each round";
  FinishUpload(server, AlmostUpload(server, bytes));
  v1::RoundSpec spec = SumRound(1);
  spec.set_broadcast_digest(Sha256Hex(bytes));
  server.CreateRound(spec);
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  REQUIRE(server.payloads().HasBlob(spec.broadcast_digest()));
  server.Advance(limits.broadcast_linger + absl::Seconds(1));
  CHECK_FALSE(server.payloads().HasBlob(spec.broadcast_digest()));
}

TEST_CASE("A broadcast that was just uploaded stays for its round, although another's of the same bytes is retired") {
  Limits limits;
  CoreFederation server(limits);
  const std::string bytes = "the model that both start from";
  const std::string upload = AlmostUpload(server, bytes);
  v1::RoundSpec spec = SumRound(1);
  spec.set_broadcast_digest(*server.payloads().PutBlob(bytes));
  server.CreateRound(spec);
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  server.Advance(limits.broadcast_linger - absl::Seconds(1));
  const absl::Duration keep = FinishUpload(server, upload);

  // As long as it was told.
  server.Advance(keep - absl::Seconds(1));
  CHECK(server.payloads().HasBlob(spec.broadcast_digest()));
  server.Advance(absl::Minutes(20));
  CHECK_FALSE(server.payloads().HasBlob(spec.broadcast_digest()));
}

// Of rounds that end one after the other, each with a broadcast of eight bytes.
class ShortRounds {
 public:
  explicit ShortRounds(CoreFederation& server) : server_(server) {}

  std::string Run(const std::string& bytes) {
    FinishUpload(server_, AlmostUpload(server_, bytes));
    return RunStored(bytes);
  }
  std::string RunStored(const std::string& bytes) {
    v1::RoundSpec spec = SumRound(1);
    spec.set_broadcast_digest(Sha256Hex(bytes));
    server_.CreateRound(spec);
    REQUIRE(Contribute(server_, "w", 1) == Verdict::ACCEPTED);
    server_.Advance(absl::Milliseconds(500));
    return spec.broadcast_digest();
  }

 private:
  CoreFederation& server_;
};

TEST_CASE("A loop of short rounds leaves its last models, and no more bytes of them than the limit") {
  Limits limits;
  limits.lingering_bytes_max = 20;
  CoreFederation server(limits);
  ShortRounds rounds(server);
  std::vector<std::string> models;
  for (int i = 0; i < 8; ++i) {
    models.push_back(rounds.Run("model " + std::to_string(i) + "!"));
    for (int j = 0; j <= i; ++j) CHECK(server.payloads().HasBlob(models[static_cast<size_t>(j)]) == (j >= i - 1));
  }
  // However large it is, the latest stays its time.
  const std::string large = rounds.Run("a model of more bytes than all that may stay");
  CHECK(server.payloads().HasBlob(large));
  CHECK_FALSE(server.payloads().HasBlob(models.back()));
  server.Advance(limits.broadcast_linger);
  CHECK_FALSE(server.payloads().HasBlob(large));
}

TEST_CASE("A model that a program was told to be there outlives others for the round to come") {
  Limits limits;
  limits.lingering_bytes_max = 8;
  CoreFederation server(limits);
  ShortRounds rounds(server);
  const std::string awaited = rounds.Run("awaited!");
  v1::StartUploadRequest start;
  start.set_request_id("another program's");
  start.set_size_bytes(8);
  start.set_digest(awaited);
  const auto told = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start);
  REQUIRE(told.ok());
  REQUIRE(told->verdict() == v1::StartUploadResponse::ALREADY_STORED);
  rounds.Run("model 1!");
  rounds.Run("model 2!");
  REQUIRE(server.payloads().HasBlob(awaited));
  CHECK(rounds.RunStored("awaited!") == awaited);
  server.Advance(limits.broadcast_linger);
  CHECK_FALSE(server.payloads().HasBlob(awaited));
}

TEST_CASE("A model that several rounds have named stays its time, whatever others leave") {
  Limits limits;
  limits.lingering_bytes_max = 8;
  CoreFederation server(limits);
  ShortRounds rounds(server);
  const std::string shared = rounds.Run("shared!!");
  rounds.RunStored("shared!!");
  rounds.Run("model 1!");
  rounds.Run("model 2!");
  CHECK(server.payloads().HasBlob(shared));
  server.Advance(limits.broadcast_linger);
  CHECK_FALSE(server.payloads().HasBlob(shared));
}

TEST_CASE("A model that a live round has does not count among those that linger") {
  Limits limits;
  limits.lingering_bytes_max = 8;
  CoreFederation server(limits);
  ShortRounds rounds(server);
  const std::string large = "a model of two rounds, one of which goes on";
  v1::RoundSpec spec = SumRound(1);
  spec.set_broadcast_digest(*server.payloads().PutBlob(large));
  const std::string other = rounds.Run("model 1!");
  v1::CancelRoundRequest cancel;
  cancel.set_request_id("cancel");
  cancel.set_round(server.CreateRound(spec));
  server.CreateRound(spec);
  REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", cancel).ok());
  server.Advance(absl::Milliseconds(1));
  CHECK(server.payloads().HasBlob(other));
}

TEST_CASE("A model of a round that goes on stays when another of its rounds ends, however few bytes may linger") {
  Limits limits;
  limits.lingering_bytes_max = 1;
  CoreFederation server(limits);
  v1::RoundSpec spec = SumRound(1);
  const std::string shared = *server.payloads().PutBlob("a model of two rounds");
  spec.set_broadcast_digest(shared);
  server.CreateRound(spec);
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  const std::string live = server.CreateRound(spec);
  spec.set_broadcast_digest(*server.payloads().PutBlob("another model"));
  v1::CancelRoundRequest cancel;
  cancel.set_request_id("cancel");
  cancel.set_round(server.CreateRound(spec));
  REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", cancel).ok());
  server.Advance(absl::Seconds(1));
  CHECK(server.payloads().HasBlob(shared));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  CHECK(server.GetRound(live).state() == v1::SUCCEEDED);
}

TEST_CASE("An aggregate that the next round broadcasts stays readable when that round has ended") {
  Limits limits;
  CoreFederation server(limits);
  const std::string first = server.CreateRound(SumRound(1));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  v1::RoundSpec spec = SumRound(1);
  spec.set_broadcast_digest(server.GetRound(first).aggregate().digest());
  server.CreateRound(spec);
  REQUIRE(Contribute(server, "w", 2) == Verdict::ACCEPTED);
  server.Advance(limits.broadcast_linger);
  REQUIRE(FirstOf(server.ReadAggregate(first)) == 1);
}

TEST_CASE("Of the rounds that have ended as many are kept as the limit says, with their aggregates") {
  Limits limits;
  limits.ended_rounds_max = 2;
  CoreFederation server(limits);
  const auto run_round = [&](float value) {
    const std::string round = server.CreateRound(SumRound(1));
    REQUIRE(Contribute(server, "w", value) == Verdict::ACCEPTED);
    server.Advance(absl::Seconds(1));
    return server.GetRound(round);
  };
  // The last releases the same bytes as the first, whose round goes.
  std::vector<v1::Round> rounds;
  for (const float value : {1.0f, 2.0f, 3.0f, 1.0f}) rounds.push_back(run_round(value));
  const std::string live = server.CreateRound(SumRound(1));
  server.Advance(absl::Seconds(10));
  for (const v1::Round& round : rounds) {
    v1::GetRoundRequest request;
    request.set_round(round.id());
    const bool is_kept = round.id() == rounds[2].id() || round.id() == rounds[3].id();
    const auto found = server.Call<v1::GetRoundResponse>("RoundService/GetRound", request);
    CHECK(found.status().code() == (is_kept ? absl::StatusCode::kOk : absl::StatusCode::kNotFound));
  }
  CHECK(server.GetRound(live).state() == v1::COLLECTING);
  CHECK_FALSE(server.payloads().HasBlob(rounds[1].aggregate().digest()));
  CHECK(FirstOf(server.ReadAggregate(rounds[2].id())) == 3);
  CHECK(FirstOf(server.ReadAggregate(rounds[3].id())) == 1);
}

TEST_CASE("However fast rounds end, not many more are kept than the limit says") {
  Limits limits;
  limits.ended_rounds_max = 2;
  CoreFederation server(limits);
  for (int i = 0; i < 200; ++i) {
    server.CreateRound(SumRound(1));
    REQUIRE(Contribute(server, "w", static_cast<float>(i)) == Verdict::ACCEPTED);
  }
  v1::ListRoundsRequest request;
  request.set_page_size(200);
  const auto rounds = server.Call<v1::ListRoundsResponse>("RoundService/ListRounds", request);
  REQUIRE(rounds.ok());
  CHECK(rounds->rounds_size() < 2 + 70);
  CHECK(server.payloads().ListBlobs()->size() < 2 + 70);
}

TEST_CASE("A round keeps its aggregate when one with the same is deleted before its end is durable") {
  Limits limits;
  limits.ended_rounds_max = 0;
  CoreFederation server(limits);
  server.CreateRound(SumRound(1));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  const std::string second = server.CreateRound(SumRound(1));
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = Result(server.Sync(Ask("w", 1)).leases(0), 1);
  server.CallInOneBatch<v1::SyncResponse>("WorkService/Sync", request);
  // The next batch writes the second aggregate and deletes the first round.
  server.clock().Advance(absl::Seconds(10));
  server.Run();
  REQUIRE(server.GetRound(second).state() == v1::SUCCEEDED);
  REQUIRE(FirstOf(server.ReadAggregate(second)) == 1);
}

TEST_CASE("An aggregate that is deleted with another's of the same bytes, before its round has it, is written again") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(1));
  HeldJobs& jobs = server.HoldJobs();
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  while (server.payloads().ListBlobs()->empty()) REQUIRE(jobs.RunNext());
  REQUIRE(server.payloads().DeleteBlob(server.payloads().ListBlobs()->front().digest).ok());
  server.LetJobsRun();
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  CHECK(FirstOf(server.ReadAggregate(round)) == 1);
}

TEST_CASE("Blobs that no round names are deleted when they are old, but not while a program is about to name them") {
  Limits limits;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(SumRound(1));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  const std::string forgotten = *server.payloads().PutBlob("uploaded, and never named");
  const std::string wanted = *server.payloads().PutBlob("about to be named");
  // Their time begins with the first look that finds them.
  server.Advance(absl::Minutes(10));
  server.Advance(limits.unreferenced_keep - absl::Minutes(1));
  REQUIRE(server.payloads().HasBlob(forgotten));
  for (int i = 0; i < 150; ++i) {
    v1::StartUploadRequest request;
    request.set_request_id("upload");
    request.set_digest(wanted);
    request.set_size_bytes(17);
    const auto answer = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", request);
    REQUIRE(answer->verdict() == v1::StartUploadResponse::ALREADY_STORED);
    server.Advance(absl::Seconds(5));
  }
  CHECK_FALSE(server.payloads().HasBlob(forgotten));
  CHECK(server.payloads().HasBlob(wanted));
  CHECK(FirstOf(server.ReadAggregate(round)) == 1);
}

TEST_CASE("Time in which the machine slept makes no upload stale; time in which nobody used it does") {
  Limits limits;
  CoreFederation server(limits);
  v1::StartUploadRequest request;
  request.set_request_id("upload");
  request.set_digest(Sha256Hex("never sent"));
  request.set_size_bytes(10);
  REQUIRE(server.Call<v1::StartUploadResponse>("BlobService/StartUpload", request).ok());
  const auto uploads = [&] { return server.payloads().GetUploadUse("").num_uploads; };
  server.Advance(absl::Minutes(1));
  for (int i = 0; i < 5; ++i) server.Advance(5 * limits.unreferenced_keep);
  CHECK(uploads() == 1);
  for (absl::Duration passed; passed < limits.unreferenced_keep; passed += absl::Minutes(1)) {
    server.Advance(absl::Minutes(1));
  }
  CHECK(uploads() == 0);
}

TEST_CASE("Rounds and workers of long ago are forgotten, however few they are") {
  Limits limits;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(SumRound(1));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  const std::string digest = server.GetRound(round).aggregate().digest();
  server.Advance(limits.ended_keep - absl::Minutes(1));
  CHECK(server.GetRound(round).state() == v1::SUCCEEDED);
  server.Advance(absl::Hours(2));
  CHECK(server.store().GetRound(RoundId(round)).status().code() == absl::StatusCode::kNotFound);
  CHECK_FALSE(server.payloads().HasBlob(digest));
  CHECK(server.store().ListWorkers({})->empty());
}

}  // namespace
}  // namespace sheaf
