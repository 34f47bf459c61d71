// MethodTable: every RPC the server answers, one row each, by its gRPC path. gRPC, later HTTP, and the simulation
// all dispatch through it.
//
//   table.Dispatch("sheaf.v1.WorkService/Sync", request, &response, [](absl::Status status) {...});
//
// A row says which roles may call the method and what its request is about (scope.h), so that no method can be without
// an answer to who may; and whether its handler runs inside a batch of the executor, because it reads or changes the
// queue, or at once in the caller's thread, because it only moves bytes of the (thread-safe) PayloadStore.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "google/protobuf/message.h"
#include "server/core/access_control.h"
#include "server/core/executor.h"
#include "server/core/reply.h"
#include "server/handlers/admission.h"
#include "server/handlers/scope.h"

namespace sheaf {

class AccessHandlers;
class BlobHandlers;
class Core;
class InspectionHandlers;
class RoundHandlers;
class WorkHandlers;

struct Handlers {
  WorkHandlers& work;
  BlobHandlers& blob;
  RoundHandlers& round;
  InspectionHandlers& inspection;
  AccessHandlers& access;
};

class MethodTable {
 public:
  using Done = std::function<void(absl::Status)>;

  // All must outlive the table.
  MethodTable(Executor& executor, Core& core, Admission& admission, Handlers handlers);

  // Calls `done` exactly once, from any thread, with `response` filled if OK. Request and response must live until
  // then. PERMISSION_DENIED if `caller` may not do this, or not there; UNIMPLEMENTED, naming it, if there is no such
  // method. Thread-safe.
  void Dispatch(std::string_view method, const IdentityPtr& caller, const google::protobuf::Message& request,
                google::protobuf::Message* response, Done done) const;
  // For anybody.
  void Dispatch(std::string_view method, const google::protobuf::Message& request, google::protobuf::Message* response,
                Done done) const {
    Dispatch(method, Identity::Anybody(), request, response, std::move(done));
  }
  // Who calls; see AccessControl. Thread-safe.
  bool requires_tokens() const;
  absl::StatusOr<IdentityPtr> Authenticate(std::string_view authorization,
                                           std::span<const std::string> certificate_names) const;
  // Before the request is parsed: whether there is room for it; see Admission. RESOURCE_EXHAUSTED also if it has more
  // bytes than any request may. If OK, Leave must follow. Thread-safe.
  absl::Status Enter(std::string_view method, const Identity& caller, int64_t bytes, absl::Time now) const;
  void Leave(int64_t bytes) const { admission_.Leave(bytes); }
  // Whether a request of this size must be looked through by CheckParts before it may be parsed; see message_parts.h.
  static bool CountsParts(int64_t bytes);
  absl::Status CheckParts(const google::protobuf::Descriptor& type,
                          google::protobuf::io::ZeroCopyInputStream& stream) const;

  // Who may call `method`, which exists.
  RoleSet RolesOf(std::string_view method) const;

  // Whoever dispatched `request`, and was not answered yet, has gone: a call that waits is ended, so that nothing is
  // handed out to nobody. Dispatch's `done` is still called. Thread-safe.
  void Abandon(std::string_view method, const google::protobuf::Message& request) const;

  // "sheaf.v1.WorkService/Sync" ...
  std::vector<std::string> methods() const;

 private:
  struct Row {
    bool in_batch;
    Lane lane;
    RoleSet roles;
    std::function<absl::Status(const google::protobuf::Message& request, const Identity& caller)> check_scope;
    std::function<void(const google::protobuf::Message& request, const IdentityPtr& caller,
                       google::protobuf::Message* response, absl::Time now, Done done)>
        call;
    // Null where no call waits, or waiting hands out nothing.
    std::function<void(const google::protobuf::Message& request)> abandon;
    // Changes nothing: needs no room on the disk.
    bool only_looks = false;
  };
  // One call of a row that runs inside batches. What it points at lives until `done` is called.
  struct Call {
    const Row* row;
    IdentityPtr caller;
    const google::protobuf::Message* request;
    google::protobuf::Message* response;
    absl::Time now;
    Done done;
  };
  // The core's thread. In a batch: the call is answered when the batch is durable.
  void RunInBatch(const Call& call) const;
  void AnswerAfterBatch(const Call& call, absl::Status status) const;
  // After a batch that failed, and outside of any: nothing of it has happened, and what can be read is durable.
  void LookAgain(const Call& call) const;

  // Each method says who may call it, and what a request is about.
  // A handler that runs inside a batch.
  template <typename H, typename Request, typename Response>
  void Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
           void (H::*handler)(const Request&, absl::Time, Reply<Response>));
  // The same, for one that asks who calls.
  template <typename H, typename Request, typename Response>
  void Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
           void (H::*handler)(const Request&, const IdentityPtr&, absl::Time, Reply<Response>));
  // A handler that runs at once in the caller's thread.
  template <typename H, typename Request, typename Response>
  void Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
           absl::StatusOr<Response> (H::*handler)(const Request&));
  // The same, for one that may leave its answer to a batch.
  template <typename H, typename Request, typename Response>
  void Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
           void (H::*handler)(const Request&, Reply<Response>));
  template <typename Request>
  Row MakeRow(std::string_view name, bool in_batch, RoleSet roles, Scope<Request> scope);
  void Post(Lane lane, Executor::Event event) const;

  Executor& executor_;
  Core& core_;
  Admission& admission_;
  std::unordered_map<std::string, Row> rows_;
};

}  // namespace sheaf
