// ReflectionService: grpc.reflection.v1alpha.ServerReflection: what methods and messages there are, to those who have
// no proto files, such as grpcurl.
//
//   ReflectionService reflection(pipeline, {"sheaf.v1.WorkService", "sheaf.v1.RoundService"});
//   builder.RegisterService(&reflection);
//
// gRPC's own keeps a thread for each stream, and lets everybody open as many as they like. Here a stream costs no
// thread, there is a bound on them, and once the server asks for tokens, it asks for one here too. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "server/calls/call_pipeline.h"
#include "server/rpc/raw_service.h"

namespace sheaf {

class ReflectionService final : public RawService {
 public:
  // `pipeline` must outlive it.
  ReflectionService(const CallPipeline& pipeline, std::vector<std::string> services);

 private:
  class Stream;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Open(grpc::CallbackServerContext& context);
  // The answer to one request.
  std::string Answer(const std::string& request) const;

  const CallPipeline& pipeline_;
  const std::vector<std::string> services_;
  std::atomic<int64_t> num_streams_ = 0;
};

}  // namespace sheaf
