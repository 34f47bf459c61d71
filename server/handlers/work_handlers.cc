#include "server/handlers/work_handlers.h"

#include <utility>

#include "server/core/core.h"

namespace sheaf {

void WorkHandlers::Sync(const v1::SyncRequest& request, const IdentityPtr& caller, absl::Time now,
                        Reply<v1::SyncResponse> reply) {
  core_.desk().Sync(request, caller, now, std::move(reply));
}

void WorkHandlers::AbandonSync(const v1::SyncRequest& request) {
  core_.context().executor.Post(
      [this, caller = WorkDesk::Caller(request)](absl::Time) { core_.desk().Abandon(caller); });
}

}  // namespace sheaf
