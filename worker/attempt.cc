#include "worker/attempt.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "aggregation/operators.h"
#include "aggregation/wire/tensor.h"
#include "base/check.h"
#include "base/log.h"
#include "proto/time.h"
#include "sdk/cpp/client/blob_client.h"
#include "sdk/cpp/client/broadcast_fetch.h"

namespace sheaf {
namespace {

// Renewals of one lease are at least this far apart, however little of it remains.
constexpr absl::Duration kRenewalPauseMin = absl::Milliseconds(100);

// A worker that is restarted under its name is sent again what it held, and begins anew; the server renews a lease when
// its progress grows beyond what the first life reported. So each life starts above those before it, as long as the
// clock does not go back.
constexpr int kProgressPerSecondBits = 30;

// What the server shows of one attempt. A computation that asks for rows again and again has more: the last is of all
// that comes then.
constexpr int kIntervalsMax = 64;
constexpr std::string_view kManyPhases = "various";

void AddDuration(absl::Duration duration, google::protobuf::Duration* proto) {
  *proto = ToProto(FromProto(*proto) + duration);
}

// As PhaseInterval.phase has it.
std::string_view PhaseName(Attempt::Phase phase) {
  switch (phase) {
    case Attempt::Phase::kPreparing:
      return "prepare";
    case Attempt::Phase::kPrepared:
      return "prepared";
    case Attempt::Phase::kFetching:
      return "download";
    case Attempt::Phase::kRunning:
      return "compute";
    default:
      return "upload";
  }
}

struct Stretch {
  std::string_view phase;
  // From when the worker had the lease.
  absl::Duration begin;
  absl::Duration end;
};
void AddInterval(const Stretch& stretch, v1::AttemptTimings& timings) {
  if (stretch.end <= stretch.begin) return;
  if (timings.intervals_size() == kIntervalsMax) {
    v1::AttemptTimings::Interval& last = *timings.mutable_intervals(kIntervalsMax - 1);
    last.set_phase(std::string(kManyPhases));
    *last.mutable_end() = ToProto(stretch.end);
    return;
  }
  v1::AttemptTimings::Interval& added = *timings.add_intervals();
  added.set_phase(std::string(stretch.phase));
  *added.mutable_begin() = ToProto(stretch.begin);
  *added.mutable_end() = ToProto(stretch.end);
}

// Of one contribution; as many as there can be if the shapes are beyond all numbers.
int64_t DenseBytes(const v1::AggregateSpec& aggregate) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t total = 0;
  for (const v1::OutputSpec& output : aggregate.outputs()) {
    const Operator* op = FindOperator(Operators(), output.operator_());
    if (op == nullptr || op->operand != Operand::kDense) continue;
    int64_t bytes = DTypeSize(output.dtype());
    for (const int64_t size : output.dense_shape()) {
      if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 0), &bytes)) return kMost;
    }
    if (__builtin_add_overflow(total, bytes, &total)) return kMost;
  }
  return total;
}

}  // namespace

absl::Status Attempt::TooLarge(std::string_view what, int64_t bytes) const {
  return absl::ResourceExhaustedError(
      fmt::format("{} {} bytes and this worker returns at most {}: raise its --contribution-megabytes", what, bytes,
                  parts_.contribution_bytes_max));
}

Attempt::Attempt(v1::Lease lease, Parts& parts)
    : lease_(std::make_shared<const v1::Lease>(std::move(lease))),
      parts_(parts),
      is_open_(!lease_->announced()),
      broadcast_digest_(lease_->broadcast_digest()) {
  result_.set_task(lease_->task());
  result_.set_lease_token(lease_->lease_token());
}

