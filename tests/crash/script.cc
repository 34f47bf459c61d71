#include "tests/crash/script.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checksum.h"
#include "probe/one_hot.h"
#include "proto/time.h"

namespace sheaf::crash {
namespace {

constexpr size_t kLiveRounds = 4;
constexpr int64_t kChunkBytes = 900;

}  // namespace

std::string OneHot(int coordinate, const v1::AggregateSpec& spec) {
  return OneHotContribution(spec, coordinate, OneHotForm::kAlone).value().SerializeAsString();
}

template <typename T>
bool Script::Succeeded(const char* what, const absl::StatusOr<T>& result) {
  if (result.ok()) return true;
  const bool is_expected = std::find(expected_.begin(), expected_.end(), result.status().code()) != expected_.end();
  if (!is_expected && !absl::IsUnavailable(result.status())) {
    ledger_.complaints.push_back(fmt::format("{}: {}", what, result.status().ToString()));
  }
  return false;
}

v1::SyncRequest Script::Ask(const std::string& worker, int want) {
  v1::SyncRequest request;
  request.set_protocol_version(1);
  request.set_worker(worker);
  request.set_poll_id(fmt::format("poll-{}", ++num_requests_));
  request.add_computations()->set_name("noop");
  request.mutable_computations(0)->set_version(1);
  request.set_want(want);
  return request;
}

v1::TaskResult Script::ResultOf(const Held& held) {
  v1::TaskResult result;
  result.set_task(held.lease.task());
  result.set_lease_token(held.lease.lease_token());
  if (held.is_uploaded) {
    result.set_upload_id(held.upload_id);
  } else {
    result.set_contribution(held.bytes);
  }
  return result;
}

void Script::Step(DiskServer& server) {
  clock_.Advance(absl::Milliseconds(100));
  if (random_.Chance(0.02)) clock_.Advance(absl::Seconds(40));  // Leases expire.
  if (unanswered_create_ || live_.size() < kLiveRounds) return Create(server);
  const uint64_t choice = random_.Below(100);
  if (choice < 2) return Cancel(server);
  if (choice < 8) return Look(server);
  if (choice < 14 && !handed_in_.empty()) return Replay(server);
  if (choice < 36 || held_.empty()) return Lease(server);
  const size_t which = random_.Below(held_.size());
  if (choice < 42) return Renew(server, which);
  if (choice < 48) return GiveUp(server, which);
  Contribute(server, which);
}

void Script::Create(DiskServer& server) {
  if (!unanswered_create_) {
    v1::CreateRoundRequest request;
    request.set_request_id(fmt::format("request-{}", ++num_requests_));
    v1::RoundSpec& spec = *request.mutable_spec();
    spec.mutable_computation()->set_name("noop");
    v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
    output.set_name("x");
    output.set_operator_(random_.Chance(0.5) ? "sum" : "sparse_sum");
    output.set_dtype(v1::INT32);
    output.add_dense_shape(kCoordinates);
    const auto num_tasks = static_cast<int>(3 + random_.Below(6));
    for (int i = 0; i < num_tasks; ++i) spec.mutable_listed()->add_tasks()->set_payload(std::to_string(i));
    if (random_.Chance(0.3)) spec.set_goal(num_tasks - 1);
    spec.set_min_goal(1);
    spec.set_durability(random_.Chance(0.65) ? v1::DURABLE : v1::EPHEMERAL);
    *spec.mutable_deadline() = ToProto(absl::Hours(1));
    if (random_.Chance(0.3)) spec.set_broadcast_digest(Broadcast(server));
    unanswered_create_ = std::move(request);
  }
  const auto response = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", *unanswered_create_);
  // It is deleted a while after the last round that used it, and may not have been stored.
  if (absl::IsNotFound(response.status())) {
    unanswered_create_->mutable_spec()->clear_broadcast_digest();
    return;
  }
  if (!Succeeded("create", response)) return;
  unanswered_create_.reset();
  ledger_.created.push_back(response->round().id());
  live_.push_back(response->round().id());
}

std::string Script::Broadcast(DiskServer& server) {
  if (!broadcasts_.empty() && random_.Chance(0.3)) return broadcasts_[random_.Below(broadcasts_.size())];
  const std::string bytes = random_.Token(1500);
  v1::StartUploadRequest start;
  start.set_request_id(fmt::format("request-{}", ++num_requests_));
  start.set_digest(Sha256Hex(bytes));
  start.set_size_bytes(static_cast<int64_t>(bytes.size()));
  const auto started = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start);
  if (!Succeeded("start broadcast", started)) return "";
  v1::WriteChunkRequest chunk;
  chunk.set_upload_id(started->upload_id());
  chunk.set_data(bytes);
  if (!Succeeded("write broadcast", server.Call<v1::WriteChunkResponse>("BlobService/WriteChunk", chunk))) return "";
  v1::FinishUploadRequest finish;
  finish.set_upload_id(started->upload_id());
  if (!Succeeded("finish broadcast", server.Call<v1::FinishUploadResponse>("BlobService/FinishUpload", finish))) {
    return "";
  }
  broadcasts_.push_back(start.digest());
  return start.digest();
}

