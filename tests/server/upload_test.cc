// Contributions that are handed in as uploads.
#include <catch2/catch.hpp>
#include <string>

#include "base/checksum.h"
#include "server/core/uploads/upload_names.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Verdict = v1::ResultVerdict;

// Hands in `upload_id` under the lease; the verdict.
v1::ResultVerdict HandInUpload(CoreFederation& server, const v1::Lease& lease, const std::string& upload_id) {
  v1::SyncRequest request = Ask("w", 0);
  v1::TaskResult& result = *request.add_results();
  result.set_task(lease.task());
  result.set_lease_token(lease.lease_token());
  result.set_upload_id(upload_id);
  return server.Sync(request).verdicts(0);
}

TEST_CASE("A contribution whose upload is gone, and was begun anew by a late request, is lost and not rejected") {
  CoreFederation server;
  server.CreateRound(SumRound(1));
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  v1::StartUploadRequest start;
  start.set_request_id("upload");
  start.set_digest(std::string(64, 'a'));
  start.set_size_bytes(100);
  start.mutable_contribution()->set_task(lease.task());
  start.mutable_contribution()->set_lease_token(lease.lease_token());
  const auto begun = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start);
  REQUIRE(begun->verdict() == v1::StartUploadResponse::SEND);
  v1::SyncRequest request = Ask("w", 0);
  v1::TaskResult& result = *request.add_results();
  result.set_task(lease.task());
  result.set_lease_token(lease.lease_token());
  result.set_upload_id(begun->upload_id());
  CHECK(server.Sync(request).verdicts(0).verdict() == Verdict::LEASE_LOST);
  const v1::Task task = server.GetTask(lease.task());
  CHECK(task.state() == v1::QUEUED);
  CHECK(task.num_lost() == 1);
  CHECK(task.num_failed() == 0);
}

TEST_CASE("An upload that was not finished is rejected, naming FinishUpload, and its attempt failed and is not lost") {
  CoreFederation server;
  server.CreateRound(SumRound(1));
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  const std::string bytes = Result(lease, 1).contribution();
  v1::StartUploadRequest start;
  start.set_request_id("upload");
  start.set_digest(Sha256Hex(bytes));
  start.set_size_bytes(static_cast<int64_t>(bytes.size()));
  start.mutable_contribution()->set_task(lease.task());
  start.mutable_contribution()->set_lease_token(lease.lease_token());
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start)->upload_id());
  chunk.set_data(bytes);
  REQUIRE(server.Call<v1::WriteChunkResponse>("BlobService/WriteChunk", chunk).ok());

  const v1::ResultVerdict verdict = HandInUpload(server, lease, chunk.upload_id());
  CHECK(v1::ResultVerdict::Verdict_Name(verdict.verdict()) == "REJECTED");
  CHECK_THAT(verdict.message(), Catch::Contains("call FinishUpload"));
  const v1::Task task = server.GetTask(lease.task());
  CHECK(task.state() == v1::QUEUED);
  CHECK(task.num_failed() == 1);
  CHECK(task.num_lost() == 0);
  CHECK_THAT(task.last_error(), Catch::Contains("before FinishUpload"));
}

