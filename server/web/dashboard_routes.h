// DashboardRoutes: the pages that people look at, as rows of HTTP's table: `GET /`, and below `/ui/` what it refers to.
//
//   ASSIGN_OR_RETURN(auto server, HttpServer::Start(pipeline, clock, {.listen = "127.0.0.1:0",
//                                                                     .routes = DashboardRoutes()}));
//
// The files are constants of the binary, the same for everybody; they say nothing of the server that has them, and are
// answered to whoever asks. What a page shows it asks for by the public methods, as whoever has logged in. Thread-safe.
#pragma once

#include <vector>

#include "server/http/routes.h"

namespace sheaf {

std::vector<Route> DashboardRoutes();

}  // namespace sheaf
