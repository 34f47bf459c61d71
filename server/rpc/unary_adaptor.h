// UnaryAdaptor: the one way from gRPC to a handler. The generated service classes (services.cc) only call it.
//
//   return adaptor.Serve("sheaf.v1.WorkService/Sync", *context, *request, *response);
//
// A call that its client cancelled runs to its end all the same, because request and response live until it is
// finished; its answer goes nowhere. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/handlers/method_table.h"

namespace sheaf {

// The same code; the message, cut where gRPC's headers would not carry it.
grpc::Status ToGrpcStatus(const absl::Status& status);

class UnaryAdaptor {
 public:
  // `methods` must outlive it.
  explicit UnaryAdaptor(const MethodTable& methods) : methods_(methods) {}

  grpc::ServerUnaryReactor* Serve(std::string_view method, grpc::CallbackServerContext& context,
                                  const google::protobuf::Message& request, google::protobuf::Message& response);

  // True if no call is open, within `timeout`.
  bool WaitUntilIdle(absl::Duration timeout);

 private:
  void End();

  const MethodTable& methods_;
  Mutex mutex_;
  CondVar idle_;
  int64_t num_open_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sheaf
