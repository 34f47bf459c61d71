#include "tests/sdk/program_local_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "aggregation/round_accumulator.h"
#include "aggregation/wire/safetensors.h"
#include "aggregation/wire/safetensors_patch.h"
#include "base/checksum.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

template <typename M>
const typename M::Request& As(const M&, const google::protobuf::Message& request) {
  return static_cast<const typename M::Request&>(request);
}
template <typename M>
typename M::Response& As(const M&, google::protobuf::Message* response) {
  return static_cast<typename M::Response&>(*response);
}

}  // namespace

void LocalServer::CallMethod(std::string_view method, const google::protobuf::Message& request,
                             google::protobuf::Message* response, const CallOptions&, Done done) {
  ++num_calls_[std::string(method)];
  absl::Status status = fault_ ? fault_(method, false) : absl::OkStatus();
  if (status.ok()) status = Handle(method, request, response);
  if (status.ok() && fault_) status = fault_(method, true);
  done(std::move(status));
}

int LocalServer::num_calls(const std::string& method) const {
  const auto found = num_calls_.find(method);
  return found == num_calls_.end() ? 0 : found->second;
}

absl::Status LocalServer::Handle(std::string_view method, const google::protobuf::Message& request,
                                 google::protobuf::Message* response) {
  if (method == kStartUpload.name) return StartUpload(As(kStartUpload, request), As(kStartUpload, response));
  if (method == kWriteChunk.name) return WriteChunk(As(kWriteChunk, request), As(kWriteChunk, response));
  if (method == kQueryUpload.name) return QueryUpload(As(kQueryUpload, request), As(kQueryUpload, response));
  if (method == kFinishUpload.name) return FinishUpload(As(kFinishUpload, request));
  if (method == kReadBlob.name) return ReadBlob(As(kReadBlob, request), As(kReadBlob, response));
  if (method == kSelectRows.name) return SelectRows(As(kSelectRows, request), As(kSelectRows, response));
  if (method == kCreateRound.name) return CreateRound(As(kCreateRound, request), As(kCreateRound, response));
  if (method == kOpenRound.name) return OpenRound(As(kOpenRound, request), As(kOpenRound, response));
  if (method == kCancelRound.name) return CancelRound(As(kCancelRound, request), As(kCancelRound, response));
  if (method == kGetRound.name) return GetRound(As(kGetRound, request), As(kGetRound, response));
  if (method == kReadAggregate.name) return ReadAggregate(As(kReadAggregate, request), As(kReadAggregate, response));
  return absl::UnimplementedError(std::string(method));
}

void LocalServer::LoseUploads(int64_t keep) {
  if (keep < 0) return uploads_.clear();
  for (auto& [id, upload] : uploads_) upload.bytes.resize(std::min<size_t>(upload.bytes.size(), keep));
}

void LocalServer::CorruptAggregates() {
  for (Sealed& sealed : rounds_) sealed.aggregate.back() ^= 1;
}

absl::Status LocalServer::StartUpload(const v1::StartUploadRequest& request, v1::StartUploadResponse& response) {
  upload_populations_.push_back(request.population());
  response.set_takes_patches(takes_patches_);
  if (blobs_.contains(request.digest())) {
    response.set_verdict(v1::StartUploadResponse::ALREADY_STORED);
    return absl::OkStatus();
  }
  response.set_verdict(upload_verdict_);
  if (upload_verdict_ != v1::StartUploadResponse::SEND) return absl::OkStatus();
  Upload& upload = uploads_[request.request_id()];
  upload.digest = request.digest();
  upload.size = request.size_bytes();
  response.set_upload_id(request.request_id());
  response.set_committed_bytes(static_cast<int64_t>(upload.bytes.size()));
  response.set_chunk_bytes_max(static_cast<int64_t>(answer_bytes_max_));
  return absl::OkStatus();
}

absl::Status LocalServer::WriteChunk(const v1::WriteChunkRequest& request, v1::WriteChunkResponse& response) {
  const auto found = uploads_.find(request.upload_id());
  if (found == uploads_.end()) return absl::NotFoundError("no such upload");
  std::string& bytes = found->second.bytes;
  if (request.data().empty() || request.data().size() > answer_bytes_max_) return absl::InvalidArgumentError("chunk");
  if (request.offset() > static_cast<int64_t>(bytes.size())) return absl::OutOfRangeError("a gap");
  if (request.offset() == static_cast<int64_t>(bytes.size())) bytes += request.data();
  bytes_written_ += static_cast<int64_t>(request.data().size());
  response.set_committed_bytes(static_cast<int64_t>(bytes.size()));
  return absl::OkStatus();
}

absl::Status LocalServer::QueryUpload(const v1::QueryUploadRequest& request, v1::QueryUploadResponse& response) {
  const auto found = uploads_.find(request.upload_id());
  if (found == uploads_.end()) return absl::NotFoundError("no such upload");
  response.set_committed_bytes(static_cast<int64_t>(found->second.bytes.size()));
  response.set_size_bytes(found->second.size);
  return absl::OkStatus();
}

