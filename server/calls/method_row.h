// MethodRow: all that is said of one RPC, in one place: its name, who may call it, what a request is about, in which
// queue it waits, where it runs, what kind of answer it makes, and what happens when its caller has gone.
//
//   const std::vector<MethodRow> rows = {
//       InBatch(kGetRound, {.roles = {v1::VIEWER}, .only_looks = true}, OfRound(&v1::GetRoundRequest::round), rounds,
//               &RoundHandlers::GetRound, &RoundHandlers::AbandonGetRound),
//       InPool(kReadBlob, {.roles = {v1::WORKER}, .answer = AnswerKind::kRead},
//       OfBroadcast(&v1::ReadBlobRequest::digest),
//              transfers, &TransferHandlers::ReadBlob),
//   };
//
// A row cannot be made without roles and a scope, so that no method is without an answer to who may call it. The rows
// of the server are in server/handlers/method_rows.cc. A row is a value that refers to its handlers, which outlive it.
// Nothing changes it, so that all threads read it.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/methods.h"
#include "server/calls/admission.h"
#include "server/calls/answer_books.h"
#include "server/calls/call_context.h"
#include "server/calls/call_pool.h"
#include "server/calls/scope.h"
#include "server/core/access/identity.h"
#include "server/core/batches/reply.h"

namespace sheaf {

class Core;

// What a row says besides its name, its scope and its handler; what is usual need not be said.
struct MethodTraits {
  RoleSet roles;
  Lane lane = Lane::kWork;
  AnswerKind answer = AnswerKind::kControl;
  // Changes nothing, and so needs no room on the disk.
  bool only_looks = false;
  // Of one that runs in the CallPool.
  CallPool::Length length = CallPool::Length::kShort;
};

struct MethodRow {
  using Message = google::protobuf::Message;
  using Done = std::function<void(absl::Status)>;
  // Fills the response, with about so many bytes at most.
  using Reading = std::function<absl::Status(Message* response, int64_t answer_bytes_max)>;

