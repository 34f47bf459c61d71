// WorkHandlers: WorkService, free of transport. See proto/sheaf/v1/work_service.proto for the contract.
#pragma once

#include "absl/time/time.h"
#include "server/core/access_control.h"
#include "server/core/reply.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

class Core;

class WorkHandlers {
 public:
  explicit WorkHandlers(Core& core) : core_(core) {}

  void Sync(const v1::SyncRequest& request, const IdentityPtr& caller, absl::Time now, Reply<v1::SyncResponse> reply);
  // The worker that made this call, not yet answered, has gone. From any thread.
  void AbandonSync(const v1::SyncRequest& request);

 private:
  Core& core_;
};

}  // namespace sheaf
