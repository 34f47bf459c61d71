// The services of the wire contract as gRPC serves them: every method of every descriptor, each handed to the
// UnaryAdaptor with its bytes as they came, before anybody has parsed them.
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
