#include "server/server_parts.h"

namespace sheaf {

ServerParts::ServerParts(TaskStore& store, PayloadStore& payloads, Executor& executor, Random& random,
                         const Clock& clock, const Core::Options& options, CallPool* pool, Forwarding forwarding)
    : core(store, payloads, executor, random, options),
      runner(store, payloads, core),
      admission(options.limits),
      answers(options.limits),
      handlers(core, payloads, admission, &certificate),
      methods(MethodRows(handlers)),
      call_figures(methods),
      dispatcher(methods, executor, core, admission, pool),
      pipeline({.methods = methods,
                .dispatcher = dispatcher,
                .access = core.access(),
                .admission = admission,
                .answers = answers,
                .figures = call_figures,
                .limits = core.limits(),
                .clock = clock,
                .forwarder = forwarding.payloads == nullptr
                                 ? forwarding.owner
                                 : &transfers.emplace(*forwarding.owner, *forwarding.payloads, methods, dispatcher,
                                                      core.limits(), clock)}) {}

}  // namespace sheaf
