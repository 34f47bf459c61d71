#include "sdk/cpp/client/round_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "sdk/cpp/client/blob_client.h"

namespace sheaf {
namespace {

// What a parked call may take beyond its wait before it counts as lost.
constexpr absl::Duration kPollGrace = absl::Seconds(10);
constexpr absl::Duration kPollMax = absl::Seconds(60);
// After an answer without news that came although the server could have waited: one that never waits must not be
// hammered.
constexpr absl::Duration kNoNewsPause = absl::Milliseconds(100);

// Nobody wakes it.
void Pause() {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  never.WaitFor(mutex, kNoNewsPause);
}

}  // namespace

bool IsFinal(v1::RoundState state) { return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED; }

absl::StatusOr<v1::Round> CreateRound(Transport& transport, const std::string& request_id, const v1::RoundSpec& spec) {
  v1::CreateRoundRequest request;
  request.set_request_id(request_id);
  *request.mutable_spec() = spec;
  ASSIGN_OR_RETURN(v1::CreateRoundResponse response, BlockingCall(transport, kCreateRound, request));
  return std::move(*response.mutable_round());
}

absl::StatusOr<v1::Round> AnnounceRound(Transport& transport, Random& random, v1::RoundSpec spec) {
  spec.set_announced(true);
  ASSIGN_OR_RETURN(v1::Round round, CreateRound(transport, random.Token(16), spec));
  if (round.state() != v1::COLLECTING) return round;
  // A server of 0.1 does not know the field, and has opened it without a broadcast.
  RETURN_IF_ERROR(
      CancelRound(transport, random, round.id(), "its program announced it, which the server does not know"));
  return absl::UnimplementedError(
      "the server is older than announced rounds; update it, or announce none (ProgramOptions.ahead = 0)");
}

absl::StatusOr<v1::Round> OpenRound(Transport& transport, Random& random, const std::string& round,
                                    std::string_view broadcast) {
  if (static_cast<int64_t>(broadcast.size()) <= kInlineBytesMax) {
    v1::OpenRoundRequest request;
    request.set_request_id(random.Token(16));
    request.set_round(round);
    request.set_broadcast(std::string(broadcast));
    absl::StatusOr<v1::OpenRoundResponse> opened = BlockingCall(transport, kOpenRound, request);
    if (opened.ok()) return std::move(*opened->mutable_round());
    // This server may take less at a time.
    if (!absl::IsResourceExhausted(opened.status())) return opened.status();
  }
  // Only the server knows in which population it is.
  v1::GetRoundRequest request;
  request.set_round(round);
  ASSIGN_OR_RETURN(const v1::GetRoundResponse announced, BlockingCall(transport, kGetRound, request));
  ASSIGN_OR_RETURN(const std::string digest,
                   UploadBlob(transport, random, broadcast, announced.round().spec().population()));
  return OpenRoundWith(transport, random, round, digest);
}

absl::StatusOr<v1::Round> OpenRoundWith(Transport& transport, Random& random, const std::string& round,
                                        const std::string& broadcast_digest) {
  v1::OpenRoundRequest request;
  request.set_request_id(random.Token(16));
  request.set_round(round);
  request.set_broadcast_digest(broadcast_digest);
  ASSIGN_OR_RETURN(v1::OpenRoundResponse response, BlockingCall(transport, kOpenRound, request));
  return std::move(*response.mutable_round());
}

absl::Status CancelRound(Transport& transport, Random& random, const std::string& round, std::string_view reason) {
  v1::CancelRoundRequest request;
  request.set_request_id(random.Token(16));
  request.set_round(round);
  request.set_reason(std::string(reason));
  return BlockingCall(transport, kCancelRound, request).status();
}

absl::StatusOr<v1::Round> WaitForRound(Transport& transport, const Clock& clock, const std::string& round,
                                       const WaitOptions& options) {
  const absl::Time deadline = clock.Now() + options.timeout;
  v1::GetRoundRequest request;
  request.set_round(round);
  request.set_aggregate_bytes_max(options.aggregate_file == nullptr ? 0 : kInlineBytesMax);
  while (true) {
    const absl::Duration left = deadline - clock.Now();
    const absl::Duration wait = std::clamp(left, absl::ZeroDuration(), std::min(options.poll, kPollMax));
    *request.mutable_wait() = ToProto(wait);
    const absl::Time asked = clock.Now();
    ASSIGN_OR_RETURN(v1::GetRoundResponse response,
                     BlockingCall(transport, kGetRound, request, {.timeout = wait + kPollGrace}));
    const v1::Round& seen = response.round();
    if (seen.etag() != request.etag() && options.on_change) options.on_change(seen);
    if (IsFinal(seen.state()) && !response.aggregate_file().empty()) {
      if (Sha256Hex(response.aggregate_file()) != seen.aggregate().digest()) {
        return absl::DataLossError(fmt::format("the aggregate of round {} changed on the way: its SHA-256 is not {}",
                                               round, seen.aggregate().digest()));
      }
      if (options.aggregate_file != nullptr) *options.aggregate_file = std::move(*response.mutable_aggregate_file());
    }
    if (IsFinal(seen.state())) return std::move(*response.mutable_round());
    if (clock.Now() >= deadline) {
      return absl::DeadlineExceededError(
          fmt::format("round {} has not ended within {}; it goes on: see `sheaf round explain {}`", round,
                      absl::FormatDuration(options.timeout), round));
    }
    if (seen.etag() == request.etag() && clock.Now() - asked < wait / 2) Pause();
    request.set_etag(seen.etag());
  }
}

absl::StatusOr<std::string> ReadAggregate(Transport& transport, const std::string& round, int64_t bytes_max) {
  v1::ReadAggregateRequest request;
  request.set_round(round);
  RangeJoiner file;
  std::string digest;
  while (!file.complete()) {
    request.set_offset(file.offset());
    ASSIGN_OR_RETURN(v1::ReadAggregateResponse response, BlockingCall(transport, kReadAggregate, request));
    if (response.size_bytes() > bytes_max) {
      return absl::ResourceExhaustedError(
          fmt::format("the aggregate of round {} has {} bytes, and no more than {} are "
                      "taken here",
                      round, response.size_bytes(), bytes_max));
    }
    RETURN_IF_ERROR(file.Add(response.data(), response.size_bytes()));
    digest = response.digest();
  }
  RETURN_IF_ERROR(file.Check(digest));
  return std::move(file).Take();
}

}  // namespace sheaf
