// UnaryAdaptor: the one way from gRPC to a handler. The generated service classes (services.cc) only call it.
//
//   return adaptor.Serve("sheaf.v1.WorkService/Sync", *context, *request, *response);
//
// Who calls is told by the metadata `authorization`, or the certificate of the connection: a call that is
// not let in never reaches the methods. A call that its client cancelled, or whose connection broke, is abandoned: a
// parked poll ends at once; any other call runs to its end, because request and response live until it is finished. The
// answer goes nowhere. Thread-safe.
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
  UnaryAdaptor(const MethodTable& methods, int64_t request_bytes_max)
      : methods_(methods), request_bytes_max_(request_bytes_max) {}

  grpc::ServerUnaryReactor* Serve(std::string_view method, grpc::CallbackServerContext& context,
                                  const google::protobuf::Message& request, google::protobuf::Message& response);

  // True if no call is open, within `timeout`.
  bool WaitUntilIdle(absl::Duration timeout);

 private:
  class Call;
  void End();

  const MethodTable& methods_;
  const int64_t request_bytes_max_;
  Mutex mutex_;
  CondVar idle_;
  int64_t num_open_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sheaf
