// "client:17": the data selector of a task that is for one client of a dataset.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sheaf {

std::string ClientSelector(int client);
// INVALID_ARGUMENT if `selector` is not one, or names none of the clients 0 to num_clients - 1.
absl::StatusOr<int> ParseClientSelector(std::string_view selector, int num_clients);

}  // namespace sheaf
