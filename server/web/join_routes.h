// JoinRoutes: what tabs that compute fetch: `GET /join`, the page, and `GET /join/files/NAME`, of the files that the
// server's owner gives them.
//
//   for (Route& route : JoinRoutes(&files)) routes.push_back(std::move(route));
//
// A browser shows no token when it loads a module: the files are for whoever reaches the port. The routes refer to the
// files; without any, the page says how there would be some. Thread-safe.
#pragma once

#include <vector>

#include "server/http/routes.h"
#include "server/web/join_files.h"

namespace sheaf {

std::vector<Route> JoinRoutes(const JoinFiles* files);

}  // namespace sheaf
