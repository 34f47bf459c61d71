#include "server/handlers/work_handlers.h"

#include <utility>

#include "server/core/core.h"

namespace sheaf {

void WorkHandlers::Sync(const v1::SyncRequest& request, const CallContext& call, Reply<v1::SyncResponse> reply) {
  core_.sync().Answer(request, call.id, call.caller, call.now, std::move(reply));
}

void WorkHandlers::AbandonSync(CallId call) { core_.polls().Abandon(call); }

}  // namespace sheaf
