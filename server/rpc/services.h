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

// `pipeline` must outlive them.
std::vector<NamedService> MakeServices(CallPipeline& pipeline);

}  // namespace sheaf
