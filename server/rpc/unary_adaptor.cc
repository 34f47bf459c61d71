#include "server/rpc/unary_adaptor.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace sheaf {
namespace {

// gRPC's peers refuse headers beyond 8 KiB, and the message is percent-encoded into one.
constexpr size_t kMessageBytesMax = 2048;

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

absl::StatusOr<IdentityPtr> Authenticate(const MethodTable& methods, const grpc::CallbackServerContext& context) {
  // Neither metadata nor certificates are looked at where nobody asks for them.
  if (!methods.requires_tokens()) return Identity::Anybody();
  const auto& metadata = context.client_metadata();
  const auto header = metadata.find("authorization");
  if (header != metadata.end()) return methods.Authenticate(View(header->second), {});
  // Empty unless the client showed a certificate that was checked.
  std::vector<std::string> names;
  const std::shared_ptr<const grpc::AuthContext> connection = context.auth_context();
  if (connection != nullptr && connection->IsPeerAuthenticated()) {
    for (const grpc::string_ref& name : connection->GetPeerIdentity()) names.emplace_back(View(name));
  }
  return methods.Authenticate("", names);
}

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

grpc::ServerUnaryReactor* UnaryAdaptor::Serve(std::string_view method, grpc::CallbackServerContext& context,
                                              const google::protobuf::Message& request,
                                              google::protobuf::Message& response) {
  {
    MutexLock lock(mutex_);
    ++num_open_;
  }
  auto* reactor = new Call(methods_, method, request);
  absl::StatusOr<IdentityPtr> caller = Authenticate(methods_, context);
  if (!caller.ok()) {
    End();
    reactor->Finish(ToGrpcStatus(caller.status()));
    return reactor;
  }
  if (const auto size = static_cast<int64_t>(request.ByteSizeLong()); size > request_bytes_max_) {
    End();
    reactor->Finish(ToGrpcStatus(absl::ResourceExhaustedError(fmt::format(
        "the request has {} bytes, over request_bytes_max = {}; send less in one call: fewer tasks, smaller "
        "payloads, and what tasks share in the round's broadcast",
        size, request_bytes_max_))));
    return reactor;
  }
  methods_.Dispatch(method, *caller, request, &response, [this, reactor](const absl::Status& status) {
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
