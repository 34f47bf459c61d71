#include "server/core/access/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace sheaf {
namespace {

std::string RoleName(v1::Role role) {
  std::string name = v1::Role_Name(role);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

}  // namespace

std::string RoleSet::ToString(std::string_view joint) const {
  std::string text;
  for (int role = v1::Role_MIN + 1; role <= v1::Role_MAX; ++role) {
    if (!has(static_cast<v1::Role>(role))) continue;
    text += fmt::format("{}{}", text.empty() ? "" : joint, RoleName(static_cast<v1::Role>(role)));
  }
  return text;
}

IdentityPtr Identity::Anybody() {
  static const IdentityPtr anybody = std::make_shared<const Identity>();
  return anybody;
}

bool Identity::Reaches(const std::string& population) const {
  return populations.empty() || std::binary_search(populations.begin(), populations.end(), population);
}

absl::Status Identity::CheckRole(std::string_view method, RoleSet allowed) const {
  if (roles.meets(allowed)) return absl::OkStatus();
  return absl::PermissionDeniedError(fmt::format("{} is for {}; token {} of {} is for {}",
                                                 method.substr(method.rfind('/') + 1), allowed.ToString(" or "), token,
                                                 name, roles.ToString(" and ")));
}

absl::Status Identity::CheckPopulation(const std::string& population) const {
  if (Reaches(population)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      fmt::format("token {} of {} does not reach population '{}'", token, name, population));
}

absl::Status Identity::CheckEverywhere() const {
  if (is_everywhere()) return absl::OkStatus();
  return absl::PermissionDeniedError(fmt::format("token {} of {} does not reach all populations", token, name));
}

}  // namespace sheaf
