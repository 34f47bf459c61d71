#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "sdk/cpp/client/blob_client.h"

namespace sheaf {
namespace {

// An upload that vanished or arrived damaged is begun again this often.
constexpr int kRestartsMax = 3;
// Calls in a row that failed without a byte of progress.
constexpr int kIdleTurnsMax = 5;
// A server that ends without warning loses what was not durable yet; one that loses it again and again takes nothing.
constexpr int kSetbacksMax = 16;

bool IsTransient(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kDeadlineExceeded;
}

template <typename M>
CallSequence::NextCall MakeCall(const M& method, typename M::Request request,
                                std::shared_ptr<google::protobuf::Message>& response) {
  response = std::make_shared<typename M::Response>();
  return {method.name, std::make_shared<typename M::Request>(std::move(request)), response};
}

}  // namespace

UploadSession::UploadSession(UploadParams params) : params_(std::move(params)) {
  if (params_.digest.empty()) params_.digest = Sha256Hex(params_.bytes);
}

CallSequence::NextCall UploadSession::Next() {
  switch (phase_) {
    case Phase::kWrite: {
      v1::WriteChunkRequest request;
      request.set_upload_id(upload_id_);
      request.set_offset(committed_);
      const std::string_view chunk = params_.bytes.substr(committed_, std::min(chunk_bytes_, chunk_size().bytes_max()));
      sent_bytes_ = static_cast<int64_t>(chunk.size());
      request.set_data(chunk.data(), chunk.size());
      return MakeCall(kWriteChunk, std::move(request), response_);
    }
    case Phase::kQuery: {
      v1::QueryUploadRequest request;
      request.set_upload_id(upload_id_);
      return MakeCall(kQueryUpload, std::move(request), response_);
    }
    case Phase::kFinish: {
      v1::FinishUploadRequest request;
      request.set_upload_id(upload_id_);
      return MakeCall(kFinishUpload, std::move(request), response_);
    }
    case Phase::kStart:
    case Phase::kDone:
      break;
  }
  v1::StartUploadRequest request;
  // A new beginning is a new request: the old id would get the upload that is gone.
  request.set_request_id(restarts_ == 0 ? params_.request_id : fmt::format("{}-{}", params_.request_id, restarts_));
  request.set_size_bytes(static_cast<int64_t>(params_.bytes.size()));
  request.set_digest(params_.digest);
  request.set_population(params_.population);
  if (!params_.task.empty()) {
    request.mutable_contribution()->set_task(params_.task);
    request.mutable_contribution()->set_lease_token(params_.lease_token);
  }
  return MakeCall(kStartUpload, std::move(request), response_);
}

bool UploadSession::TakeLess() { return phase_ == Phase::kWrite && chunk_size().Shrink(sent_bytes_); }

void UploadSession::OnDone(const absl::Status& call) {
  if (!call.ok()) return Recover(call);
  switch (phase_) {
    case Phase::kStart:
      return OnStarted(static_cast<const v1::StartUploadResponse&>(*response_));
    case Phase::kWrite:
      return OnCommitted(static_cast<const v1::WriteChunkResponse&>(*response_).committed_bytes());
    case Phase::kQuery:
      return OnCommitted(static_cast<const v1::QueryUploadResponse&>(*response_).committed_bytes());
    case Phase::kFinish:
    case Phase::kDone:
      return End(absl::OkStatus());
  }
}

void UploadSession::OnStarted(const v1::StartUploadResponse& response) {
  verdict_ = response.verdict();
  takes_patches_ = response.takes_patches();
  if (verdict_ != v1::StartUploadResponse::SEND) {
    const bool is_known = verdict_ == v1::StartUploadResponse::ALREADY_STORED ||
                          verdict_ == v1::StartUploadResponse::NOT_NEEDED ||
                          verdict_ == v1::StartUploadResponse::LEASE_LOST;
    return End(is_known ? absl::OkStatus()
                        : absl::InternalError(fmt::format("the server answered an upload with the unknown verdict {}",
                                                          static_cast<int>(verdict_))));
  }
  upload_id_ = response.upload_id();
  chunk_bytes_ = params_.chunk_bytes_max;
  if (response.chunk_bytes_max() > 0) chunk_bytes_ = std::min(chunk_bytes_, response.chunk_bytes_max());
  committed_ = 0;
  phase_ = Phase::kQuery;
  OnCommitted(response.committed_bytes());
}

void UploadSession::OnCommitted(int64_t committed) {
  const int64_t size = static_cast<int64_t>(params_.bytes.size());
  if (committed < 0 || committed > size) {
    return End(absl::InternalError(fmt::format("the server has {} bytes of an upload of {}", committed, size)));
  }
  if (committed > most_committed_) {
    most_committed_ = committed;
    setbacks_ = 0;
  }
  if (committed < committed_ && ++setbacks_ > kSetbacksMax) {
    return End(absl::InternalError(
        fmt::format("the server loses the bytes of an upload again and again: it has {} of {}", committed, size)));
  }
  if (committed > committed_) {
    turns_without_progress_ = 0;
  } else if (phase_ == Phase::kWrite && ++turns_without_progress_ > kIdleTurnsMax) {
    return End(
        absl::InternalError(fmt::format("the server takes no more bytes of an upload at {} of {}", committed, size)));
  }
  committed_ = committed;
  phase_ = committed_ == size ? Phase::kFinish : Phase::kWrite;
}

void UploadSession::Recover(const absl::Status& call) {
  if (++turns_without_progress_ > kIdleTurnsMax) return End(call);
  if (call.code() == absl::StatusCode::kDeadlineExceeded) TakeLess();
  const bool is_gone = call.code() == absl::StatusCode::kNotFound && phase_ != Phase::kStart;
  const bool is_damaged = call.code() == absl::StatusCode::kDataLoss && phase_ == Phase::kFinish;
  const bool has_gap = (call.code() == absl::StatusCode::kOutOfRange && phase_ == Phase::kWrite) ||
                       (call.code() == absl::StatusCode::kFailedPrecondition && phase_ == Phase::kFinish);
  if (is_gone || is_damaged) {
    if (++restarts_ > kRestartsMax) return End(call);
    phase_ = Phase::kStart;
  } else if (has_gap || IsTransient(call)) {
    if (phase_ != Phase::kStart) phase_ = Phase::kQuery;
  } else {
    End(call);
  }
}

void UploadSession::End(absl::Status status) {
  status_ = std::move(status);
  phase_ = Phase::kDone;
}

}  // namespace sheaf
