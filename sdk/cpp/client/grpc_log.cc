#include "sdk/cpp/client/grpc_log.h"

#include <grpc/support/log.h>

#include "base/log.h"

namespace sheaf {

void RouteGrpcLog() {
  gpr_set_log_function([](gpr_log_func_args* line) { LogDebug("gRPC: {}", line->message); });
}

}  // namespace sheaf