void Attempt::Start(absl::Time now) {
  start_ = phase_start_ = now;
  progress_base_ = absl::ToUnixSeconds(now) << kProgressPerSecondBits;
  // Before anything of that size is made.
  if (const int64_t bytes = DenseBytes(lease_->aggregate()); bytes > parts_.contribution_bytes_max) {
    return Fail(TooLarge("the dense outputs of the round take", bytes));
  }
  busy_ = true;
  int& busy = is_ahead() ? parts_.busy_ahead : parts_.busy;
  ++busy;
  parts_.runner.Prepare(
      lease_, control_,
      [inbox = parts_.inbox, &busy, weak = weak_from_this()](absl::StatusOr<std::shared_ptr<PreparedTask>> task) {
        inbox->Post([&busy, weak, task = std::move(task)](absl::Time when) {
          --busy;
          if (auto attempt = weak.lock()) attempt->OnPrepared(task, when);
        });
      });
}

void Attempt::OnPrepared(absl::StatusOr<std::shared_ptr<PreparedTask>> task, absl::Time now) {
  busy_ = false;
  if (phase_ != Phase::kPreparing) return;
  Enter(lease_->announced() ? Phase::kPrepared : Phase::kFetching, now);
  if (!task.ok()) return Fail(task.status());
  task_ = *std::move(task);
  if (phase_ == Phase::kFetching) Fetch(task_->input_request(), now);
}

void Attempt::Open(const std::string& broadcast_digest) {
  if (is_open_) return;
  is_open_ = true;
  broadcast_digest_ = broadcast_digest;
}

void Attempt::GoOn(absl::Time now) {
  SHEAF_CHECK(phase_ == Phase::kPrepared && is_open_, "task {} is not ready to run", lease_->task());
  Enter(Phase::kFetching, now);
  Fetch(task_->input_request(), now);
}

void Attempt::Fetch(InputRequest request, absl::Time now) {
  request_ = std::move(request);
  inputs_ = std::make_shared<TaskInputs>();
  inputs_->broadcast_digest = broadcast_digest_;
  if (broadcast_digest_.empty() && request_.is_optional) request_.whole_broadcast = false;
  if ((request_.whole_broadcast || !request_.selections.empty()) && broadcast_digest_.empty()) {
    return Fail(absl::InvalidArgumentError(
        fmt::format("computation \"{}\" needs a broadcast and round {} has none: create the round with one",
                    lease_->computation().name(), lease_->round())));
  }
  FetchBroadcast(now);
}

void Attempt::FetchBroadcast(absl::Time now) {
  if (!request_.whole_broadcast) return FetchRows(now);
  inputs_->broadcast = parts_.cache.Find(broadcast_digest_);
  if (inputs_->broadcast != nullptr) return FetchRows(now);
  const auto find = [&cache = parts_.cache](const std::string& digest) { return cache.Find(digest); };
  BroadcastFetch::Options options = {
      .find = find, .bytes_max = parts_.broadcast_bytes_max, .chunk_size = &parts_.chunk_size};
  Drive(std::make_unique<BroadcastFetch>(broadcast_digest_, std::move(options)), now, &Attempt::OnBroadcast);
}

void Attempt::OnBroadcast(absl::Time now) {
  auto& fetch = static_cast<BroadcastFetch&>(driver_->sequence());
  if (!fetch.status().ok()) return Fail(fetch.status());
  inputs_->broadcast = std::make_shared<const std::string>(fetch.TakeBytes());
  parts_.cache.Insert(broadcast_digest_, inputs_->broadcast);
  v1::AttemptTimings* timings = result_.mutable_timings();
  timings->set_bytes_down(timings->bytes_down() + fetch.bytes_received());
  FetchRows(now);
}

void Attempt::FetchRows(absl::Time now) {
  if (request_.selections.empty()) return Run(now);
  Drive(std::make_unique<RowFetch>(broadcast_digest_, std::move(request_.selections), parts_.broadcast_bytes_max), now,
        &Attempt::OnRows);
}

