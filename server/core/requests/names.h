// Names that callers choose: of populations, jobs, workers, computations, tokens.
//
//   RETURN_IF_ERROR(ValidateName("worker", request.worker()));
//   const std::string population = PopulationOrDefault(request.population());
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sheaf {

// The populations' and workers' alphabet: 1 to 128 of [A-Za-z0-9_.-]. INVALID_ARGUMENT naming `field`.
absl::Status ValidateName(std::string_view field, std::string_view name);

// "default" where it is empty.
std::string PopulationOrDefault(const std::string& population);

}  // namespace sheaf
