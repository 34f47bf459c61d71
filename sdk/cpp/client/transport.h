// Transport: what callers of the server use instead of gRPC. One virtual method makes every call, so that a
// decorator (retries, faults, timing) is written once and not once per method.
//
//   ASSIGN_OR_RETURN(v1::GetRoundResponse response, BlockingCall(transport, kGetRound, request));
//   Call(transport, kSync, poll, {.timeout = absl::Seconds(70)}, on_answer);   // An absl::StatusOr<v1::SyncResponse>.
//
// Implementations: GrpcTransport (grpc_transport.h), HttpTransport (http_transport.h), RetryingTransport
// (retrying_transport.h), and in tests one that calls the server's handlers in the same thread, and one that loses,
// repeats and delays.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/methods.h"

namespace sheaf {

struct CallOptions {
  // The call ends with DEADLINE_EXCEEDED after this time.
  absl::Duration timeout = absl::Seconds(30);
};

class Transport {
 public:
  using Done = std::function<void(absl::Status)>;
  virtual ~Transport() = default;

  // Sends `request` to `method` ("sheaf.v1.WorkService/Sync") and calls `done` exactly once, from any thread (possibly
  // before CallMethod returns), with `response` filled if OK. `request` may be destroyed when this returns; `response`
  // must live until `done`. UNAVAILABLE if the server cannot be reached. Thread-safe.
  virtual void CallMethod(std::string_view method, const google::protobuf::Message& request,
                          google::protobuf::Message* response, const CallOptions& options, Done done) = 0;
};

template <typename M>
void Call(Transport& transport, const M& method, const typename M::Request& request, const CallOptions& options,
          std::function<void(absl::StatusOr<typename M::Response>)> done) {
  auto response = std::make_shared<typename M::Response>();
  transport.CallMethod(method.name, request, response.get(), options,
                       [response, done = std::move(done)](absl::Status status) {
                         if (!status.ok()) return done(std::move(status));
                         done(std::move(*response));
                       });
}

// Waits for one call to end; used by BlockingCall.
absl::Status BlockingCallMethod(Transport& transport, std::string_view method, const google::protobuf::Message& request,
                                google::protobuf::Message* response, const CallOptions& options);

template <typename M>
absl::StatusOr<typename M::Response> BlockingCall(Transport& transport, const M& method,
                                                  const typename M::Request& request, const CallOptions& options = {}) {
  typename M::Response response;
  absl::Status status = BlockingCallMethod(transport, method.name, request, &response, options);
  if (!status.ok()) return status;
  return response;
}

}  // namespace sheaf