void Attempt::OnRows(absl::Time now) {
  auto& fetch = static_cast<RowFetch&>(driver_->sequence());
  if (!fetch.status().ok()) return Fail(fetch.status());
  v1::AttemptTimings* timings = result_.mutable_timings();
  timings->set_bytes_down(timings->bytes_down() + fetch.bytes_received());
  inputs_->selected = fetch.TakeTensors();
  Run(now);
}

void Attempt::Run(absl::Time now) {
  Enter(Phase::kRunning, now);
  driver_.reset();
  busy_ = true;
  ++parts_.busy;
  parts_.runner.Run(
      task_, std::move(inputs_), control_,
      [inbox = parts_.inbox, &parts = parts_, weak = weak_from_this()](absl::StatusOr<RunOutcome> outcome) {
        // Shared, because an event is copyable and a contribution should not be copied.
        auto shared = std::make_shared<absl::StatusOr<RunOutcome>>(std::move(outcome));
        inbox->Post([&parts, weak, shared](absl::Time when) {
          --parts.busy;
          if (auto attempt = weak.lock()) attempt->OnRun(std::move(*shared), when);
        });
      });
}

void Attempt::OnRun(absl::StatusOr<RunOutcome> outcome, absl::Time now) {
  busy_ = false;
  if (phase_ != Phase::kRunning) return;
  if (outcome.ok() && std::holds_alternative<InputRequest>(*outcome)) {
    Enter(Phase::kFetching, now);
    return Fetch(std::get<InputRequest>(*std::move(outcome)), now);
  }
  task_.reset();
  Enter(Phase::kUploading, now);
  if (!outcome.ok()) return Fail(outcome.status());
  if (const auto* declined = std::get_if<Declined>(&*outcome)) return Release(declined->reason);
  Finish(std::get<std::string>(*std::move(outcome)), now);
}

void Attempt::Finish(std::string contribution, absl::Time now) {
  int64_t size = static_cast<int64_t>(contribution.size());
  if (size > parts_.contribution_bytes_max) return Fail(TooLarge("the contribution has", size));
  if (lease_->contribution_bytes_max() > 0 && size > lease_->contribution_bytes_max()) {
    return Fail(absl::InvalidArgumentError(
        fmt::format("the contribution has {} bytes and round {} takes at most {}: raise the round's limit or send less",
                    size, lease_->round(), lease_->contribution_bytes_max())));
  }
  if (size <= parts_.inline_bytes_max) {
    result_.set_contribution(std::move(contribution));
    return Ready();
  }
  contribution_ = std::move(contribution);
  Upload(now);
}

void Attempt::Upload(absl::Time now) {
  UploadParams params{.bytes = contribution_,
                      .request_id = parts_.random.Token(26),
                      .task = lease_->task(),
                      .lease_token = lease_->lease_token(),
                      .chunk_size = &parts_.chunk_size};
  Drive(std::make_unique<UploadSession>(std::move(params)), now, &Attempt::OnUploaded);
}

void Attempt::OnUploaded(absl::Time now) {
  const auto& upload = static_cast<const UploadSession&>(driver_->sequence());
  if (!upload.status().ok()) return Fail(upload.status());
  switch (upload.verdict()) {
    case v1::StartUploadResponse::NOT_NEEDED:
      LogDebug("task {}: the round does not need this contribution any more", lease_->task());
      phase_ = Phase::kEnded;
      return;
    case v1::StartUploadResponse::LEASE_LOST:
      LogInfo("task {}: the lease was lost before its contribution was uploaded", lease_->task());
      phase_ = Phase::kEnded;
      return;
    default:
      result_.set_upload_id(upload.upload_id());
      contribution_.clear();
      Enter(Phase::kUploading, now);
      Ready();
  }
}

void Attempt::Fail(const absl::Status& status) {
  if (phase_ == Phase::kEnded) return;
  LogWarning("task {}: {}", lease_->task(), status.ToString());
  v1::TaskResult::Failure* failure = result_.mutable_failure();
  failure->set_message(status.ToString());
  failure->set_permanent(absl::IsInvalidArgument(status));
  Ready();
}