  // "sheaf.v1.WorkService/Sync"
  std::string name;
  MethodTraits traits;
  // Inside a batch of the executor, because it reads or changes the queue; otherwise in the CallPool, because it only
  // moves bytes of the (thread-safe) PayloadStore.
  bool is_in_batch = true;
  // Prototypes.
  const Message* request = nullptr;
  const Message* response = nullptr;
  // See scope.h.
  std::function<absl::Status(const Message& request, const Identity& caller, Core& core)> check_scope;
  std::function<Subject(const Message& request)> about;
  // Fills `response`, or says why not: now or later, once. All arguments live until then, but for `call`.
  std::function<void(const Message& request, const CallContext& call, Message* response, Done done)> run;
  // Instead of `run`, where a batch looks up what the pool then reads.
  std::function<absl::StatusOr<Reading>(const Message& request, const CallContext& call)> look_up;
  // In a batch: the caller of this call has gone. Null where no call waits, or waiting hands out nothing.
  std::function<void(CallId call)> abandon;
};

// --- The kinds of rows ----------------------------------------------------------------------------------------------

// A handler that runs inside a batch, and answers now or later.
template <typename Request, typename Response, typename H>
MethodRow InBatch(const Method<Request, Response>& method, MethodTraits traits,
                  std::type_identity_t<Scope<Request>> scope, H& handlers,
                  void (H::*handler)(const Request&, const CallContext&, Reply<Response>),
                  void (H::*abandon)(CallId) = nullptr);

// A handler that looks something up inside a batch, and returns what reads it: that runs in the pool, when what was
// looked up is durable.
template <typename Request, typename Response, typename H>
MethodRow InBatchThenPool(const Method<Request, Response>& method, MethodTraits traits,
                          std::type_identity_t<Scope<Request>> scope, H& handlers,
                          absl::StatusOr<std::function<absl::StatusOr<Response>(int64_t answer_bytes_max)>> (
                              H::*handler)(const Request&, const CallContext&));

// A handler that runs in the pool.
template <typename Request, typename Response, typename H>
MethodRow InPool(const Method<Request, Response>& method, MethodTraits traits,
                 std::type_identity_t<Scope<Request>> scope, H& handlers,
                 absl::StatusOr<Response> (H::*handler)(const Request&));

// The same, for one that answers with no more than there is room for.
template <typename Request, typename Response, typename H>
MethodRow InPool(const Method<Request, Response>& method, MethodTraits traits,
                 std::type_identity_t<Scope<Request>> scope, H& handlers,
                 absl::StatusOr<Response> (H::*handler)(const Request&, int64_t answer_bytes_max));

// The same, for one that may leave its answer to a batch.
template <typename Request, typename Response, typename H>
MethodRow InPool(const Method<Request, Response>& method, MethodTraits traits,
                 std::type_identity_t<Scope<Request>> scope, H& handlers,
                 void (H::*handler)(const Request&, Reply<Response>));

// --- How they are made ----------------------------------------------------------------------------------------------

namespace method_row_internal {

template <typename Request, typename Response>
MethodRow Make(const Method<Request, Response>& method, MethodTraits traits, bool is_in_batch, Scope<Request> scope) {
  return {
      .name = method.name,
      .traits = traits,
      .is_in_batch = is_in_batch,
      .request = &Request::default_instance(),
      .response = &Response::default_instance(),
      .check_scope = [check = std::move(scope.check)](
                         const google::protobuf::Message& request, const Identity& caller,
                         Core& core) { return check(static_cast<const Request&>(request), caller, core); },
      .about = [about = std::move(scope.about)](
                   const google::protobuf::Message& request) { return about(static_cast<const Request&>(request)); }};
}

template <typename Response>
absl::Status Fill(google::protobuf::Message* response, absl::StatusOr<Response> result) {
  if (!result.ok()) return result.status();
  *static_cast<Response*>(response) = *std::move(result);
  return absl::OkStatus();
}

// A reply that fills the response of the call.
template <typename Response>
Reply<Response> ReplyInto(google::protobuf::Message* response, MethodRow::Done done) {
  return [response, done = std::move(done)](absl::StatusOr<Response> result) {
    done(Fill<Response>(response, std::move(result)));
  };
}

}  // namespace method_row_internal

template <typename Request, typename Response, typename H>
MethodRow InBatch(const Method<Request, Response>& method, MethodTraits traits,
                  std::type_identity_t<Scope<Request>> scope, H& handlers,
                  void (H::*handler)(const Request&, const CallContext&, Reply<Response>), void (H::*abandon)(CallId)) {
  MethodRow row = method_row_internal::Make(method, traits, true, std::move(scope));
  row.run = [&handlers, handler](const google::protobuf::Message& request, const CallContext& call,
                                 google::protobuf::Message* response, MethodRow::Done done) {
    (handlers.*handler)(static_cast<const Request&>(request), call,
                        method_row_internal::ReplyInto<Response>(response, std::move(done)));
  };
  if (abandon != nullptr) row.abandon = [&handlers, abandon](CallId call) { (handlers.*abandon)(call); };
  return row;
}

template <typename Request, typename Response, typename H>
MethodRow InBatchThenPool(const Method<Request, Response>& method, MethodTraits traits,
                          std::type_identity_t<Scope<Request>> scope, H& handlers,
                          absl::StatusOr<std::function<absl::StatusOr<Response>(int64_t)>> (H::*handler)(
                              const Request&, const CallContext&)) {
  MethodRow row = method_row_internal::Make(method, traits, true, std::move(scope));
  row.look_up = [&handlers, handler](const google::protobuf::Message& request,
                                     const CallContext& call) -> absl::StatusOr<MethodRow::Reading> {
    auto read = (handlers.*handler)(static_cast<const Request&>(request), call);
    if (!read.ok()) return read.status();
    return [read = *std::move(read)](google::protobuf::Message* response, int64_t answer_bytes_max) {
      return method_row_internal::Fill<Response>(response, read(answer_bytes_max));
    };
  };
  return row;
}

template <typename Request, typename Response, typename H>
MethodRow InPool(const Method<Request, Response>& method, MethodTraits traits,
                 std::type_identity_t<Scope<Request>> scope, H& handlers,
                 absl::StatusOr<Response> (H::*handler)(const Request&)) {
  MethodRow row = method_row_internal::Make(method, traits, false, std::move(scope));
  row.run = [&handlers, handler](const google::protobuf::Message& request, const CallContext& /*call*/,
                                 google::protobuf::Message* response, const MethodRow::Done& done) {
    done(method_row_internal::Fill<Response>(response, (handlers.*handler)(static_cast<const Request&>(request))));
  };
  return row;
}

template <typename Request, typename Response, typename H>
MethodRow InPool(const Method<Request, Response>& method, MethodTraits traits,
                 std::type_identity_t<Scope<Request>> scope, H& handlers,
                 absl::StatusOr<Response> (H::*handler)(const Request&, int64_t)) {
  MethodRow row = method_row_internal::Make(method, traits, false, std::move(scope));
  row.run = [&handlers, handler](const google::protobuf::Message& request, const CallContext& call,
                                 google::protobuf::Message* response, const MethodRow::Done& done) {
    done(method_row_internal::Fill<Response>(
        response, (handlers.*handler)(static_cast<const Request&>(request), call.answer_bytes_max)));
  };
  return row;
}

template <typename Request, typename Response, typename H>
MethodRow InPool(const Method<Request, Response>& method, MethodTraits traits,
                 std::type_identity_t<Scope<Request>> scope, H& handlers,
                 void (H::*handler)(const Request&, Reply<Response>)) {
  MethodRow row = method_row_internal::Make(method, traits, false, std::move(scope));
  row.run = [&handlers, handler](const google::protobuf::Message& request, const CallContext& /*call*/,
                                 google::protobuf::Message* response, MethodRow::Done done) {
    (handlers.*handler)(static_cast<const Request&>(request),
                        method_row_internal::ReplyInto<Response>(response, std::move(done)));
  };
  return row;
}

}  // namespace sheaf
