#include "server/http/routes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sheaf {

bool Route::Takes(HttpMethod method) const {
  if (method == HttpMethod::kHead) method = HttpMethod::kGet;
  return std::find(methods.begin(), methods.end(), method) != methods.end();
}

std::string Route::Allow() const {
  std::string allow = Takes(HttpMethod::kGet) ? "GET, HEAD" : "";
  if (Takes(HttpMethod::kPost)) allow += allow.empty() ? "POST" : ", POST";
  return allow;
}

RouteTable::RouteTable(std::vector<Route> routes) : routes_(std::move(routes)) {
  for (const Route& route : routes_) {
    const bool is_new = by_path_.emplace(route.path, &route).second;
    SHEAF_CHECK(is_new, "two routes for the path {}", route.path);
    longest_ = std::max(longest_, route.path.size());
  }
}

const Route* RouteTable::Find(std::string_view path) const {
  if (const auto found = by_path_.find(path); found != by_path_.end()) return found->second;
  // A path of slashes would be hashed again and again: none of ours is longer than this.
  path = path.substr(0, longest_);
  for (size_t slash = path.rfind('/'); slash != std::string_view::npos && slash > 0; slash = path.rfind('/')) {
    if (const auto found = by_path_.find(path.substr(0, slash + 1)); found != by_path_.end()) return found->second;
    path = path.substr(0, slash);
  }
  return nullptr;
}

}  // namespace sheaf
