#include "storage/postgres/conninfo.h"

#include <algorithm>

namespace sheaf {
namespace {

bool IsUrl(std::string_view text) { return text.starts_with("postgresql://") || text.starts_with("postgres://"); }

// As a key, of libpq or of its TLS: "password = x", "?sslpassword=x".
bool SaysPassword(std::string_view conninfo) {
  constexpr std::string_view kKey = "password";
  for (size_t at = conninfo.find(kKey); at != std::string_view::npos; at = conninfo.find(kKey, at + 1)) {
    const size_t next = conninfo.find_first_not_of(" \t", at + kKey.size());
    if (next != std::string_view::npos && conninfo[next] == '=') return true;
  }
  return false;
}

}  // namespace

bool IsConninfo(std::string_view text) { return IsUrl(text) || text.find('=') != std::string_view::npos; }

absl::Status CheckHasNoPassword(std::string_view conninfo) {
  // "user:password@" before the hosts, or the key of a password.
  const std::string_view authority = IsUrl(conninfo) ? conninfo.substr(conninfo.find("//") + 2) : std::string_view();
  const std::string_view user = authority.substr(0, std::min(authority.find('@'), authority.find_first_of("/?")));
  const bool has_user = user.size() < authority.size() && authority[user.size()] == '@';
  if (!SaysPassword(conninfo) && (!has_user || user.find(':') == std::string_view::npos)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the connection string has a password, which others on this machine could see; put it into a password file "
      "(PGPASSFILE, or .pgpass in the home of whoever runs this) or a service file (PGSERVICEFILE)");
}

}  // namespace sheaf
