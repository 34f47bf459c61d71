#include "server/rpc/unary_adaptor.h"

#include <string>

namespace sheaf {
namespace {

// gRPC's peers refuse headers beyond 8 KiB, and the message is percent-encoded into one.
constexpr size_t kMessageBytesMax = 2048;

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message().substr(0, kMessageBytesMax)));
}

grpc::ServerUnaryReactor* UnaryAdaptor::Serve(std::string_view method, grpc::CallbackServerContext& context,
                                              const google::protobuf::Message& request,
                                              google::protobuf::Message& response) {
  {
    MutexLock lock(mutex_);
    ++num_open_;
  }
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  methods_.Dispatch(method, request, &response, [this, reactor](const absl::Status& status) {
    // In this order: once the last call is finished, a server that shuts down may destroy the adaptor.
    End();
    reactor->Finish(ToGrpcStatus(status));
  });
  return reactor;
}

bool UnaryAdaptor::WaitUntilIdle(absl::Duration timeout) {
  MutexLock lock(mutex_);
  if (num_open_ > 0) idle_.WaitFor(mutex_, timeout);
  return num_open_ == 0;
}

void UnaryAdaptor::End() {
  MutexLock lock(mutex_);
  if (--num_open_ == 0) idle_.NotifyAll();
}

}  // namespace sheaf
