// Why an address cannot be listened on: gRPC only says that it cannot.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sheaf {

// Tries `address` (HOST:PORT) once more by itself, to give the operating system's reason and what to do about it.
// UNAVAILABLE if the port is in use; PERMISSION_DENIED if it needs privileges; INVALID_ARGUMENT otherwise.
absl::Status ExplainListenFailure(const std::string& address);

}  // namespace sheaf
