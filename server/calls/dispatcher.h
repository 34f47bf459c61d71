// Dispatcher: takes a parsed request to its handler, and the answer back: in a batch of the executor or in the
// CallPool, as the method's row says, and not before what the answer says is durable.
//
//   dispatcher.Dispatch(*methods.Find("sheaf.v1.WorkService/Sync"), {.id = call, .caller = caller}, request, &response,
//                       [](absl::Status status) { status.IgnoreError(); });
//   dispatcher.Abandon(*methods.Find("sheaf.v1.WorkService/Sync"), *caller, call);   // The caller has gone.
//
// Transports reach it through Call (call.h); tests and the simulation, which have no bytes, call it themselves.
// Thread-safe. Refers to all it is given.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "server/calls/admission.h"
#include "server/calls/call_context.h"
#include "server/calls/call_pool.h"
#include "server/calls/method_table.h"
#include "server/core/batches/executor.h"

namespace sheaf {

class Core;

class Dispatcher {
 public:
  using Done = MethodRow::Done;

  // All must outlive it. Without a pool everything that is for it runs at once.
  Dispatcher(const MethodTable& methods, Executor& executor, Core& core, Admission& admission,
             CallPool* pool = nullptr);

  // For one call, and no other.
  CallId NewCall() const { return CallId(newest_call_.fetch_add(1, std::memory_order_relaxed) + 1); }

  // Calls `done` exactly once, from any thread, with `response` filled if OK. Request and response must live until
  // then. PERMISSION_DENIED if the caller may not do this, or not there.
  void Dispatch(const MethodRow& method, CallContext context, const google::protobuf::Message& request,
                google::protobuf::Message* response, Done done) const;
  // By the method's name. UNIMPLEMENTED, naming it, if there is none.
  void Dispatch(std::string_view method, CallContext context, const google::protobuf::Message& request,
                google::protobuf::Message* response, Done done) const;

  // Whoever made this call has gone: if it waits it is ended, so that nothing is handed out to nobody. Dispatch's
  // `done` is still called. Once Dispatch has returned, before or after the answer.
  void Abandon(const MethodRow& method, const Identity& caller, CallId call) const;

  // Where what does not need a batch is to run.
  CallPool& pool() const { return pool_; }

 private:
  // One call of a row that runs inside batches. What it points at lives until `done` is called.
  struct Dispatched {
    const MethodRow* method;
    CallContext context;
    const google::protobuf::Message* request;
    google::protobuf::Message* response;
    Done done;
  };
  // The core's thread. In a batch: the call is answered when the batch is durable.
  void RunInBatch(const Dispatched& call) const;
  void AnswerAfterBatch(const Dispatched& call, absl::Status status) const;
  // What is large is written, and freed, by the pool: leases with much of their own are megabytes.
  void Answer(const Dispatched& call, const absl::Status& status) const;
  // Whether a call whose batch failed so is made again.
  static bool LooksAgain(const Dispatched& call, const absl::Status& commit);
  // After a batch that failed, and outside of any: nothing of it has happened, and what can be read is durable.
  void LookAgain(const Dispatched& call) const;
  // Has the pool read what was looked up, and answers.
  void Read(const Dispatched& call, MethodRow::Reading reading) const;
  absl::Status CheckScope(const MethodRow& method, const google::protobuf::Message& request,
                          const CallContext& context) const;

  const MethodTable& methods_;
  Executor& executor_;
  Core& core_;
  Admission& admission_;
  CallsAtOnce at_once_;
  CallPool& pool_;
  mutable std::atomic<int64_t> newest_call_ = 0;
};

}  // namespace sheaf
