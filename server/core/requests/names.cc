#include "server/core/requests/names.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/core/limits/fixed_limits.h"

namespace sheaf {

absl::Status ValidateName(std::string_view field, std::string_view name) {
  const bool is_valid =
      !name.empty() && name.size() <= kNameCharactersMax && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
               c == '-';
      });
  if (is_valid) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{} \"{}\" must be 1 to {} characters of [A-Za-z0-9_.-]", field,
                                                name.substr(0, 140), kNameCharactersMax));
}

std::string PopulationOrDefault(const std::string& population) { return population.empty() ? "default" : population; }

}  // namespace sheaf
