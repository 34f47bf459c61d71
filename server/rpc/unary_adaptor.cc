#include "server/rpc/unary_adaptor.h"

#include <fmt/format.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/retry_hint.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// gRPC's peers refuse headers beyond 8 KiB, and the message is percent-encoded into one.
constexpr size_t kMessageBytesMax = 2048;
// gRPC's own name for "not before so many milliseconds have passed".
constexpr char kRetryMetadata[] = "grpc-retry-pushback-ms";

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
  Call(UnaryAdaptor& adaptor, const ServedMethod& method, grpc::CallbackServerContext& context,
       grpc::ByteBuffer& answer)
      : adaptor_(adaptor), method_(method), context_(context), answer_(answer), response_(method.response.New()) {}

  void Serve(const grpc::ByteBuffer& bytes) {
    const MethodTable& methods = adaptor_.methods_;
    const auto size = static_cast<int64_t>(bytes.Length());
    absl::StatusOr<IdentityPtr> caller = Authenticate(methods, context_);
    if (!caller.ok()) return End(caller.status());
    if (absl::Status status = methods.Enter(method_.name, **caller, size, adaptor_.clock_.Now()); !status.ok()) {
      return End(std::move(status));
    }
    admitted_bytes_ = size;
    if (absl::Status status = Parse(bytes); !status.ok()) return End(std::move(status));
    methods.Dispatch(method_.name, *caller, *request_, response_.get(),
                     [this](absl::Status status) { End(std::move(status)); });
  }

  void OnCancel() override {
    // Abandoning what was refused finds nothing.
    if (is_dispatched()) adaptor_.methods_.Abandon(method_.name, *request_);
  }
  void OnDone() override { delete this; }

 private:
  // Neither reaction waits for anything, so gRPC need not find them a thread of its own. It is the only way to say so:
  // gRPC's own default reactor does the same, but hears of no cancellation.
  bool InternalInlineable() override { return true; }

  // gRPC tells of a cancellation only after Serve has returned.
  bool is_dispatched() const { return request_ != nullptr; }

  absl::Status Parse(grpc::ByteBuffer bytes) {
    const google::protobuf::Descriptor& type = *method_.request.GetDescriptor();
    if (adaptor_.methods_.CountsParts(static_cast<int64_t>(bytes.Length()))) {
      grpc::ProtoBufferReader reader(&bytes);
      RETURN_IF_ERROR(adaptor_.methods_.CheckParts(type, reader));
    }
    std::unique_ptr<google::protobuf::Message> request(method_.request.New());
    grpc::ProtoBufferReader reader(&bytes);
    if (!request->ParseFromZeroCopyStream(&reader)) {
      return absl::InvalidArgumentError(fmt::format("the request is not a serialised {}", type.full_name()));
    }
    request_ = std::move(request);
    return absl::OkStatus();
  }

  void End(absl::Status status) {
    if (status.ok()) {
      bool is_own = false;
      const grpc::Status written =
          grpc::SerializationTraits<google::protobuf::Message>::Serialize(*response_, &answer_, &is_own);
      if (!written.ok()) status = absl::InternalError("the answer cannot be serialised");
    }
    if (const std::optional<absl::Duration> pause = RetryAfter(status)) {
      context_.AddTrailingMetadata(kRetryMetadata, fmt::format("{}", absl::ToInt64Milliseconds(*pause)));
    }
    // In this order: once the last call is finished, a server that shuts down may destroy the adaptor.
    if (admitted_bytes_) adaptor_.methods_.Leave(*admitted_bytes_);
    adaptor_.End();
    Finish(ToGrpcStatus(status));
  }

  UnaryAdaptor& adaptor_;
  const ServedMethod& method_;
  grpc::CallbackServerContext& context_;
  grpc::ByteBuffer& answer_;
  std::optional<int64_t> admitted_bytes_;
  std::unique_ptr<google::protobuf::Message> request_;
  const std::unique_ptr<google::protobuf::Message> response_;
};

grpc::ServerUnaryReactor* UnaryAdaptor::Serve(const ServedMethod& method, grpc::CallbackServerContext& context,
                                              const grpc::ByteBuffer& request, grpc::ByteBuffer& response) {
  {
    MutexLock lock(mutex_);
    ++num_open_;
  }
  auto* call = new Call(*this, method, context, response);
  call->Serve(request);
  return call;
}

bool UnaryAdaptor::WaitUntilIdle(absl::Duration timeout) {
  const absl::Time end = clock_.Now() + timeout;
  MutexLock lock(mutex_);
  for (absl::Duration left = timeout; num_open_ > 0 && left > absl::ZeroDuration(); left = end - clock_.Now()) {
    idle_.WaitFor(mutex_, left);
  }
  return num_open_ == 0;
}

void UnaryAdaptor::End() {
  MutexLock lock(mutex_);
  if (--num_open_ == 0) idle_.NotifyAll();
}

}  // namespace sheaf
