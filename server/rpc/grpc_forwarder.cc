#include "server/rpc/grpc_forwarder.h"

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <utility>
#include <vector>

#include "base/retry_hint.h"
#include "base/trace_parent.h"
#include "server/rpc/forwarded_metadata.h"
#include "server/rpc/message_bytes.h"

namespace sheaf {
namespace {

using google::protobuf::Message;

// A server that has just taken the store over is known to the others after a tenth of a second.
constexpr absl::Duration kComeBackAfter = absl::Milliseconds(100);

grpc::ChannelArguments ArgumentsOfPeer() {
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(kPeerName);
  // What may be asked and answered was checked by both servers' pipelines.
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // A machine that vanished without a word.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // An owner that comes back at the same address has another certificate.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

}  // namespace

struct GrpcForwarder::Connection {
  explicit Connection(Owner its_owner)
      : owner(std::move(its_owner)),
        stub(grpc::CreateCustomChannel(
            owner.address,
            grpc::SslCredentials({.pem_root_certs = owner.certificate, .pem_private_key = "", .pem_cert_chain = ""}),
            ArgumentsOfPeer())) {}

  const Owner owner;
  grpc::GenericStub stub;
};

struct GrpcForwarder::OpenCall {
  explicit OpenCall(std::shared_ptr<Connection> to) : connection(std::move(to)) {}

  const std::shared_ptr<Connection> connection;
  grpc::ClientContext context;
  grpc::ByteBuffer request;
  grpc::ByteBuffer answer;
  Message* response = nullptr;
  MethodRow::Done done;
};

GrpcForwarder::~GrpcForwarder() {
  SetOwner(std::nullopt);
  MutexLock lock(mutex_);
  while (!open_.empty()) none_open_.Wait(mutex_);
}

void GrpcForwarder::SetOwner(std::optional<Owner> owner) {
  std::vector<std::shared_ptr<OpenCall>> given_up;
  std::shared_ptr<Connection> before;
  {
    MutexLock lock(mutex_);
    if (owner && connection_ != nullptr && connection_->owner == *owner) return;
    before = std::exchange(connection_, owner ? std::make_shared<Connection>(*std::move(owner)) : nullptr);
    for (const auto& [id, call] : open_) given_up.push_back(call);
  }
  for (const auto& call : given_up) call->context.TryCancel();
}

void GrpcForwarder::Forward(CallId id, const MethodRow& method, const ForwardedCaller& caller, const Message& request,
                            Message* response, MethodRow::Done done) {
  absl::StatusOr<grpc::ByteBuffer> bytes = ToBytes(request);
  if (!bytes.ok()) return done(bytes.status());
  std::shared_ptr<OpenCall> call;
  {
    MutexLock lock(mutex_);
    if (connection_ != nullptr) {
      call = std::make_shared<OpenCall>(connection_);
      open_.emplace(id, call);
    }
  }
  if (call == nullptr) {
    return done(WithRetryAfter(absl::UnavailableError("no server owns the store at the moment; one will soon"),
                               kComeBackAfter));
  }
  call->request = *std::move(bytes);
  call->response = response;
  call->done = std::move(done);
  grpc::ClientContext& context = call->context;
  context.AddMetadata(kForwardSecretHeader, call->connection->owner.secret);
  context.AddMetadata(kForwardConnectionHeader, std::string(caller.connection));
  if (!caller.shown.authorization.empty()) {
    context.AddMetadata("authorization", std::string(caller.shown.authorization));
  }
  for (const std::string& name : caller.shown.certificate_names) {
    context.AddMetadata(kForwardCertificateNameHeader, name);
  }
  if (!caller.traceparent.empty()) context.AddMetadata(TraceParent::kHeader, std::string(caller.traceparent));
  if (caller.answer_bytes_max > 0) {
    context.AddMetadata(kForwardAnswerBytesHeader, std::to_string(caller.answer_bytes_max));
  }
  if (caller.asks_only) context.AddMetadata(kForwardAsksOnlyHeader, "1");
  context.AddMetadata(kForwardShardHeader, std::to_string(shard_));
  call->connection->stub.UnaryCall(&context, "/" + method.name, {}, &call->request, &call->answer,
                                   [this, id, call](const grpc::Status& status) { End(id, call, status); });
}

void GrpcForwarder::End(CallId id, const std::shared_ptr<OpenCall>& call, const grpc::Status& status) {
  const Owner& owner = call->connection->owner;
  absl::Status ended;
  if (status.ok()) {
    grpc::ProtoBufferReader stream(&call->answer);
    if (!call->response->ParseFromZeroCopyStream(&stream)) {
      ended =
          absl::InternalError(fmt::format("server {} answers with no {}", owner.name, call->response->GetTypeName()));
    }
  } else {
    ended = absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
    const auto& metadata = call->context.GetServerTrailingMetadata();
    if (const auto hint = metadata.find(kRetryHeader); hint != metadata.end()) {
      ended = WithRetryHeader(std::move(ended), {hint->second.data(), hint->second.size()});
    }
  }
  const MethodRow::Done done = std::move(call->done);
  bool is_given_up = false;
  {
    MutexLock lock(mutex_);
    is_given_up = connection_ != call->connection;
  }
  // An owner that stops cancels what comes before this side has heard that no more may come.
  if (absl::IsUnavailable(ended) || absl::IsCancelled(ended)) {
    const absl::Duration pause = RetryAfter(ended).value_or(kComeBackAfter);
    ended = WithRetryAfter(
        absl::UnavailableError(is_given_up ? fmt::format("server {} no longer owns the store", owner.name)
                                           : fmt::format("server {} at {}, which owns the store: {}", owner.name,
                                                         owner.address, std::string(ended.message()))),
        pause);
  }
  done(std::move(ended));
  MutexLock lock(mutex_);
  open_.erase(id);
  if (open_.empty()) none_open_.NotifyAll();
}

void GrpcForwarder::Abandon(CallId id, const MethodRow& /*method*/, const Identity& /*caller*/) {
  std::shared_ptr<OpenCall> call;
  {
    MutexLock lock(mutex_);
    const auto open = open_.find(id);
    if (open == open_.end()) return;
    call = open->second;
  }
  call->context.TryCancel();
}

}  // namespace sheaf
