// HealthService: grpc.health.v1.Health, for whoever asks: no token is needed to hear whether a server serves.
//
//   HealthService health(pipeline);          // Within its limits.
//   builder.RegisterService(&health);
//   health.SetServing("sheaf.v1.WorkService", true);
//   health.Shutdown();                       // Ends the watches; before the server's own.
//
// gRPC's own has no bound on watches, and a watch is a stream that a stranger holds for as long as it likes. Check is a
// call like others. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "server/calls/call_pipeline.h"
#include "server/rpc/raw_service.h"

namespace sheaf {

class HealthService final : public RawService {
 public:
  // `pipeline` must outlive it.
  explicit HealthService(const CallPipeline& pipeline);

  // Of a service by its full name; of the server: "".
  void SetServing(const std::string& service, bool is_serving) EXCLUDES(mutex_);
  void Shutdown() EXCLUDES(mutex_);

 private:
  class Watch;
  enum class Status { kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext& context, const grpc::ByteBuffer& request,
                                  grpc::ByteBuffer& response);
  grpc::ServerWriteReactor<grpc::ByteBuffer>* StartWatch(const grpc::ByteBuffer& request);
  std::vector<std::shared_ptr<Watch>> Watches() const REQUIRES(mutex_);
  Status StatusOf(const std::string& service) const REQUIRES(mutex_);

  const CallPipeline& pipeline_;
  Mutex mutex_;
  std::map<std::string, bool> is_serving_ GUARDED_BY(mutex_);
  // Those that are open.
  std::map<Watch*, std::shared_ptr<Watch>> watches_ GUARDED_BY(mutex_);
  bool is_shut_down_ GUARDED_BY(mutex_) = false;
};

}  // namespace sheaf
