// Tokens in words, for the commands that show them.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/terminal/table.h"
#include "sheaf/v1/access_service.pb.h"

namespace sheaf {

// "submitter", "worker" ...
std::vector<std::string> RoleNames();
// Of one of RoleNames.
v1::Role ParseRole(const std::string& name);
// "worker,viewer"
std::string RolesOf(const v1::Token& token);
// "edge,lab", or "everywhere".
std::string PopulationsOf(const v1::Token& token);
// "VALID", "VALID 29d", "REVOKED", "EXPIRED".
Cell StateOf(const v1::Token& token, absl::Time now);

}  // namespace sheaf
