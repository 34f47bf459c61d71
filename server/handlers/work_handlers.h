// WorkHandlers: WorkService, free of transport. See proto/sheaf/v1/work_service.proto for the contract.
#pragma once

#include "server/calls/call_context.h"
#include "server/core/batches/reply.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

class Core;

class WorkHandlers {
 public:
  explicit WorkHandlers(Core& core) : core_(core) {}

  void Sync(const v1::SyncRequest& request, const CallContext& call, Reply<v1::SyncResponse> reply);
  // Whoever made this call has gone: it hears nothing more, and is given nothing.
  void AbandonSync(CallId call);

 private:
  Core& core_;
};

}  // namespace sheaf
