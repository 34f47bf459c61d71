// ServerParts: a whole server but for what differs between a process, a test and the simulation: its stores, what runs
// its events, its clock and chance, and its transports. The one place where the core, its batches, the handlers and the
// pipeline of calls are joined.
//
//   ServerParts parts(store, payloads, executor, random, clock, {.limits = limits});
//   RETURN_IF_ERROR(parts.core.Recover(clock.Now()));
//   RETURN_IF_ERROR(parts.runner.Run(std::move(events), clock.Now()));   // What executes events does this.
//   // Calls without a transport, or with one:
//   parts.dispatcher.Dispatch("sheaf.v1.WorkService/Sync", {}, request, &response, done);
//   ASSIGN_OR_RETURN(auto server, GrpcServer::Start(parts.pipeline, clock, {.listen = "127.0.0.1:0"}));
//
// Owns its parts, in the order in which they need each other, and refers to all it is given. As thread-safe as each of
// its parts: the core and the runner belong to the thread that runs events.
#pragma once

#include <optional>

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
#include "server/handlers/local_transfers.h"
#include "server/handlers/method_rows.h"
#include "storage/payload_store.h"
#include "storage/task_store.h"
#include "tls/serving_certificate.h"

namespace sheaf {

// Of a server whose turn at its store has not come.
struct Forwarding {
  // What answers the calls that a transport makes. Null: this server does.
  Forwarder* owner = nullptr;
  // The owner's payloads, whose bytes this server moves itself (local_transfers.h). Null: it moves none.
  PayloadStore* payloads = nullptr;
};

struct ServerParts {
  // All must outlive the parts. Without a pool calls that are for it run at once.
  ServerParts(TaskStore& store, PayloadStore& payloads, Executor& executor, Random& random, const Clock& clock,
              const Core::Options& options, CallPool* pool = nullptr, Forwarding forwarding = {});
  ServerParts(const ServerParts&) = delete;
  ServerParts& operator=(const ServerParts&) = delete;

  Core core;
  BatchRunner runner;
  Admission admission;
  AnswerBooks answers;
  // What the server shows, once a transport says so.
  ServingCertificate certificate;
  Handlers handlers;
  const MethodTable methods;
  CallFigures call_figures;
  const Dispatcher dispatcher;
  // Only with payloads to move.
  std::optional<LocalTransfers> transfers;
  CallPipeline pipeline;
};

}  // namespace sheaf
