// UnaryAdaptor: the one way from gRPC to a handler. The services (services.cc) only call it.
//
//   return adaptor.Serve(method, *context, request_bytes, response_bytes);
//
// In this order: who calls (the metadata `authorization`, or the certificate of the connection), how large the request
// is, whether there is room for it (Admission) and for its answer (AnswerBooks: lists and reads wait for some), and
// only then the request is parsed. So what is refused has cost little, and the bytes of a stranger are never looked at.
// What is large to parse, and what is no business of the core's, goes on in the CallPool, so that gRPC's few threads
// are free to receive. The request is freed when it was answered; the answer is in the books until gRPC has sent it, or
// cut it off. A call that its client cancelled, or whose connection broke, is abandoned: a parked poll, or a wait for
// room, ends at once; any other call runs to its end. The answer goes nowhere. Thread-safe.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log_quota.h"
#include "base/mutex.h"
#include "server/handlers/answer_books.h"
#include "server/handlers/method_table.h"

namespace sheaf {

// The same code; the message, cut where gRPC's headers would not carry it.
grpc::Status ToGrpcStatus(const absl::Status& status);

struct ServedMethod {
  // "sheaf.v1.WorkService/Sync"
  std::string name;
  // "/sheaf.v1.WorkService/Sync"
  std::string path;
  // Prototypes.
  const google::protobuf::Message& request;
  const google::protobuf::Message& response;
  MethodTable::Traits traits;
};

class UnaryAdaptor {
 public:
  // All must outlive it.
  UnaryAdaptor(const MethodTable& methods, AnswerBooks& answers, const Clock& clock)
      : methods_(methods), answers_(answers), clock_(clock) {}

  const MethodTable& methods() const { return methods_; }

  // All arguments must live until the call is done. The request is cleared before.
  grpc::ServerUnaryReactor* Serve(const ServedMethod& method, grpc::CallbackServerContext& context,
                                  grpc::ByteBuffer& request, grpc::ByteBuffer& response);

  // True if no call is open, within `timeout`.
  bool WaitUntilIdle(absl::Duration timeout);

 private:
  class Call;
  void End();

  const MethodTable& methods_;
  AnswerBooks& answers_;
  const Clock& clock_;
  LogQuota refusals_;
  Mutex mutex_;
  CondVar idle_;
  int64_t num_open_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sheaf