void Script::Lease(DiskServer& server) {
  const std::string worker = fmt::format("w{}", random_.Below(4));
  v1::SyncRequest request = Ask(worker, 1 + static_cast<int>(random_.Below(3)));
  for (const Held& held : held_) {
    if (held.worker != worker) continue;
    v1::HeldLease& known = *request.add_held();
    known.set_task(held.lease.task());
    known.set_lease_token(held.lease.lease_token());
  }
  const auto response = server.Call<v1::SyncResponse>("WorkService/Sync", request);
  if (!Succeeded("lease", response)) return;
  for (const v1::Lease& lease : response->leases()) {
    held_.push_back({.worker = worker, .lease = lease, .is_uploaded = random_.Chance(0.4)});
  }
}

void Script::Contribute(DiskServer& server, size_t which) {
  Held& held = held_[which];
  if (held.coordinate < 0) {
    if (ledger_.attempted.size() >= kFinisherCoordinates) return GiveUp(server, which);
    held.coordinate = static_cast<int>(ledger_.attempted.size());
    held.bytes = OneHot(held.coordinate, held.lease.aggregate());
    ledger_.attempted.push_back(held.lease.task());
  }
  if (!held.is_uploaded) return HandIn(server, which);
  bool is_lost = false;
  if (Upload(server, held, is_lost)) HandIn(server, which);
  if (is_lost) held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
}

bool Script::Upload(DiskServer& server, Held& held, bool& is_lost) {
  const auto begin_again = [&held](const absl::Status& status) {
    // An upload may be forgotten by a crash until it is finished; DATA_LOSS says that it was deleted.
    if (!absl::IsNotFound(status) && !absl::IsDataLoss(status)) return false;
    held.upload_id.clear();
    held.is_finished = false;
    return true;
  };
  const auto size = static_cast<int64_t>(held.bytes.size());
  if (held.upload_id.empty()) {
    v1::StartUploadRequest start;
    start.set_request_id(fmt::format("request-{}", ++num_requests_));
    start.set_digest(Sha256Hex(held.bytes));
    start.set_size_bytes(size);
    start.mutable_contribution()->set_task(held.lease.task());
    start.mutable_contribution()->set_lease_token(held.lease.lease_token());
    const auto started = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start);
    if (!Succeeded("start upload", started)) return false;
    is_lost = started->verdict() != v1::StartUploadResponse::SEND;
    held.upload_id = started->upload_id();
    held.committed_bytes = started->committed_bytes();
    return false;
  }
  if (held.committed_bytes < size) {
    v1::WriteChunkRequest chunk;
    chunk.set_upload_id(held.upload_id);
    chunk.set_offset(held.committed_bytes);
    chunk.set_data(held.bytes.substr(held.committed_bytes, kChunkBytes));
    const auto written = server.Call<v1::WriteChunkResponse>("BlobService/WriteChunk", chunk);
    // A crash may have left less than was written.
    if (absl::IsOutOfRange(written.status())) held.upload_id.clear();
    if (begin_again(written.status()) || absl::IsOutOfRange(written.status())) return false;
    if (Succeeded("write chunk", written)) held.committed_bytes = written->committed_bytes();
    return false;
  }
  if (held.is_finished) return true;
  v1::FinishUploadRequest finish;
  finish.set_upload_id(held.upload_id);
  const auto finished = server.Call<v1::FinishUploadResponse>("BlobService/FinishUpload", finish);
  if (absl::IsFailedPrecondition(finished.status())) held.upload_id.clear();
  if (begin_again(finished.status()) || absl::IsFailedPrecondition(finished.status())) return false;
  held.is_finished = Succeeded("finish upload", finished);
  if (held.is_finished) *ledger_.uploaded.emplace_back(Ask(held.worker, 0)).add_results() = ResultOf(held);
  return held.is_finished;
}

