#include "worker/relay/relayed_round.h"

#include <fmt/format.h>

#include <utility>

#include "absl/time/time.h"
#include "proto/time.h"
#include "sdk/cpp/client/round_client.h"

namespace sheaf {
namespace {

// A call that waits is not told that nobody wants the round any more: it ends soon.
constexpr absl::Duration kWatchCall = absl::Seconds(1);
// A broadcast may be deleted before its round is created.
constexpr int kUploadsMax = 3;

}  // namespace

CallSequence::NextCall RelayedRound::Next() {
  const auto call = [this](const auto& method, auto request) {
    auto response = std::make_shared<typename std::decay_t<decltype(method)>::Response>();
    response_ = response;
    return NextCall{.method = method.name,
                    .request = std::make_shared<decltype(request)>(std::move(request)),
                    .response = std::move(response)};
  };
  switch (phase_) {
    case Phase::kUpload:
      return upload_->Next();
    case Phase::kWatch: {
      v1::GetRoundRequest request;
      request.set_round(round_.id());
      request.set_etag(round_.etag());
      *request.mutable_wait() = ToProto(kWatchCall);
      return call(kGetRound, std::move(request));
    }
    case Phase::kRead: {
      v1::ReadAggregateRequest request;
      request.set_round(round_.id());
      request.set_offset(file_.offset());
      return call(kReadAggregate, std::move(request));
    }
    default: {
      v1::CreateRoundRequest request;
      request.set_request_id(params_.request_id);
      *request.mutable_spec() = params_.spec;
      return call(kCreateRound, std::move(request));
    }
  }
}

void RelayedRound::OnDone(const absl::Status& call) {
  switch (phase_) {
    case Phase::kCreate:
      return OnCreated(call);
    case Phase::kUpload:
      return OnUploadCall(call);
    case Phase::kWatch:
      return OnSeen(call);
    case Phase::kRead:
      return OnRead(call);
    case Phase::kDone:
      return;
  }
}

void RelayedRound::OnCreated(const absl::Status& call) {
  if (call.ok()) {
    phase_ = Phase::kWatch;
    return See(Answer<v1::CreateRoundResponse>().round());
  }
  // Nothing else of it can be missing.
  const bool has_no_broadcast = absl::IsNotFound(call) && !params_.spec.broadcast_digest().empty();
  if (!has_no_broadcast || num_uploads_ == kUploadsMax) return End(call);
  if (params_.broadcast == nullptr) {
    needs_broadcast_ = true;
    return End(absl::OkStatus());
  }
  ++num_uploads_;
  phase_ = Phase::kUpload;
  upload_.emplace(UploadParams{.bytes = *params_.broadcast,
                               .request_id = fmt::format("{}-{}", params_.request_id, num_uploads_),
                               .population = params_.spec.population()});
  if (upload_->digest() == params_.spec.broadcast_digest()) return;
  // The digest was a patch's, and the bytes are what that stands for. It is another round then: a relay that is
  // restarted asks for the patch's first, and must not hear that this one has another spec.
  params_.spec.set_broadcast_digest(upload_->digest());
  params_.request_id += "-whole";
}

void RelayedRound::OnUploadCall(const absl::Status& call) {
  upload_->OnDone(call);
  if (call.ok()) ++progress_;
  if (!upload_->done()) return;
  if (!upload_->status().ok()) return End(upload_->status());
  phase_ = Phase::kCreate;
}

void RelayedRound::OnSeen(const absl::Status& call) {
  if (!call.ok()) return End(call);
  See(Answer<v1::GetRoundResponse>().round());
}

void RelayedRound::See(const v1::Round& round) {
  if (round.etag() != round_.etag() || round.tasks().leased() > 0 || round.state() == v1::SEALING) ++progress_;
  round_ = round;
  if (!IsFinal(round.state())) return;
  if (round.state() == v1::SUCCEEDED) {
    phase_ = Phase::kRead;
    return;
  }
  End(absl::AbortedError(fmt::format("round {} of the server below {}: {}", round.id(),
                                     v1::RoundState_Name(round.state()), round.error())));
}

void RelayedRound::OnRead(const absl::Status& call) {
  if (!call.ok()) return End(call);
  const auto& piece = Answer<v1::ReadAggregateResponse>();
  if (piece.size_bytes() > params_.bytes_max) {
    return End(absl::ResourceExhaustedError(
        fmt::format("the partial aggregate of round {} of the server below has {} bytes, and no more than {} are "
                    "passed on",
                    round_.id(), piece.size_bytes(), params_.bytes_max)));
  }
  ++progress_;
  digest_ = piece.digest();
  if (const absl::Status added = file_.Add(piece.data(), piece.size_bytes()); !added.ok()) return End(added);
  if (file_.complete()) End(file_.Check(digest_));
}

std::string RelayedRound::TakeContribution() && {
  // Fields of one message, one after the other, are one message.
  v1::Contribution metrics;
  *metrics.mutable_metrics() = round_.metrics();
  return std::move(file_).Take() + metrics.SerializeAsString();
}

void RelayedRound::End(absl::Status status) {
  status_ = std::move(status);
  phase_ = Phase::kDone;
}

}  // namespace sheaf
