// The services of the wire contract as gRPC serves them: the rows of the pipeline's method table, service by service,
// each call of which becomes a GrpcCall.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/calls/call_pipeline.h"
#include "server/rpc/raw_service.h"

namespace sheaf {

struct NamedService {
  // "sheaf.v1.WorkService"
  std::string name;
  std::unique_ptr<grpc::Service> service;
};

// `pipeline` must outlive them. With a secret they are for servers that show it, and forward others' calls.
std::vector<NamedService> MakeServices(CallPipeline& pipeline, const std::string& forward_secret = "");

}  // namespace sheaf
