// CallerOf: who calls, by the metadata `authorization`, or by the certificate of the connection.
#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "server/handlers/method_table.h"

namespace sheaf {

// The codes of AccessControl::Authenticate.
absl::StatusOr<IdentityPtr> CallerOf(const grpc::CallbackServerContext& context, const MethodTable& methods);

}  // namespace sheaf
