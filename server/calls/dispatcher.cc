#include "server/calls/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "server/core/core.h"

namespace sheaf {
namespace {

// To write as much takes less than to hand it over.
constexpr size_t kWrittenAtOnceBytesMax = 64 << 10;

}  // namespace

Dispatcher::Dispatcher(const MethodTable& methods, Executor& executor, Core& core, Admission& admission, CallPool* pool)
    : methods_(methods),
      executor_(executor),
      core_(core),
      admission_(admission),
      pool_(pool != nullptr ? *pool : at_once_) {}

void Dispatcher::Dispatch(std::string_view method, CallContext context, const google::protobuf::Message& request,
                          google::protobuf::Message* response, Done done) const {
  const MethodRow* row = methods_.Find(method);
  if (row == nullptr) return done(absl::UnimplementedError(fmt::format("there is no method {}", method)));
  Dispatch(*row, std::move(context), request, response, std::move(done));
}

void Dispatcher::Dispatch(const MethodRow& method, CallContext context, const google::protobuf::Message& request,
                          google::protobuf::Message* response, Done done) const {
  if (absl::Status status = context.caller->CheckRole(method.name, method.traits.roles); !status.ok()) {
    return done(std::move(status));
  }
  const int64_t chunk = core_.limits().chunk_bytes_max;
  context.answer_bytes_max = context.answer_bytes_max == 0 ? chunk : std::min(chunk, context.answer_bytes_max);
  if (!method.is_in_batch) {
    absl::Status status = CheckScope(method, request, context);
    if (!status.ok() || context.asks_only) return done(std::move(status));
    return method.run(request, context, response, std::move(done));
  }
  admission_.Queue(method.traits.lane, *context.caller);
  // The event is gone once it has run, and what it holds with it.
  const IdentityPtr caller = context.caller;
  auto event = [this, call = Dispatched{.method = &method,
                                        .context = std::move(context),
                                        .request = &request,
                                        .response = response,
                                        .done = std::move(done)}](absl::Time now) mutable {
    executor_.NoteWork(call.method->name);
    admission_.Dequeue(call.method->traits.lane, *call.context.caller);
    call.context.now = now;
    RunInBatch(call);
  };
  method.traits.lane == Lane::kInspection ? executor_.PostUrgent(std::move(event))
                                          : executor_.PostCall(caller->name, std::move(event));
}

void Dispatcher::Abandon(const MethodRow& method, const Identity& caller, CallId call) const {
  if (!method.abandon) return;
  // Behind the call itself, which may not have begun.
  executor_.PostCall(caller.name, [&method, call](absl::Time) { method.abandon(call); });
}

void Dispatcher::RunInBatch(const Dispatched& call) const {
  const LogScope scope(call.context.log_source);
  absl::Status allowed = CheckScope(*call.method, *call.request, call.context);
  if (!allowed.ok() || call.context.asks_only) return AnswerAfterBatch(call, std::move(allowed));
  if (!call.method->look_up) {
    return call.method->run(*call.request, call.context, call.response,
                            [this, call](absl::Status status) { AnswerAfterBatch(call, std::move(status)); });
  }
  absl::StatusOr<MethodRow::Reading> reading = call.method->look_up(*call.request, call.context);
  if (!reading.ok()) return AnswerAfterBatch(call, reading.status());
  // What was looked up may be of this batch.
  executor_.Defer([this, call, reading = *std::move(reading)](const absl::Status& commit) {
    if (commit.ok()) return Read(call, reading);
    LooksAgain(call, commit) ? LookAgain(call) : call.done(commit);
  });
}

void Dispatcher::AnswerAfterBatch(const Dispatched& call, absl::Status status) const {
  executor_.Defer([this, call, status = std::move(status)](const absl::Status& commit) {
    if (commit.ok()) return Answer(call, status);
    LooksAgain(call, commit) && !absl::IsCancelled(status) ? LookAgain(call) : call.done(commit);
  });
}

void Dispatcher::Answer(const Dispatched& call, const absl::Status& status) const {
  if (!status.ok() || call.response->ByteSizeLong() <= kWrittenAtOnceBytesMax) return call.done(status);
  pool_.Run(call.context.caller->name, CallPool::Length::kShort, [call, status] {
    const LogScope scope(call.context.log_source);
    call.done(status);
  });
}

// Others wrote in the batch, and the disk is full. Whoever only looks is not refused for that: with a full disk people
// look what is wrong.
bool Dispatcher::LooksAgain(const Dispatched& call, const absl::Status& commit) {
  return call.method->traits.only_looks && absl::IsResourceExhausted(commit);
}

void Dispatcher::LookAgain(const Dispatched& call) const {
  const LogScope scope(call.context.log_source);
  absl::Status allowed = CheckScope(*call.method, *call.request, call.context);
  if (!allowed.ok() || call.context.asks_only) return call.done(std::move(allowed));
  if (call.method->look_up) {
    absl::StatusOr<MethodRow::Reading> reading = call.method->look_up(*call.request, call.context);
    return reading.ok() ? Read(call, *std::move(reading)) : call.done(reading.status());
  }
  const auto is_outside = std::make_shared<bool>(true);
  call.method->run(*call.request, call.context, call.response, [this, call, is_outside](absl::Status status) {
    // One that waits again is answered in a later batch.
    *is_outside ? call.done(std::move(status)) : AnswerAfterBatch(call, std::move(status));
  });
  *is_outside = false;
}

void Dispatcher::Read(const Dispatched& call, MethodRow::Reading reading) const {
  pool_.Run(call.context.client, CallPool::Length::kShort, [call, reading = std::move(reading)] {
    const LogScope scope(call.context.log_source);
    call.done(reading(call.response, call.context.answer_bytes_max));
  });
}

absl::Status Dispatcher::CheckScope(const MethodRow& method, const google::protobuf::Message& request,
                                    const CallContext& context) const {
  return method.check_scope(request, *context.caller, core_);
}

}  // namespace sheaf
