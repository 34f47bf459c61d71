// ReflectionService: grpc.reflection.v1alpha.ServerReflection: what methods and messages there are, to those who have
// no proto files, such as grpcurl.
//
//   ReflectionService reflection(methods, {"sheaf.v1.WorkService", ...}, /*streams_max=*/64);
//   builder.RegisterService(&reflection);
//
// gRPC's own keeps a thread for each stream, and lets everybody open as many as they like. Here a stream costs no
// thread, there is a bound on them, and once the server asks for tokens, it asks for one here too. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "server/handlers/method_table.h"

namespace sheaf {

class ReflectionService final : public grpc::Service {
 public:
  // `methods` must outlive it.
  ReflectionService(const MethodTable& methods, std::vector<std::string> services, int64_t streams_max);

 private:
  class Stream;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Open(grpc::CallbackServerContext& context);
  // The answer to one request.
  std::string Answer(const std::string& request) const;

  const MethodTable& methods_;
  const std::vector<std::string> services_;
  const int64_t streams_max_;
  std::atomic<int64_t> num_streams_ = 0;
};

}  // namespace sheaf
