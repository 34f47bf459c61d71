#include "server/rpc/grpc_call.h"

#include <grpc/grpc.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <charconv>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/checksum.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "base/trace_parent.h"
#include "server/calls/call.h"
#include "server/rpc/forwarded_metadata.h"
#include "server/rpc/message_bytes.h"

namespace sheaf {
namespace {

// gRPC's peers refuse headers beyond 8 KiB, and the message is percent-encoded into one.
constexpr size_t kMessageBytesMax = 2048;

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

// Empty: there is none.
std::string_view Header(const grpc::CallbackServerContext& context, const char* name) {
  const auto& metadata = context.client_metadata();
  const auto header = metadata.find(name);
  return header == metadata.end() ? std::string_view() : View(header->second);
}

class GrpcCall : public grpc::ServerUnaryReactor, public Call {
 public:
  GrpcCall(CallPipeline& pipeline, const MethodRow& method, grpc::CallbackServerContext& context,
           grpc::ByteBuffer& request, grpc::ByteBuffer& answer, std::string connection)
      : Call(pipeline, method, std::move(connection)), context_(context), request_(request), answer_(answer) {}

  // --- gRPC's ---
  void OnCancel() final { Cancel(); }
  void OnDone() final { OnSent(); }

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
  std::string_view traceparent() const override { return Header(context_, TraceParent::kHeader); }
  int64_t request_bytes() const override { return static_cast<int64_t>(request_.Length()); }
  absl::Status Read(Reader read) const override {
    grpc::ProtoBufferReader stream(&request_);
    return read(stream);
  }
  void FreeRequest() override { request_.Clear(); }

  absl::StatusOr<int64_t> Write(const google::protobuf::Message& answer) override {
    ASSIGN_OR_RETURN(answer_, ToBytes(answer));
    return static_cast<int64_t>(answer_.Length());
  }
  void FreeAnswer() override { answer_.Clear(); }
  void Send(const absl::Status& status) override {
    if (const std::optional<absl::Duration> pause = RetryAfter(status)) {
      context_.AddTrailingMetadata(kRetryHeader, RetryHeaderValue(*pause));
    }
    Finish(ToGrpcStatus(status));
  }

 protected:
  grpc::CallbackServerContext& context_;

 private:
  grpc::ByteBuffer& request_;
  grpc::ByteBuffer& answer_;
};

class ForwardedGrpcCall final : public GrpcCall {
 public:
  using GrpcCall::GrpcCall;

 private:
  Credentials credentials() const override {
    Credentials credentials = {.authorization = Header(context_, "authorization")};
    if (!credentials.authorization.empty()) return credentials;
    const auto& metadata = context_.client_metadata();
    const auto [begin, end] = metadata.equal_range(kForwardCertificateNameHeader);
    for (auto name = begin; name != end; ++name) credentials.certificate_names.emplace_back(View(name->second));
    return credentials;
  }
  int64_t answer_bytes_asked() const override { return Number(kForwardAnswerBytesHeader).value_or(0); }
  bool asks_only() const override { return !Header(context_, kForwardAsksOnlyHeader).empty(); }
  std::optional<Shard> forwarded_to() const override {
    const std::optional<int64_t> shard = Number(kForwardShardHeader);
    return shard && *shard >= kHomeShard && *shard < kNumShards ? std::optional(static_cast<Shard>(*shard))
                                                                : std::nullopt;
  }

 private:
  std::optional<int64_t> Number(const char* header) const {
    const std::string_view text = Header(context_, header);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && !text.empty() ? std::optional(number) : std::nullopt;
  }
};

}  // namespace

grpc::ServerUnaryReactor* StartGrpcCall(CallPipeline& pipeline, const MethodRow& method,
                                        grpc::CallbackServerContext& context, grpc::ByteBuffer& request,
                                        grpc::ByteBuffer& answer) {
  auto* call = new GrpcCall(pipeline, method, context, request, answer, context.peer());
  call->Begin();
  return call;
}

grpc::ServerUnaryReactor* StartForwardedGrpcCall(CallPipeline& pipeline, const MethodRow& method,
                                                 grpc::CallbackServerContext& context, grpc::ByteBuffer& request,
                                                 grpc::ByteBuffer& answer, const std::string& secret) {
  // The hashes: how long they take to differ tells nobody what the secret is.
  if (Sha256Hex(Header(context, kForwardSecretHeader)) != Sha256Hex(secret)) {
    grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
    reactor->Finish({grpc::StatusCode::UNAVAILABLE, "this port is for servers that know its server's newest secret"});
    return reactor;
  }
  auto* call = new ForwardedGrpcCall(pipeline, method, context, request, answer,
                                     std::string(Header(context, kForwardConnectionHeader)));
  call->Begin();
  return call;
}

Credentials CredentialsOf(const grpc::CallbackServerContext& context) {
  if (const std::string_view shown = Header(context, "authorization"); !shown.empty()) return {.authorization = shown};
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
