#include "server/rpc/unary_adaptor.h"

#include <fmt/format.h>

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

// gRPC's side of one call. Deletes itself when gRPC is done with it.
class UnaryAdaptor::Call final : public grpc::ServerUnaryReactor {
 public:
  Call(const MethodTable& methods, std::string_view method, const google::protobuf::Message& request)
      : methods_(methods), method_(method), request_(request) {}

  void OnCancel() override { methods_.Abandon(method_, request_); }
  void OnDone() override { delete this; }

 private:
  // Neither reaction waits for anything, so gRPC need not find them a thread of its own. It is the only way to say so:
  // gRPC's own default reactor does the same, but hears of no cancellation.
  bool InternalInlineable() override { return true; }

  const MethodTable& methods_;
  const std::string_view method_;
  const google::protobuf::Message& request_;
};

grpc::ServerUnaryReactor* UnaryAdaptor::Serve(std::string_view method, grpc::CallbackServerContext& /*context*/,
                                              const google::protobuf::Message& request,
                                              google::protobuf::Message& response) {
  {
    MutexLock lock(mutex_);
    ++num_open_;
  }
  auto* reactor = new Call(methods_, method, request);
  if (const auto size = static_cast<int64_t>(request.ByteSizeLong()); size > request_bytes_max_) {
    End();
    reactor->Finish(ToGrpcStatus(absl::ResourceExhaustedError(fmt::format(
        "the request has {} bytes, over request_bytes_max = {}; send less in one call: fewer tasks, smaller "
        "payloads, and what tasks share in the round's broadcast",
        size, request_bytes_max_))));
    return reactor;
  }
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
