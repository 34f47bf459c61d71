#include "server/server_parts.h"

namespace sheaf {

StoreParts::StoreParts(TaskStore& store, PayloadStore& payloads, Executor& executor, Random& random,
                       const Core::Options& options, FrontParts& front, CallPool* pool)
    : core(store, payloads, executor, random, options),
      runner(store, payloads, core),
      handlers(core, payloads, front.admission, &front.certificate),
      methods(MethodRows(handlers)),
      dispatcher(methods, executor, core, front.admission, pool) {}

ServerParts::ServerParts(TaskStore& store, PayloadStore& payloads, Executor& executor, Random& random,
                         const Clock& clock, const Core::Options& options, CallPool* pool, Forwarding forwarding)
    : FrontParts(options.limits),
      StoreParts(store, payloads, executor, random, options, *this, pool),
      call_figures(methods),
      pipeline({.methods = methods,
                .dispatcher = dispatcher,
                .access = core.access(),
                .admission = admission,
                .answers = answers,
                .figures = call_figures,
                .limits = core.limits(),
                .clock = clock,
                .forwarder = Route(forwarding, clock)}) {}

StoreRouter* ServerParts::Route(Forwarding forwarding, const Clock& clock) {
  if (forwarding.owner == nullptr) return nullptr;
  Forwarder* elsewhere = forwarding.owner;
  if (forwarding.payloads != nullptr) {
    elsewhere = &transfers.emplace(*forwarding.owner, *forwarding.payloads, methods, dispatcher, core.limits(), clock);
  }
  return &router.emplace(*elsewhere, dispatcher.pool());
}

}  // namespace sheaf
