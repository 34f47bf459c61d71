// Contributions too large for a Sync: what each costs the server's CPU, and the memory that many of them take. The
// yardstick only receives the same chunks.
#include <fmt/format.h>

#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/rounds.h"
#include "bench/uploads.h"
#include "sdk/cpp/client/blob_client.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

struct Cost {
  double cpu_millis;
  double peak_rss_mebibytes;
};

double MillisEach(absl::Duration cpu_time, int count) { return absl::ToDoubleMilliseconds(cpu_time) / count; }

absl::StatusOr<Cost> UploadAll(const Setup& setup, const std::string& contribution, int count) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartSheafd(setup));
  const absl::Duration cpu_before = server->cpu_time();
  RETURN_IF_ERROR(HandIn(server->address(), contribution, kUploadElements, count));
  return Cost{.cpu_millis = MillisEach(server->cpu_time() - cpu_before, count),
              .peak_rss_mebibytes = static_cast<double>(server->peak_rss_bytes()) / (1 << 20)};
}
absl::StatusOr<double> ReceiveAll(const Setup& setup, std::string_view contribution, int count) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartEcho(setup));
  GrpcTransport transport(server->address(), {.own_connection = true});
  const absl::Duration cpu_before = server->cpu_time();
  for (int i = 0; i < count; ++i) {
    for (size_t offset = 0; offset < contribution.size(); offset += kChunkBytes) {
      v1::WriteChunkRequest request;
      request.set_offset(static_cast<int64_t>(offset));
      request.set_data(std::string(contribution.substr(offset, kChunkBytes)));
      RETURN_IF_ERROR(BlockingCall(transport, kWriteChunk, request).status());
    }
  }
  return MillisEach(server->cpu_time() - cpu_before, count);
}

}  // namespace

absl::Status HandIn(const std::string& address, std::string contribution, int64_t num_elements, int count) {
  GrpcTransport transport(address, {.own_connection = true});
  const v1::CreateRoundRequest round = ARound("round", count, num_elements);
  RETURN_IF_ERROR(BlockingCall(transport, kCreateRound, round, {.timeout = absl::Minutes(1)}).status());
  v1::SyncRequest request = APoll("worker", 0, 1, absl::Seconds(5));
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const v1::SyncResponse response, BlockingCall(transport, kSync, request));
    if (response.leases().empty()) return absl::InternalError("there is no task");
    const v1::Lease& lease = response.leases(0);
    // Another sign somewhere in the values, so that no two have the same digest.
    contribution[contribution.size() / 2 + static_cast<size_t>(i) * 4] ^= 1;
    ASSIGN_OR_RETURN(const ContributionUploadOutcome upload,
                     UploadContribution(transport, {.bytes = contribution,
                                                    .digest = {},
                                                    .request_id = fmt::format("upload-{}", i),
                                                    .task = lease.task(),
                                                    .lease_token = lease.lease_token(),
                                                    .chunk_bytes_max = kChunkBytes}));
    request = APoll("worker", i + 1, i + 1 < count ? 1 : 0, absl::ZeroDuration());
    v1::TaskResult& result = *request.add_results();
    result.set_task(lease.task());
    result.set_lease_token(lease.lease_token());
    result.set_upload_id(upload.upload_id);
  }
  ASSIGN_OR_RETURN(const v1::SyncResponse last, BlockingCall(transport, kSync, request));
  if (last.verdicts().empty() || last.verdicts(0).verdict() != v1::ResultVerdict::ACCEPTED) {
    return absl::InternalError("the last contribution was not accepted: " + last.ShortDebugString());
  }
  return absl::OkStatus();
}

absl::Status MeasureUploads(const Setup& setup, Table& table) {
  const std::string contribution = AContribution(kUploadElements);
  for (const int count : {400, 1600}) {
    ASSIGN_OR_RETURN(const double receive, ReceiveAll(setup, contribution, count));
    ASSIGN_OR_RETURN(const Cost cost, UploadAll(setup, contribution, count));
    table.Add({.what = fmt::format("{} contributions of 4 MiB to a dense sum (float32, EXACT)", count),
               .figure = fmt::format("{:.2f} ms server CPU each, peak RSS {:.1f} MiB", cost.cpu_millis,
                                     cost.peak_rss_mebibytes),
               .ratio = fmt::format("{:.1f}x of receiving only at {:.2f} ms", cost.cpu_millis / receive, receive),
               .target = "<= 2 ms, <= 100 MiB, flat"});
  }
  return absl::OkStatus();
}

}  // namespace sheaf::bench
