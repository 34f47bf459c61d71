#include "cli/terminal/token_text.h"

#include <fmt/format.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "cli/terminal/human_text.h"

namespace sheaf {
namespace {

std::string NameOf(int role) { return absl::AsciiStrToLower(v1::Role_Name(static_cast<v1::Role>(role))); }

}  // namespace

std::vector<std::string> RoleNames() {
  std::vector<std::string> names;
  for (int role = v1::Role_MIN + 1; role <= v1::Role_MAX; ++role) names.push_back(NameOf(role));
  return names;
}

v1::Role ParseRole(const std::string& name) {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  v1::Role_Parse(absl::AsciiStrToUpper(name), &role);
  return role;
}

std::string RolesOf(const v1::Token& token) {
  std::vector<std::string> names;
  for (const int role : token.roles()) names.push_back(NameOf(role));
  return absl::StrJoin(names, ",");
}

std::string PopulationsOf(const v1::Token& token) {
  return token.populations().empty() ? "everywhere" : absl::StrJoin(token.populations(), ",");
}

Cell StateOf(const v1::Token& token, absl::Time now) {
  if (token.has_revoke_time()) return {"REVOKED", Color::kDim};
  if (!token.is_valid()) return {"EXPIRED", Color::kDim};
  if (!token.has_expire_time()) return {"VALID", Color::kGreen};
  const absl::Time end = absl::FromUnixSeconds(token.expire_time().seconds());
  return {fmt::format("VALID {}", HumanDuration(end - now)), Color::kGreen};
}

}  // namespace sheaf
