#include "tests/simulation/program_actor.h"

#include <fmt/format.h>

#include <utility>

#include "base/checksum.h"
#include "proto/time.h"
#include "storage/transitions.h"

namespace sheaf::simulation {
namespace {

constexpr int64_t kChunkBytes = 64;

}  // namespace

ProgramActor::ProgramActor(Weather& weather, SimServers& server, const std::string& authorization, RoundPlan plan,
                           const ProgramActor* continued)
    : weather_(weather),
      server_(server),
      transport_(weather, server, authorization),
      plan_(std::move(plan)),
      continued_(continued),
      opens_inline_(plan_.opens_inline) {
  const bool uploads_first = plan_.broadcast != nullptr && !plan_.spec.announced();
  weather_.agenda.After(plan_.create_after, [this, uploads_first] { uploads_first ? Upload() : Create(); });
}

const SimBroadcast* ProgramActor::FileOf(size_t number) const {
  const std::vector<std::string>& bases = plan_.broadcast->bases;
  if (number < bases.size()) return FindBroadcast(bases[number]);
  return number == bases.size() && !(opens_inline_ && !round_.empty()) ? plan_.broadcast : nullptr;
}

void ProgramActor::UploadFrom(size_t number) {
  const SimBroadcast* file = FileOf(number);
  if (file == nullptr) return OnUploaded();
  v1::StartUploadRequest request;
  request.set_request_id(number == 0 ? plan_.request_id : fmt::format("{}-{}", plan_.request_id, number));
  request.set_digest(file->digest);
  request.set_size_bytes(static_cast<int64_t>(file->file.size()));
  Call(transport_, kStartUpload, request, {.timeout = absl::Seconds(5)},
       [this, number](const absl::StatusOr<v1::StartUploadResponse>& response) {
         if (!response.ok()) return weather_.agenda.After(Pause(), [this] { Upload(); });
         if (response->verdict() == v1::StartUploadResponse::ALREADY_STORED) return UploadFrom(number + 1);
         WriteChunk(number, response->upload_id(), response->committed_bytes());
       });
}

void ProgramActor::WriteChunk(size_t number, const std::string& upload, int64_t offset) {
  const std::string& bytes = FileOf(number)->file;
  if (offset == static_cast<int64_t>(bytes.size())) return FinishUpload(number, upload);
  v1::WriteChunkRequest request;
  request.set_upload_id(upload);
  request.set_offset(offset);
  request.set_data(bytes.substr(offset, kChunkBytes));
  Call(transport_, kWriteChunk, request, {.timeout = absl::Seconds(5)},
       [this, number, upload](const absl::StatusOr<v1::WriteChunkResponse>& response) {
         if (!response.ok()) return weather_.agenda.After(Pause(), [this] { Upload(); });
         WriteChunk(number, upload, response->committed_bytes());
       });
}

void ProgramActor::FinishUpload(size_t number, const std::string& upload) {
  v1::FinishUploadRequest request;
  request.set_upload_id(upload);
  Call(transport_, kFinishUpload, request, {.timeout = absl::Seconds(5)},
       [this, number](const absl::StatusOr<v1::FinishUploadResponse>& response) {
         if (!response.ok()) return weather_.agenda.After(Pause(), [this] { Upload(); });
         UploadFrom(number + 1);
       });
}

void ProgramActor::Create() {
  v1::CreateRoundRequest request;
  request.set_request_id(plan_.request_id);
  *request.mutable_spec() = plan_.spec;
  if (continued_ != nullptr) {
    // Soon there will be one.
    if (continued_->round().empty()) return weather_.agenda.After(Pause(), [this] { Create(); });
    request.mutable_spec()->set_continues(continued_->round());
  } else {
    request.mutable_spec()->clear_staleness();
  }
  Call(transport_, kCreateRound, request, {.timeout = absl::Seconds(5)},
       [this](const absl::StatusOr<v1::CreateRoundResponse>& response) {
         const bool cannot_continue =
             absl::IsFailedPrecondition(response.status()) ||
             (absl::IsNotFound(response.status()) &&
              server_.monitor().WasDeleted(RoundId(continued_ == nullptr ? "" : continued_->round())));
         if (continued_ != nullptr && cannot_continue) {
           // The other has its goal already. So this one is a round like any other.
           ++weather_.statistics.carried["creations refused because it was too late"];
           continued_ = nullptr;
           return weather_.agenda.After(Pause(), [this] { Create(); });
         }
         if (MayPatchAgain(response.status())) return weather_.agenda.After(Pause(), [this] { Upload(); });
         if (absl::IsInvalidArgument(response.status())) {
           return weather_.journal.Break("the spec is right", "{}: {}", plan_.request_id, response.status().ToString());
         }
         if (absl::IsNotFound(response.status())) return weather_.agenda.After(Pause(), [this] { Upload(); });
         if (!response.ok()) return weather_.agenda.After(Pause(), [this] { Create(); });
         round_ = response->round().id();
         weather_.journal.Note("{} is round {}", plan_.request_id, round_);
         if (plan_.cancel_after.has_value()) weather_.agenda.After(*plan_.cancel_after, [this] { Cancel(); });
         if (plan_.spec.announced()) ++weather_.statistics.announced["rounds announced"];
         if (plan_.open_after.has_value()) weather_.agenda.After(*plan_.open_after, [this] { BeginOpening(); });
         Watch();
       });
}

bool ProgramActor::MayPatchAgain(const absl::Status& refusal) {
  const bool is_patch = plan_.broadcast != nullptr && !plan_.broadcast->bases.empty();
  const bool has_no_base =
      absl::IsInvalidArgument(refusal) && refusal.message().find("sheaf.base") != std::string::npos;
  if (is_patch && has_no_base) ++weather_.statistics.announced["patches of what has gone"];
  return is_patch && has_no_base;
}

void ProgramActor::BeginOpening() { plan_.broadcast == nullptr ? Open() : Upload(); }

void ProgramActor::Open() {
  v1::OpenRoundRequest request;
  request.set_request_id(plan_.request_id + "-open");
  request.set_round(round_);
  if (opens_inline_) {
    request.set_broadcast(plan_.broadcast->file);
  } else if (plan_.broadcast != nullptr) {
    request.set_broadcast_digest(plan_.broadcast->digest);
  }
  Call(transport_, kOpenRound, request, {.timeout = absl::Seconds(5)},
       [this](const absl::StatusOr<v1::OpenRoundResponse>& response) {
         if (response.ok()) return OnOpened(response->round());
         if (MayPatchAgain(response.status())) return weather_.agenda.After(Pause(), [this] { Upload(); });
         if (absl::IsFailedPrecondition(response.status())) return OnRefused(response.status().ToString());
         if (absl::IsInvalidArgument(response.status())) {
           return weather_.journal.Break("what was announced can be opened", "round {}: {}", round_,
                                         response.status().ToString());
         }
         if (absl::IsNotFound(response.status()) && server_.monitor().WasDeleted(RoundId(round_))) return;
         // There may be less room inside a call, or its broadcast has gone before it was needed.
         if (absl::IsResourceExhausted(response.status())) opens_inline_ = false;
         const bool uploads = plan_.broadcast != nullptr && !opens_inline_ && !absl::IsUnavailable(response.status());
         weather_.agenda.After(Pause(), [this, uploads] { uploads ? Upload() : Open(); });
       });
}

void ProgramActor::OnOpened(const v1::Round& round) {
  const std::string digest = plan_.broadcast == nullptr ? "" : plan_.broadcast->digest;
  weather_.journal.Note("round {} was opened", round_);
  if (server_.monitor().StateOf(RoundId(round_)) == RoundState::kAnnounced || round.state() == v1::ANNOUNCED) {
    return weather_.journal.Break("what was told to be open is open", "round {} is ANNOUNCED", round_);
  }
  if (round.spec().broadcast_digest() != digest) {
    return weather_.journal.Break("a round has one broadcast", "round {} was opened with {}, and has {}", round_,
                                  digest, round.spec().broadcast_digest());
  }
  if (plan_.opens_again != RoundPlan::OpensAgain::kNever) weather_.agenda.After(Pause(), [this] { OpenAgain(); });
}

void ProgramActor::OpenAgain() {
  const bool with_another = plan_.opens_again == RoundPlan::OpensAgain::kWithAnother;
  v1::OpenRoundRequest request;
  request.set_request_id(plan_.request_id + "-open-again");
  request.set_round(round_);
  if (with_another) {
    request.set_broadcast_digest(Sha256Hex("another"));
  } else if (plan_.broadcast != nullptr) {
    request.set_broadcast_digest(plan_.broadcast->digest);
  }
  Call(transport_, kOpenRound, request, {.timeout = absl::Seconds(5)},
       [this, with_another](const absl::StatusOr<v1::OpenRoundResponse>& response) {
         const RoundState state = server_.monitor().StateOf(RoundId(round_));
         const bool has_failed = state == RoundState::kFailed || state == RoundState::kCancelled;
         if (response.ok() && with_another) {
           return weather_.journal.Break("a round has one broadcast", "round {} was opened with another", round_);
         }
         if (response.ok()) ++weather_.statistics.announced["rounds opened twice"];
         if (absl::IsFailedPrecondition(response.status())) {
           if (with_another && !has_failed) ++weather_.statistics.announced["openings refused with another broadcast"];
           if (with_another || has_failed) return;
           return weather_.journal.Break("who opens a round again changes nothing", "round {}: {}", round_,
                                         response.status().ToString());
         }
         if (response.ok() || is_done_) return;
         weather_.agenda.After(Pause(), [this] { OpenAgain(); });
       });
}

void ProgramActor::OnRefused(const std::string& error) {
  const RoundId id(round_);
  const RoundState state = server_.monitor().StateOf(id);
  if (state != RoundState::kFailed && state != RoundState::kCancelled) {
    return weather_.journal.Break("what was announced can be opened", "round {} is {}: {}", round_, Name(state), error);
  }
  ++weather_.statistics.announced[state == RoundState::kFailed ? "openings refused after the end"
                                                               : "openings refused after a cancellation"];
}

void ProgramActor::Watch() {
  absl::Duration wait = weather_.chance.Between(absl::ZeroDuration(), absl::Seconds(20));
  v1::GetRoundRequest request;
  request.set_round(round_);
  request.set_etag(etag_);
  *request.mutable_wait() = ToProto(wait);
  Call(transport_, kGetRound, request, {.timeout = wait + absl::Seconds(5)},
       [this](const absl::StatusOr<v1::GetRoundResponse>& response) {
         if (absl::IsNotFound(response.status())) {
           is_done_ = server_.monitor().WasDeleted(RoundId(round_));
           if (is_done_) return;
           return weather_.journal.Break("rounds exist", "round {} was created and is gone", round_);
         }
         if (!response.ok()) return weather_.agenda.After(Pause(), [this] { Watch(); });
         etag_ = response->round().etag();
         v1::RoundState state = response->round().state();
         is_done_ = state == v1::FAILED || state == v1::CANCELLED;
         if (state == v1::SUCCEEDED) return ReadAggregate();
         if (!is_done_) Watch();
       });
}

void ProgramActor::ReadAggregate() {
  v1::ReadAggregateRequest request;
  request.set_round(round_);
  request.set_offset(static_cast<int64_t>(aggregate_.size()));
  Call(transport_, kReadAggregate, request, {.timeout = absl::Seconds(5)},
       [this](const absl::StatusOr<v1::ReadAggregateResponse>& response) {
         if (absl::IsNotFound(response.status())) return Watch();  // Deleted, most likely.
         if (!response.ok()) return weather_.agenda.After(Pause(), [this] { ReadAggregate(); });
         aggregate_ += response->data();
         is_done_ = static_cast<int64_t>(aggregate_.size()) == response->size_bytes();
         if (!is_done_) return ReadAggregate();
         if (Sha256Hex(aggregate_) == response->digest()) return;
         weather_.journal.Break("a released aggregate can be read", "round {}: its program read another", round_);
       });
}

void ProgramActor::Cancel() {
  if (is_done_) return;
  has_cancelled_ = true;
  v1::CancelRoundRequest request;
  request.set_request_id(plan_.request_id + "-cancel");
  request.set_round(round_);
  request.set_reason("the program has changed its mind");
  Call(transport_, kCancelRound, request, {.timeout = absl::Seconds(5)},
       [this](const absl::StatusOr<v1::CancelRoundResponse>& response) {
         if (response.ok() || absl::IsFailedPrecondition(response.status())) return;
         if (absl::IsNotFound(response.status())) return;  // Watch looks into that.
         weather_.agenda.After(Pause(), [this] { Cancel(); });
       });
}

}  // namespace sheaf::simulation
