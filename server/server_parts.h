// StoreParts: all that serves one store: the core, its batches, and the handlers of calls. ServerParts: a whole server
// of one store but for what differs between a process, a test and the simulation: its stores, what runs its events, its
// clock and chance, and its transports. The one place where the core, its batches, the handlers and the pipeline of
// calls are joined.
//
//   ServerParts parts(store, payloads, executor, random, clock, {.limits = limits});
//   RETURN_IF_ERROR(parts.core.Recover(clock.Now()));
//   RETURN_IF_ERROR(parts.runner.Run(std::move(events), clock.Now()));   // What executes events does this.
//   // Calls without a transport, or with one:
//   parts.dispatcher.Dispatch("sheaf.v1.WorkService/Sync", {}, request, &response, done);
//   ASSIGN_OR_RETURN(auto server, GrpcServer::Start(parts.pipeline, clock, {.listen = "127.0.0.1:0"}));
//
// Own their parts, in the order in which they need each other, and refer to all they are given. As thread-safe as each
// of their parts: the core and the runner belong to the thread that runs events.
#pragma once

#include "base/clock.h"
#include "base/random.h"
#include "server/calls/admission.h"
#include "server/calls/answer_books.h"
#include "server/calls/call_pipeline.h"
#include "server/calls/call_pool.h"
#include "server/calls/dispatcher.h"
#include "server/calls/forwarder.h"
#include "server/calls/method_table.h"
#include "server/core/batch_runner.h"
#include "server/core/batches/executor.h"
#include "server/core/core.h"
#include "server/handlers/method_rows.h"
#include "storage/payload_store.h"
#include "storage/task_store.h"
#include "tls/serving_certificate.h"

namespace sheaf {

// What a server has once, however many stores it serves.
struct FrontParts {
  explicit FrontParts(const Limits& limits) : admission(limits), answers(limits) {}

  Admission admission;
  AnswerBooks answers;
  // What the server shows, once a transport says so.
  ServingCertificate certificate;
};

struct StoreParts {
  // All must outlive the parts. Without a pool calls that are for it run at once.
  StoreParts(TaskStore& store, PayloadStore& payloads, Executor& executor, Random& random, const Core::Options& options,
             FrontParts& front, CallPool* pool);
  StoreParts(const StoreParts&) = delete;
  StoreParts& operator=(const StoreParts&) = delete;

  Core core;
  BatchRunner runner;
  Handlers handlers;
  const MethodTable methods;
  const Dispatcher dispatcher;
};

struct ServerParts : FrontParts, StoreParts {
  // As StoreParts. With a forwarder the store is one that has nothing, and nobody asks: calls go where that sends them.
  ServerParts(TaskStore& store, PayloadStore& payloads, Executor& executor, Random& random, const Clock& clock,
              const Core::Options& options, CallPool* pool = nullptr, Forwarder* forwarder = nullptr);

  CallFigures call_figures;
  CallPipeline pipeline;
};

}  // namespace sheaf
