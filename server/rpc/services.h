// The generated services of the wire contract, each method handed to the UnaryAdaptor.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include <memory>
#include <string>
#include <vector>

#include "server/rpc/unary_adaptor.h"

namespace sheaf {

struct NamedService {
  // "sheaf.v1.WorkService"
  std::string name;
  std::unique_ptr<grpc::Service> service;
};

// `adaptor` must outlive them.
std::vector<NamedService> MakeServices(UnaryAdaptor& adaptor);

}  // namespace sheaf
