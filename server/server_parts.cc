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
                         const Clock& clock, const Core::Options& options, CallPool* pool, Forwarder* forwarder)
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
                .forwarder = forwarder}) {}

}  // namespace sheaf
