// MethodTable: every RPC the server answers, one row each, by its gRPC path. gRPC, later HTTP, and the simulation
// all dispatch through it.
//
//   table.Dispatch("sheaf.v1.WorkService/Sync", request, &response, [](absl::Status status) {...});
//
// A row says which roles may call the method and what its request is about (scope.h), so that no method can be without
// an answer to who may; where its handler runs: inside a batch of the executor, because it reads or changes the queue,
// or in the CallPool, because it only moves bytes of the (thread-safe) PayloadStore; and what kind of answer it makes
// (answer_books.h).
#pragma once

#include <atomic>
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
#include "server/calls/call_context.h"
#include "server/core/access/access_control.h"
#include "server/core/batches/executor.h"
#include "server/core/batches/reply.h"
#include "server/handlers/admission.h"
#include "server/handlers/answer_books.h"
#include "server/handlers/call_pool.h"
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

  // All must outlive the table. Without a pool everything that is for it runs at once.
  MethodTable(Executor& executor, Core& core, Admission& admission, Handlers handlers, CallPool* pool = nullptr);

  // What a transport must know of a method before it dispatches it.
  struct Traits {
    AnswerKind answer = AnswerKind::kControl;
    // Dispatch does the work itself, and is to be called in the pool.
    bool is_for_pool = false;
    CallPool::Length length = CallPool::Length::kShort;
  };
  // Of what does not exist: the default.
  Traits TraitsOf(std::string_view method) const;
  CallPool& pool() const { return pool_; }

  // For one call, and no other. Thread-safe.
  CallId NewCall() const { return CallId(newest_call_.fetch_add(1, std::memory_order_relaxed) + 1); }
  // Calls `done` exactly once, from any thread, with `response` filled if OK. Request and response must live until
  // then. PERMISSION_DENIED if the caller may not do this, or not there; UNIMPLEMENTED, naming it, if there is no such
  // method. Thread-safe.
  void Dispatch(std::string_view method, const CallContext& context, const google::protobuf::Message& request,
                google::protobuf::Message* response, Done done) const;
  void Dispatch(std::string_view method, const IdentityPtr& caller, const google::protobuf::Message& request,
                google::protobuf::Message* response, Done done) const {
    Dispatch(method, CallContext{.id = NewCall(), .caller = caller}, request, response, std::move(done));
  }
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
  void Leave(const Identity& caller, int64_t bytes) const { admission_.Leave(caller, bytes); }
  // Whether a request of this size must be looked through by CheckParts before it may be parsed; see message_parts.h.
  static bool CountsParts(int64_t bytes);
  absl::Status CheckParts(const google::protobuf::Descriptor& type,
                          google::protobuf::io::ZeroCopyInputStream& stream) const;

  // Who may call `method`, which exists.
  RoleSet RolesOf(std::string_view method) const;

  // Whoever dispatched this call has gone: if it waits it is ended, so that nothing is handed out to nobody. Dispatch's
  // `done` is still called. After Dispatch has returned, before or after the answer. Thread-safe.
  void Abandon(std::string_view method, CallId call) const;

  // "sheaf.v1.WorkService/Sync" ...
  std::vector<std::string> methods() const;

 private:
  // Fills the response, with so many bytes at most.
  using Reading = std::function<absl::Status(google::protobuf::Message* response, int64_t answer_bytes_max)>;
  struct Row {
    bool in_batch;
    Lane lane;
    RoleSet roles;
    Traits traits;
    std::function<absl::Status(const google::protobuf::Message& request, const Identity& caller)> check_scope;
    std::function<void(const google::protobuf::Message& request, const CallContext& context,
                       google::protobuf::Message* response, Done done)>
        call;
    // Instead, where what a batch looks up is read by the pool.
    std::function<absl::StatusOr<Reading>(const google::protobuf::Message& request, const CallContext& context)>
        look_up;
    // Null where no call waits, or waiting hands out nothing.
    std::function<void(CallId call)> abandon;
    // Changes nothing: needs no room on the disk.
    bool only_looks = false;
  };
  // One call of a row that runs inside batches. What it points at lives until `done` is called.
  struct Call {
    const Row* row;
    CallContext context;
    const google::protobuf::Message* request;
    google::protobuf::Message* response;
    Done done;
  };
  // The core's thread. In a batch: the call is answered when the batch is durable.
  void RunInBatch(const Call& call) const;
  void AnswerAfterBatch(const Call& call, absl::Status status) const;
  // Whether a call whose batch failed so is made again.
  static bool LooksAgain(const Call& call, const absl::Status& commit);
  // After a batch that failed, and outside of any: nothing of it has happened, and what can be read is durable.
  void LookAgain(const Call& call) const;
  // Has the pool read what was looked up, and answers.
  void Read(const Call& call, Reading reading) const;

  // Each method says who may call it, and what a request is about.
  // A handler that runs inside a batch.
  template <typename H, typename Request, typename Response>
  void Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
           void (H::*handler)(const Request&, const CallContext&, Reply<Response>));
  // A handler that does its work in Dispatch.
  template <typename H, typename Request, typename Response>
  void Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
           absl::StatusOr<Response> (H::*handler)(const Request&));
  // The same, for one that reads no more than there is room for.
  template <typename H, typename Request, typename Response>
  void Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
           absl::StatusOr<Response> (H::*handler)(const Request&, int64_t answer_bytes_max));
  // The same, for one that looks something up in a batch first.
  template <typename H, typename Request, typename Response>
  void Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
           absl::StatusOr<std::function<absl::StatusOr<Response>(int64_t answer_bytes_max)>> (H::*handler)(
               const Request&, const CallContext&));
  // The same, for one that may leave its answer to a batch.
  template <typename H, typename Request, typename Response>
  void Add(const char* name, RoleSet roles, Scope<Request> scope, H& handlers,
           void (H::*handler)(const Request&, Reply<Response>));
  int64_t AnswerBytesMax(const CallContext& context) const;
  template <typename Request>
  Row MakeRow(std::string_view name, bool in_batch, RoleSet roles, Scope<Request> scope);
  void Post(Lane lane, Executor::Event event) const;

  Executor& executor_;
  Core& core_;
  Admission& admission_;
  CallsAtOnce at_once_;
  CallPool& pool_;
  mutable std::atomic<int64_t> newest_call_ = 0;
  std::unordered_map<std::string, Row> rows_;
};

}  // namespace sheaf