TEST_CASE("An upload that the disk damaged is rejected by name, its task goes to another, and the call goes on") {
  CoreFederation server;
  server.CreateRound(SumRound(3));
  const v1::SyncResponse leased = server.Sync(Ask("w", 3));
  const v1::Lease& lease = leased.leases(0);
  const std::string bytes = Result(lease, 1).contribution();
  v1::StartUploadRequest start;
  start.set_request_id("upload");
  start.set_digest(Sha256Hex(bytes));
  start.set_size_bytes(static_cast<int64_t>(bytes.size()));
  start.mutable_contribution()->set_task(lease.task());
  start.mutable_contribution()->set_lease_token(lease.lease_token());
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start)->upload_id());
  chunk.set_data(bytes);
  REQUIRE(server.Call<v1::WriteChunkResponse>("BlobService/WriteChunk", chunk).ok());
  v1::FinishUploadRequest finish;
  finish.set_upload_id(chunk.upload_id());
  REQUIRE(server.Call<v1::FinishUploadResponse>("BlobService/FinishUpload", finish).ok());
  server.payloads().DamageUpload(UploadId(chunk.upload_id()));

  v1::SyncRequest request = Ask("w", 0);
  v1::TaskResult& damaged = *request.add_results();
  damaged.set_task(lease.task());
  damaged.set_lease_token(lease.lease_token());
  damaged.set_upload_id(chunk.upload_id());
  *request.add_results() = Result(leased.leases(1), 1);
  *request.add_held() = Held(leased.leases(2), 1);
  const v1::SyncResponse answer = server.Sync(request);
  REQUIRE(answer.verdicts_size() == 2);
  CHECK(v1::ResultVerdict::Verdict_Name(answer.verdicts(0).verdict()) == "REJECTED");
  CHECK_THAT(answer.verdicts(0).message(), Catch::Contains(chunk.upload_id()) && Catch::Contains("damaged"));
  CHECK(v1::ResultVerdict::Verdict_Name(answer.verdicts(1).verdict()) == "ACCEPTED");
  REQUIRE(answer.held_size() == 1);
  CHECK(answer.held(0).verdict() == v1::LeaseUpdate::HELD);
  const v1::Task task = server.GetTask(lease.task());
  CHECK(task.state() == v1::QUEUED);
  CHECK(task.num_lost() == 1);
  CHECK(task.num_failed() == 0);
  CHECK_THAT(task.last_error(), Catch::Contains("damaged on the server's disk"));
  // It is gone, and a new attempt uploads anew.
  CHECK(absl::IsNotFound(server.payloads().GetUpload(UploadId(chunk.upload_id())).status()));
}

TEST_CASE("An upload that was never begun for its lease is rejected, naming StartUpload, and its attempt failed") {
  CoreFederation server;
  server.CreateRound(SumRound(1));
  const std::string well_formed = "c-" + std::string(64, 'a') + "-" + std::string(32, 'b');
  int num_failed = 0;
  for (const std::string& id : {std::string("c-nonsense"), well_formed}) {
    INFO(id);
    server.Advance(absl::Minutes(5));
    const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
    const v1::ResultVerdict verdict = HandInUpload(server, lease, id);
    CHECK(v1::ResultVerdict::Verdict_Name(verdict.verdict()) == "REJECTED");
    CHECK_THAT(verdict.message(), Catch::Contains(id) && Catch::Contains("StartUpload"));
    const v1::Task task = server.GetTask(lease.task());
    CHECK(task.num_failed() == ++num_failed);
    CHECK(task.num_lost() == 0);
    CHECK_THAT(task.last_error(), Catch::Contains("never begun"));
  }
}

TEST_CASE("A contribution over the round's limit is refused before it is uploaded") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.set_contribution_bytes_max(1000);
  const std::string round = server.CreateRound(spec);
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  v1::StartUploadRequest request;
  request.set_request_id("upload");
  request.set_digest(std::string(64, 'a'));
  request.mutable_contribution()->set_task(lease.task());
  request.mutable_contribution()->set_lease_token(lease.lease_token());
  request.set_size_bytes(1001);
  const auto refused = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", request);
  REQUIRE(absl::IsResourceExhausted(refused.status()));
  REQUIRE_THAT(std::string(refused.status().message()),
               Catch::Contains("1001") && Catch::Contains("1000") && Catch::Contains(round));
  request.set_size_bytes(1000);
  const auto accepted = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", request);
  REQUIRE(accepted.ok());
  REQUIRE(accepted->verdict() == v1::StartUploadResponse::SEND);
}

}  // namespace
}  // namespace sheaf