absl::Status LocalServer::FinishUpload(const v1::FinishUploadRequest& request) {
  const auto found = uploads_.find(request.upload_id());
  if (found == uploads_.end()) return absl::NotFoundError("no such upload");
  Upload& upload = found->second;
  if (static_cast<int64_t>(upload.bytes.size()) < upload.size)
    return absl::FailedPreconditionError("bytes are missing");
  if (Sha256Hex(upload.bytes) != upload.digest) {
    uploads_.erase(found);
    return absl::DataLossError("the digest differs");
  }
  const Upload finished = std::move(upload);
  uploads_.erase(found);
  return Store(finished.digest, finished.bytes);
}

absl::Status LocalServer::Store(const std::string& digest, std::string bytes) {
  if (takes_patches_) {
    const auto view = SafetensorsView::Parse(bytes);
    if (view.ok() && view->metadata().contains("sheaf.base")) {
      const std::string& base = view->metadata().at("sheaf.base");
      const auto blob = blobs_.find(base);
      if (blob == blobs_.end()) return absl::InvalidArgumentError("the base is not there to be patched");
      const auto below = patches_.find(base);
      std::string whole = below == patches_.end() ? blob->second : below->second.whole;
      RETURN_IF_ERROR(ApplySafetensorsPatch(bytes, whole));
      patches_[digest] = {.base = base, .whole = std::move(whole)};
    }
  }
  blobs_[digest] = std::move(bytes);
  return absl::OkStatus();
}

absl::Status LocalServer::ReadBlob(const v1::ReadBlobRequest& request, v1::ReadBlobResponse& response) {
  const auto found = blobs_.find(request.digest());
  if (found == blobs_.end()) return absl::NotFoundError("no such blob");
  if (patches_.contains(request.digest()) && !request.takes_patches()) {
    return absl::FailedPreconditionError("it is a patch");
  }
  response.set_data(found->second.substr(request.offset(), answer_bytes_max_));
  response.set_size_bytes(static_cast<int64_t>(found->second.size()));
  return absl::OkStatus();
}

absl::Status LocalServer::SelectRows(const v1::SelectRowsRequest& request, v1::SelectRowsResponse& response) {
  const auto found = blobs_.find(request.digest());
  if (found == blobs_.end()) return absl::NotFoundError("no such blob");
  ASSIGN_OR_RETURN(const SafetensorsView file, SafetensorsView::Parse(found->second));
  // The cursor is where the next piece begins, "selection:row"; each answer is one piece.
  int i = 0;
  int64_t begin = 0;
  if (!request.cursor().empty()) {
    i = std::stoi(request.cursor());
    begin = std::stoll(request.cursor().substr(request.cursor().find(':') + 1));
  }
  if (i >= request.selections_size()) return absl::OkStatus();
  const v1::RowSelection& selection = request.selections(i);
  ASSIGN_OR_RETURN(const TensorView* tensor, file.Find(selection.tensor()));
  const int64_t num_rows = selection.all() ? tensor->num_rows() : selection.rows_size();
  const int64_t per_piece = std::max<int64_t>(1, static_cast<int64_t>(answer_bytes_max_) / tensor->row_bytes());
  const int64_t end = std::min(num_rows, begin + per_piece);
  v1::SelectRowsResponse::Piece& piece = *response.add_pieces();
  piece.set_selection(i);
  piece.set_first_row(begin);
  piece.mutable_rows()->set_dtype(tensor->dtype);
  piece.mutable_rows()->mutable_shape()->Add(tensor->shape.begin(), tensor->shape.end());
  piece.mutable_rows()->set_shape(0, end - begin);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t from = selection.all() ? row : selection.rows(static_cast<int>(row));
    piece.mutable_rows()->mutable_data()->append(tensor->data.substr(from * tensor->row_bytes(), tensor->row_bytes()));
  }
  if (end < num_rows) {
    response.set_next_cursor(fmt::format("{}:{}", i, end));
  } else if (i + 1 < request.selections_size()) {
    response.set_next_cursor(fmt::format("{}:0", i + 1));
  }
  return absl::OkStatus();
}

absl::Status LocalServer::Compute(const v1::RoundSpec& spec, Sealed& sealed) {
  const auto broadcast = blobs_.find(spec.broadcast_digest());
  if (!spec.broadcast_digest().empty() && broadcast == blobs_.end()) return absl::NotFoundError("no such broadcast");
  ASSIGN_OR_RETURN(RoundAccumulator sum, RoundAccumulator::Create(spec.aggregate()));
  const std::string none;
  const auto patch = patches_.find(spec.broadcast_digest());
  const std::string& file = broadcast == blobs_.end() ? none
                            : patch == patches_.end() ? broadcast->second
                                                      : patch->second.whole;
  std::vector<v1::TaskSpec> tasks(spec.listed().tasks().begin(), spec.listed().tasks().end());
  if (is_reversed_) std::reverse(tasks.begin(), tasks.end());
  for (const v1::TaskSpec& task : tasks) {
    ASSIGN_OR_RETURN(const ValidContribution valid, sum.Validate(compute_(spec, task, file)));
    sum.Accumulate(valid);
  }
  ASSIGN_OR_RETURN(const AggregateReport report, sum.Report());
  // A training would pile up its broadcasts here.
  std::set<std::string> kept = {spec.broadcast_digest()};
  for (auto next = patch; next != patches_.end(); next = patches_.find(next->second.base)) {
    kept.insert(next->second.base);
  }
  std::erase_if(blobs_, [&](const auto& blob) { return !kept.contains(blob.first); });
  std::erase_if(patches_, [&](const auto& each) { return !kept.contains(each.first); });
  sealed.aggregate = EncodeSafetensors(report.tensors, {});
  if (tamper_) tamper_(sealed.aggregate);
  sealed.round.mutable_aggregate()->set_digest(Sha256Hex(sealed.aggregate));
  sealed.round.mutable_spec()->set_broadcast_digest(spec.broadcast_digest());
  sealed.round.set_state(v1::COLLECTING);
  sealed.round.set_etag("1");
  return absl::OkStatus();
}