void Script::HandIn(DiskServer& server, size_t which) {
  Held& held = held_[which];
  v1::SyncRequest request = Ask(held.worker, 0);
  *request.add_results() = ResultOf(held);
  const auto response = server.Call<v1::SyncResponse>("WorkService/Sync", request);
  if (!Succeeded("hand in", response)) return;
  const v1::ResultVerdict& verdict = response->verdicts(0);
  if (verdict.verdict() == v1::ResultVerdict::ACCEPTED || verdict.verdict() == v1::ResultVerdict::DUPLICATE) {
    ledger_.accepted.push_back(held.coordinate);
  }
  if (verdict.verdict() == v1::ResultVerdict::REJECTED || verdict.verdict() == v1::ResultVerdict::UNKNOWN_TASK) {
    ledger_.complaints.push_back(fmt::format("{} is refused: {}", held.lease.task(), verdict.message()));
  }
  handed_in_.push_back(held);
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
}

void Script::Replay(DiskServer& server) {
  const Held& held = handed_in_[random_.Below(handed_in_.size())];
  v1::SyncRequest request = Ask(held.worker, 0);
  *request.add_results() = ResultOf(held);
  Succeeded("replay", server.Call<v1::SyncResponse>("WorkService/Sync", request));
}

void Script::Renew(DiskServer& server, size_t which) {
  const Held& held = held_[which];
  v1::SyncRequest request = Ask(held.worker, 0);
  v1::HeldLease& known = *request.add_held();
  known.set_task(held.lease.task());
  known.set_lease_token(held.lease.lease_token());
  known.set_progress(++num_requests_);
  const auto response = server.Call<v1::SyncResponse>("WorkService/Sync", request);
  if (!Succeeded("renew", response) || response->held(0).verdict() == v1::LeaseUpdate::HELD) return;
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
}

void Script::GiveUp(DiskServer& server, size_t which) {
  const Held& held = held_[which];
  v1::SyncRequest request = Ask(held.worker, 0);
  v1::TaskResult& result = *request.add_results();
  result.set_task(held.lease.task());
  result.set_lease_token(held.lease.lease_token());
  if (random_.Chance(0.4)) {
    result.mutable_release()->set_reason("going away");
  } else {
    result.mutable_failure()->set_message("out of luck");
    result.mutable_failure()->set_permanent(random_.Chance(0.1));
  }
  if (!Succeeded("give up", server.Call<v1::SyncResponse>("WorkService/Sync", request))) return;
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
}

void Script::Look(DiskServer& server) {
  for (size_t i = 0; i < live_.size(); ++i) {
    v1::GetRoundRequest request;
    request.set_round(live_[i]);
    const auto response = server.Call<v1::GetRoundResponse>("RoundService/GetRound", request);
    if (!Succeeded("look", response)) return;
    const v1::RoundState state = response->round().state();
    if (state != v1::SUCCEEDED && state != v1::FAILED && state != v1::CANCELLED) continue;
    ledger_.ended.push_back({live_[i], state, response->round().aggregate().digest()});
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(i--));
  }
}

void Script::Cancel(DiskServer& server) {
  v1::CancelRoundRequest request;
  request.set_request_id(fmt::format("request-{}", ++num_requests_));
  request.set_round(live_[random_.Below(live_.size())]);
  ledger_.cancelled.push_back(request.round());
  const auto response = server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", request);
  // It may have ended otherwise by now.
  if (absl::IsFailedPrecondition(response.status()) || !Succeeded("cancel", response)) return;
  ledger_.ended.push_back({request.round(), v1::CANCELLED, ""});
  live_.erase(std::find(live_.begin(), live_.end(), request.round()));
}

}  // namespace sheaf::crash
