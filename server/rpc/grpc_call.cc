#include "server/rpc/grpc_call.h"

#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/retry_hint.h"
#include "base/trace_parent.h"
#include "server/calls/call.h"

namespace sheaf {
namespace {

// gRPC's peers refuse headers beyond 8 KiB, and the message is percent-encoded into one.
constexpr size_t kMessageBytesMax = 2048;
// Of the pieces that an answer is written in.
constexpr int kSliceBytesMax = 1 << 20;

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

class GrpcCall final : public grpc::ServerUnaryReactor, public Call {
 public:
  GrpcCall(CallPipeline& pipeline, const MethodRow& method, grpc::CallbackServerContext& context,
           grpc::ByteBuffer& request, grpc::ByteBuffer& answer)
      : Call(pipeline, method, context.peer()), context_(context), request_(request), answer_(answer) {}

  // --- gRPC's ---
  void OnCancel() override { Cancel(); }
  void OnDone() override { OnSent(); }

  // --- The pipeline's ---
  std::function<void()> Cut() override {
    // gRPC may be done with it by then.
    grpc_call* call = context_.c_call();
    grpc_call_ref(call);
    return [call] {
      grpc_call_cancel(call, nullptr);
      grpc_call_unref(call);
    };
  }

 private:
  // Neither reaction waits for anything, so gRPC need not find them a thread of its own. It is the only way to say so:
  // gRPC's own default reactor does the same, but hears of no cancellation.
  bool InternalInlineable() override { return true; }

  Credentials credentials() const override { return CredentialsOf(context_); }
  std::string_view traceparent() const override {
    const auto& metadata = context_.client_metadata();
    const auto header = metadata.find(TraceParent::kHeader);
    return header == metadata.end() ? std::string_view() : View(header->second);
  }
  int64_t request_bytes() const override { return static_cast<int64_t>(request_.Length()); }
  absl::Status Read(Reader read) const override {
    grpc::ProtoBufferReader stream(&request_);
    return read(stream);
  }
  void FreeRequest() override { request_.Clear(); }

  absl::StatusOr<int64_t> Write(const google::protobuf::Message& answer) override {
    const auto size = static_cast<int>(answer.ByteSizeLong());
    if (size <= int{GRPC_SLICE_INLINED_SIZE}) {
      // It needs no memory of its own.
      std::array<uint8_t, GRPC_SLICE_INLINED_SIZE> bytes;
      answer.SerializeWithCachedSizesToArray(bytes.data());
      const grpc::Slice slice(bytes.data(), static_cast<size_t>(size));
      answer_ = grpc::ByteBuffer(&slice, 1);
      return size;
    }
    grpc::ProtoBufferWriter stream(&answer_, kSliceBytesMax, size);
    if (!answer.SerializeToZeroCopyStream(&stream)) return absl::InternalError("the answer cannot be serialised");
    return size;
  }
  void FreeAnswer() override { answer_.Clear(); }
  void Send(const absl::Status& status) override {
    if (const std::optional<absl::Duration> pause = RetryAfter(status)) {
      context_.AddTrailingMetadata(kRetryHeader, RetryHeaderValue(*pause));
    }
    Finish(ToGrpcStatus(status));
  }

  grpc::CallbackServerContext& context_;
  grpc::ByteBuffer& request_;
  grpc::ByteBuffer& answer_;
};

}  // namespace

grpc::ServerUnaryReactor* StartGrpcCall(CallPipeline& pipeline, const MethodRow& method,
                                        grpc::CallbackServerContext& context, grpc::ByteBuffer& request,
                                        grpc::ByteBuffer& answer) {
  auto* call = new GrpcCall(pipeline, method, context, request, answer);
  call->Begin();
  return call;
}

Credentials CredentialsOf(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  if (const auto header = metadata.find("authorization"); header != metadata.end()) {
    return {.authorization = View(header->second)};
  }
  Credentials credentials;
  // Empty unless the client showed a certificate that was checked.
  const std::shared_ptr<const grpc::AuthContext> connection = context.auth_context();
  if (connection != nullptr && connection->IsPeerAuthenticated()) {
    for (const grpc::string_ref& name : connection->GetPeerIdentity()) {
      credentials.certificate_names.emplace_back(View(name));
    }
  }
  return credentials;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message().substr(0, kMessageBytesMax)));
}

}  // namespace sheaf
