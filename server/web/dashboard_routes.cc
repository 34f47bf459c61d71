#include "server/web/dashboard_routes.h"

#include <fmt/format.h>

#include <string_view>

#include "server/web/embedded_file.h"
#include "server/web/embedded_route.h"

namespace sheaf {
namespace {

// A page runs our scripts and nothing else, also where a name or a text that it shows would be one: nothing inline, no
// string becomes markup, nothing from elsewhere, and no calls but to this server. No page of others has it in a frame.
constexpr std::string_view kDashboardPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

}  // namespace

std::vector<Route> DashboardRoutes() {
  std::vector<Route> routes;
  for (const EmbeddedFile& file : DashboardFiles()) {
    routes.push_back(
        EmbeddedRoute(file.name == "index.html" ? "/" : fmt::format("/ui/{}", file.name), file, kDashboardPolicy));
  }
  return routes;
}

}  // namespace sheaf
