#include "server/calls/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "base/trace_parent.h"

namespace sheaf {
namespace {

// Of the transport's and of ours, for one call, apart from its messages: about.
constexpr int64_t kCallBytes = 1 << 10;

// Of who calls or how much, not of what is asked: an operator wants to see it.
bool IsRefusal(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status) || absl::IsResourceExhausted(status);
}

}  // namespace

Call::Call(CallPipeline& pipeline, const MethodRow& method, std::string connection)
    : pipeline_(pipeline),
      method_(method),
      id_(pipeline.dispatcher().NewCall()),
      client_{.connection = std::move(connection)} {
  pipeline_.Open();
}

Call::~Call() = default;

std::string Call::LogTag() const {
  const std::optional<TraceParent> trace = TraceParent::Parse(traceparent());
  return trace ? fmt::format("trace={}/{}", trace->trace_id, trace->parent_id) : std::string();
}

void Call::Unref() {
  if (num_refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

// --- On its way in --------------------------------------------------------------------------------------------------

void Call::Begin() {
  const LogScope scope(this);
  const absl::Time now = begin_ = pipeline_.Now();
  const int64_t size = request_bytes_ = request_bytes();
  absl::StatusOr<IdentityPtr> caller = pipeline_.Identify([this] { return credentials(); });
  if (!caller.ok()) return End(caller.status());
  caller_ = *std::move(caller);
  client_.identity = caller_->name;
  if (absl::Status status = pipeline_.Enter(method_, *caller_, size, now); !status.ok()) return End(std::move(status));
  admitted_bytes_ = size;
  if (method_.traits.answer == AnswerKind::kControl) {
    if (absl::Status status = pipeline_.answers().CheckControl(client_); !status.ok()) return End(std::move(status));
    return Go();
  }
  steps_.fetch_or(kWaits);
  // Whoever makes room goes on.
  pipeline_.answers().Reserve(id_, method_.traits.answer, client_, now, [this](absl::StatusOr<AnswerEntry*> entry) {
    steps_.fetch_and(static_cast<uint8_t>(~kWaits));
    if (!entry.ok()) return End(entry.status());
    entry_ = *entry;
    Go();
  });
}

void Call::Go() {
  if (method_.is_in_batch && !CallPipeline::CountsParts(request_bytes())) return Dispatch();
  pipeline_.dispatcher().pool().Run(peer(), method_.traits.length, [this] { Dispatch(); });
}

absl::Status Call::Parse() {
  const google::protobuf::Descriptor& type = *method_.request->GetDescriptor();
  if (CallPipeline::CountsParts(request_bytes())) {
    RETURN_IF_ERROR(
        Read([&](google::protobuf::io::ZeroCopyInputStream& stream) { return pipeline_.CheckParts(type, stream); }));
  }
  request_.reset(method_.request->New());
  RETURN_IF_ERROR(Read([&](google::protobuf::io::ZeroCopyInputStream& stream) {
    if (request_->ParseFromZeroCopyStream(&stream)) return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format("the request is not a serialised {}", type.full_name()));
  }));
  FreeRequest();
  response_.reset(method_.response->New());
  return absl::OkStatus();
}

void Call::Dispatch() {
  const LogScope scope(this);
  if (absl::Status status = Parse(); !status.ok()) return End(std::move(status));
  if ((steps_.load() & kIsCancelled) != 0) return End(absl::CancelledError("the caller has gone"));
  // What of a read is not the chunk has its own room.
  int64_t answer_bytes_max = entry_ == nullptr ? 0 : std::max<int64_t>(entry_->bytes - AnswerBooks::kFrameBytes, 1);
  if (const int64_t asked = answer_bytes_asked(); asked > 0 && answer_bytes_max > 0) {
    answer_bytes_max = std::min(answer_bytes_max, asked);
  }
  num_refs_.fetch_add(1, std::memory_order_relaxed);
  const auto done = [this](absl::Status status) { End(std::move(status)); };
  const std::string client = method_.traits.answer == AnswerKind::kRead ? peer() : std::string();
  if (Forwarder* const forwarder = pipeline_.forwarder(); forwarder != nullptr) {
    forwarder->Forward(id_, method_,
                       {.identity = caller_,
                        .shown = credentials(),
                        .connection = client_.connection,
                        .client = client,
                        .traceparent = traceparent(),
                        .answer_bytes_max = answer_bytes_max,
                        .asks_only = asks_only(),
                        .forwarded_to = forwarded_to(),
                        .log_source = this},
                       *request_, response_.get(), done);
  } else {
    pipeline_.dispatcher().Dispatch(method_,
                                    {.id = id_,
                                     .caller = caller_,
                                     .client = client,
                                     .answer_bytes_max = answer_bytes_max,
                                     .asks_only = asks_only(),
                                     .log_source = this},
                                    *request_, response_.get(), done);
  }
  // A cancellation that came before this could not be told to a call that had perhaps not begun: it was left to us. One
  // that comes after it is Cancel's to tell.
  const uint8_t before = steps_.fetch_or(kIsDispatched);
  if ((before & kIsCancelled) != 0 && (before & kIsAnswered) == 0) Abandon();
  Unref();
}

void Call::Abandon() {
  pipeline_.forwarder() != nullptr ? pipeline_.forwarder()->Abandon(id_, method_, *caller_)
                                   : pipeline_.dispatcher().Abandon(method_, *caller_, id_);
}

void Call::Cancel() {
  const uint8_t before = steps_.fetch_or(kIsCancelled);
  if ((before & kIsCancelled) != 0) return;
  if ((before & kIsDispatched) != 0 && (before & kIsAnswered) == 0) Abandon();
  if ((before & kWaits) != 0) pipeline_.answers().Abandon(id_);
}

// --- On its way out -------------------------------------------------------------------------------------------------

absl::Status Call::EnterAnswer(absl::Status status) {
  int64_t written_bytes = 0;
  if (status.ok()) {
    const absl::StatusOr<int64_t> written = Write(*response_);
    status = written.status();
    if (written.ok()) written_bytes = *written;
  }
  const int64_t size = kCallBytes + written_bytes;
  response_.reset();
  AnswerBooks& answers = pipeline_.answers();
  const absl::Time now = pipeline_.Now();
  if (entry_ == nullptr && status.ok()) {
    absl::StatusOr<AnswerEntry*> entry = answers.Take(client_, size, now, *this);
    if (entry.ok()) entry_ = *entry;
    status = entry.status();
  } else if (entry_ != nullptr) {
    answers.Send(entry_, status.ok() ? size : 0, now, *this);
  }
  if (!status.ok()) FreeAnswer();
  if (entry_ == nullptr) entry_ = answers.TakeError(client_, now, *this);
  pipeline_.figures().Count(method_, {.code = status.code(),
                                      .took = now - begin_,
                                      .request_bytes = request_bytes_,
                                      .answer_bytes = status.ok() ? written_bytes : 0});
  if (IsLogged(LogLevel::kDebug)) {
    LogDebug("{} from {}: {} in {}", method_.name, client_.connection, absl::StatusCodeToString(status.code()),
             absl::FormatDuration(now - begin_));
  }
  return status;
}

void Call::End(absl::Status status) {
  const LogScope scope(this);
  steps_.fetch_or(kIsAnswered);
  // A hundred thousand tasks take their time to be freed, too: not the core's.
  if (request_ != nullptr && CallPipeline::CountsParts(*admitted_bytes_)) {
    std::shared_ptr<const google::protobuf::Message> request = std::move(request_);
    pipeline_.dispatcher().pool().Run(peer(), CallPool::Length::kShort, [request = std::move(request)] {});
  }
  request_.reset();
  FreeRequest();
  status = EnterAnswer(std::move(status));
  if (IsRefusal(status)) {
    pipeline_.figures().CountRefusal(status);
    pipeline_.NoteRefusal(method_.name, client_.connection, status);
  }
  // In this order: once the last call is sent, a server that shuts down may destroy the pipeline.
  if (admitted_bytes_) pipeline_.Leave(*caller_, *admitted_bytes_);
  pipeline_.Close();
  Send(status);
}

void Call::OnSent() {
  if (entry_ != nullptr) pipeline_.answers().Release(std::exchange(entry_, nullptr));
  Unref();
}

}  // namespace sheaf
