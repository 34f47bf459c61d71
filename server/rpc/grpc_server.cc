#include "server/rpc/grpc_server.h"

#include <fmt/format.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <climits>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "server/net/batch_scheduling.h"
#include "server/net/listener.h"
#include "server/rpc/forwarded_metadata.h"
#include "server/rpc/health_service.h"
#include "server/rpc/reflection_service.h"
#include "server/rpc/services.h"
#include "server/rpc/ticker.h"

namespace sheaf {
namespace {

// Requests beyond this multiple of request_bytes_max are refused by gRPC, in its words; those between are read and
// refused in ours, which name the remedy.
constexpr int64_t kReceiveFactor = 4;

// gRPC writes its own lines to stderr, several for one failure that we report in a sentence ourselves.
void LogFromGrpc(gpr_log_func_args* args) { LogDebug("grpc: {}", args->message); }

void ConfigureGrpcOnce() {
  static const bool is_done = [] {
    // Debian builds absl so that its mutexes, gRPC's own, look for deadlocks at every lock, and remember each mutex.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    gpr_set_log_function(LogFromGrpc);
    // Ours has a bound.
    grpc::EnableDefaultHealthCheckService(false);
    return true;
  }();
  static_cast<void>(is_done);
}

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(duration), 1, INT_MAX));
}

void SetLimits(grpc::ServerBuilder& builder, const Limits& limits, int64_t calls_per_connection_max) {
  builder.SetMaxReceiveMessageSize(
      static_cast<int>(std::min<int64_t>(kReceiveFactor * limits.request_bytes_max, INT_MAX)));
  grpc::ResourceQuota quota("sheafd");
  quota.Resize(static_cast<size_t>(limits.receive_bytes_max));
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(std::min<int64_t>(calls_per_connection_max, INT_MAX)));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(limits.handshake_timeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(limits.connection_idle_max));
  // Tensors hardly compress, and gzip costs 20 times what the bytes do.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  // Workers ping through NATs while a call is parked; and a worker whose machine vanished must be noticed here.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
}

// How often answers are looked at that nobody takes, and calls that wait for room: their limits are seconds.
constexpr absl::Duration kAnswerTick = absl::Milliseconds(500);

// How often gRPC looks for a certificate that the watch has let pass.
constexpr unsigned kCertificateRefreshSeconds = 1;

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const GrpcServer::Options& server) {
  if (server.for_peers) {
    grpc::SslServerCredentialsOptions options;
    options.pem_key_cert_pairs.push_back(
        {.private_key = server.for_peers->shown.key, .cert_chain = server.for_peers->shown.certificate});
    return grpc::SslServerCredentials(options);
  }
  if (server.certificates == nullptr) return grpc::InsecureServerCredentials();
  // What is in them can work.
  const CertificateFiles files = server.certificates->served();
  if (files.certificate.empty()) return grpc::InsecureServerCredentials();
  // TLS 1.2 is the lowest that gRPC's credentials of this kind speak.
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          files.key, files.certificate, files.authorities, kCertificateRefreshSeconds));
  options.watch_identity_key_cert_pairs();
  if (!files.authorities.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

std::vector<std::string> NamesOf(const std::vector<NamedService>& services) {
  std::vector<std::string> names;
  for (const NamedService& service : services) names.push_back(service.name);
  return names;
}

}  // namespace

struct GrpcServer::State {
  State(CallPipeline& pipeline, const Clock& clock, const std::string& forward_secret)
      : services(MakeServices(pipeline, forward_secret)),
        health(pipeline),
        reflection(pipeline, NamesOf(services)),
        ticker(kAnswerTick, [&pipeline, &clock] { pipeline.Tick(clock.Now()); }) {}

  std::vector<NamedService> services;
  HealthService health;
  ReflectionService reflection;
  Ticker ticker;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
  std::string address;
  std::unique_ptr<Listener> listener;
};

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(CallPipeline& pipeline, const Clock& clock,
                                                              Options options) {
  ConfigureGrpcOnce();
  auto state = std::make_unique<State>(pipeline, clock, options.for_peers ? options.for_peers->secret : "");
  grpc::ServerBuilder builder;
  // Names of a client's certificate may be many.
  if (options.for_peers) builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kForwardMetadataBytesMax);
  // All calls of another server come over one connection.
  SetLimits(builder, pipeline.limits(), options.for_peers ? INT_MAX : pipeline.limits().calls_per_connection_max);
  state->listener = std::move(options.listener);
  if (state->listener == nullptr) {
    ASSIGN_OR_RETURN(state->listener, Listener::Open(options.listen));
  }
  state->address = state->listener->address();
  state->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, ServerCredentialsOf(options));
  for (const NamedService& service : state->services) builder.RegisterService(service.service.get());
  builder.RegisterService(&state->health);
  builder.RegisterService(&state->reflection);
  {
    const BatchScheduling scheduling;
    state->server = builder.BuildAndStart();
  }
  if (state->server == nullptr) return absl::InternalError("gRPC does not start a server");
  state->listener->Start([acceptor = state->acceptor.get()](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  });
  auto server = std::unique_ptr<GrpcServer>(new GrpcServer(std::move(state)));
  server->SetServing(true);
  return server;
}

GrpcServer::GrpcServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

GrpcServer::~GrpcServer() { Shutdown(absl::ZeroDuration()); }

const std::string& GrpcServer::address() const { return state_->address; }

void GrpcServer::SetServing(bool is_serving) {
  state_->health.SetServing("", is_serving);
  for (const NamedService& service : state_->services) state_->health.SetServing(service.name, is_serving);
}

void GrpcServer::Shutdown(absl::Duration grace) {
  state_->listener->Stop();
  state_->health.Shutdown();
  state_->server->Shutdown(gpr_time_from_millis(absl::ToInt64Milliseconds(grace), GPR_TIMESPAN));
}

}  // namespace sheaf