absl::Status LocalServer::CreateRound(const v1::CreateRoundRequest& request, v1::CreateRoundResponse& response) {
  Sealed sealed{.spec = request.spec()};
  sealed.round.set_id(fmt::format("r-{}", rounds_.size()));
  *sealed.round.mutable_spec() = request.spec();
  sealed.round.mutable_spec()->clear_work();
  if (request.spec().announced()) {
    sealed.round.set_state(announced_state_);
    sealed.round.set_etag("0");
  } else {
    RETURN_IF_ERROR(Compute(request.spec(), sealed));
  }
  *response.mutable_round() = sealed.round;
  rounds_.push_back(std::move(sealed));
  return absl::OkStatus();
}

absl::Status LocalServer::OpenRound(const v1::OpenRoundRequest& request, v1::OpenRoundResponse& response) {
  Sealed* sealed = Find(request.round());
  if (sealed == nullptr) return absl::NotFoundError(fmt::format("there is no round {}", request.round()));
  if (sealed->round.state() != v1::ANNOUNCED) {
    return absl::FailedPreconditionError(fmt::format("round {} cannot be opened any more", request.round()));
  }
  if (request.broadcast().size() > inline_bytes_max_) return absl::ResourceExhaustedError("the broadcast is too large");
  v1::RoundSpec spec = sealed->spec;
  spec.set_broadcast_digest(request.broadcast_digest());
  if (!request.broadcast().empty()) {
    spec.set_broadcast_digest(Sha256Hex(request.broadcast()));
    RETURN_IF_ERROR(Store(spec.broadcast_digest(), request.broadcast()));
  }
  RETURN_IF_ERROR(Compute(spec, *sealed));
  *response.mutable_round() = sealed->round;
  return absl::OkStatus();
}

absl::Status LocalServer::CancelRound(const v1::CancelRoundRequest& request, v1::CancelRoundResponse& response) {
  Sealed* sealed = Find(request.round());
  if (sealed == nullptr) return absl::NotFoundError(fmt::format("there is no round {}", request.round()));
  sealed->round.set_state(v1::CANCELLED);
  sealed->round.set_error(request.reason());
  *response.mutable_round() = sealed->round;
  return absl::OkStatus();
}

std::vector<v1::Round> LocalServer::rounds() const {
  std::vector<v1::Round> rounds;
  for (const Sealed& sealed : rounds_) rounds.push_back(sealed.round);
  return rounds;
}

LocalServer::Sealed* LocalServer::Find(const std::string& round) {
  const auto found =
      std::find_if(rounds_.begin(), rounds_.end(), [&](const Sealed& sealed) { return sealed.round.id() == round; });
  return found == rounds_.end() ? nullptr : &*found;
}

absl::Status LocalServer::GetRound(const v1::GetRoundRequest& request, v1::GetRoundResponse& response) {
  Sealed* sealed = Find(request.round());
  if (sealed == nullptr) return absl::NotFoundError(fmt::format("there is no round {}", request.round()));
  if (request.etag() == "1") {
    sealed->round.set_state(round_state_);
    sealed->round.set_etag("2");
    if (round_state_ != v1::SUCCEEDED) sealed->round.set_error("too few contributions came before the deadline");
  }
  *response.mutable_round() = sealed->round;
  if (static_cast<int64_t>(sealed->aggregate.size()) <= aggregates_inline_max_ &&
      static_cast<int64_t>(sealed->aggregate.size()) <= request.aggregate_bytes_max() &&
      sealed->round.state() == v1::SUCCEEDED) {
    response.set_aggregate_file(sealed->aggregate);
  }
  return absl::OkStatus();
}

absl::Status LocalServer::ReadAggregate(const v1::ReadAggregateRequest& request, v1::ReadAggregateResponse& response) {
  const Sealed* sealed = Find(request.round());
  if (sealed == nullptr) return absl::NotFoundError(fmt::format("there is no round {}", request.round()));
  response.set_data(sealed->aggregate.substr(request.offset(), answer_bytes_max_));
  response.set_size_bytes(static_cast<int64_t>(sealed->aggregate.size()));
  response.set_digest(sealed->round.aggregate().digest());
  return absl::OkStatus();
}

}  // namespace sheaf
