// RouteGrpcLog: gRPC's own lines ("E1122 07:11:59.7 1291 ssl_transport_security.cc:1501] ...") go into our log at the
// level debug, instead of straight to stderr. What they tell of a call its status tells, too. Once, from main, before
// the first channel; not where somebody asked for gRPC's lines (GRPC_VERBOSITY).
//
//   if (std::getenv("GRPC_VERBOSITY") == nullptr) RouteGrpcLog();
#pragma once

namespace sheaf {

void RouteGrpcLog();

}  // namespace sheaf