void Attempt::Ready() {
  phase_ = Phase::kReady;
  driver_.reset();
  task_.reset();
  inputs_.reset();
}

void Attempt::Cancel() {
  control_->Cancel();
  driver_.reset();
  phase_ = Phase::kEnded;
}

void Attempt::Release(std::string_view reason) {
  control_->Cancel();
  result_.mutable_release()->set_reason(std::string(reason));
  Ready();
}

void Attempt::Extend(absl::Time sent, absl::Duration remaining) {
  // An answer that was overtaken. A later one may say less: others have shown how long such tasks take.
  if (sent < extended_) return;
  extended_ = sent;
  deadline_ = sent + remaining;
  renew_time_ = sent + std::max(remaining / 3, kRenewalPauseMin);
}

void Attempt::NoteRenewalSent(absl::Time now, bool has_place) {
  renew_time_ = now + std::max((deadline_ - now) / 3, kRenewalPauseMin);
  // A result that waits to be handed in is not a hung computation, and neither is who waits for its round or its turn.
  if (is_ready() || (phase_ == Phase::kPrepared && (has_place || !is_open_))) ++steps_;
}

void Attempt::NoteGrant(const google::protobuf::Timestamp& grant_time) {
  // One that was sent again while it was on its way brought nothing.
  v1::AttemptTimings& timings = *result_.mutable_timings();
  if (!timings.has_grant_time()) *timings.mutable_grant_time() = grant_time;
}

v1::TaskResult Attempt::HandIn(absl::Time now) const {
  v1::TaskResult result = result_;
  // Of one that was never started there is nothing to tell.
  if (result.timings().intervals_size() > 0) {
    *result.mutable_timings()->mutable_handed_in() = ToProto(now - start_);
  }
  return result;
}

int64_t Attempt::progress() const {
  return progress_base_ + steps_ + control_->progress() + (driver_ != nullptr ? driver_->answers() : 0);
}

void Attempt::Step(absl::Time now) {
  if (driver_ != nullptr) driver_->Step(now);
}

absl::Time Attempt::next_time() const { return driver_ != nullptr ? driver_->next_time() : absl::InfiniteFuture(); }

void Attempt::Enter(Phase phase, absl::Time now) {
  v1::AttemptTimings* timings = result_.mutable_timings();
  absl::Duration took = now - phase_start_;
  AddInterval({.phase = PhaseName(phase_), .begin = phase_start_ - start_, .end = now - start_}, *timings);
  switch (phase_) {
    case Phase::kPreparing:
      AddDuration(took, timings->mutable_prepare());
      break;
    case Phase::kPrepared:
      // It waited, and did nothing.
      break;
    case Phase::kFetching:
      AddDuration(took, timings->mutable_download());
      break;
    case Phase::kRunning:
      AddDuration(took, timings->mutable_compute());
      break;
    default:
      AddDuration(took, timings->mutable_upload());
  }
  phase_ = phase;
  phase_start_ = now;
  // What the driver's answers counted so far stays counted.
  steps_ += 1 + (driver_ != nullptr ? driver_->answers() : 0);
  driver_.reset();
}

void Attempt::Drive(std::unique_ptr<CallSequence> sequence, absl::Time now, void (Attempt::*on_done)(absl::Time)) {
  if (driver_ != nullptr) steps_ += driver_->answers();
  driver_ = std::make_shared<SequenceDriver>(SequenceDriver::Parts{parts_.transport, parts_.random, parts_.inbox},
                                             std::move(sequence), parts_.call_timeout,
                                             [weak = weak_from_this(), on_done](absl::Time when) {
                                               if (auto attempt = weak.lock()) ((*attempt).*on_done)(when);
                                             });
  driver_->Step(now);
}

}  // namespace sheaf
