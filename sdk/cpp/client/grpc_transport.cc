#include "sdk/cpp/client/grpc_transport.h"

#include <fmt/format.h>
#include <grpcpp/alarm.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/retry_hint.h"
#include "sdk/cpp/client/channel_certificates.h"
#include "sdk/cpp/client/server_address.h"
#include "sdk/cpp/client/token_file.h"
#include "sdk/cpp/client/transport_errors.h"

namespace sheaf {
namespace {

using google::protobuf::Message;
using Stub = grpc::TemplatedGenericStub<Message, Message>;

int Milliseconds(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

gpr_timespec Deadline(absl::Duration from_now) {
  if (from_now > absl::Hours(24 * 365)) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_micros(absl::ToInt64Microseconds(from_now), GPR_TIMESPAN));
}

absl::Time Now() {
  const gpr_timespec now = gpr_now(GPR_CLOCK_REALTIME);
  return absl::FromUnixSeconds(now.tv_sec) + absl::Nanoseconds(now.tv_nsec);
}

std::shared_ptr<grpc::ChannelCredentials> Credentials(const ChannelSecurity& security,
                                                      const LoadedCertificates& loaded) {
  if (!security.uses_tls()) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  std::vector<grpc::experimental::IdentityKeyCertPair> pairs;
  if (!loaded.certificate.empty())
    pairs.push_back({.private_key = loaded.key, .certificate_chain = loaded.certificate});
  if (!loaded.authorities.empty() || !pairs.empty()) {
    options.set_certificate_provider(
        std::make_shared<grpc::experimental::StaticDataCertificateProvider>(loaded.authorities, pairs));
  }
  if (!loaded.authorities.empty()) options.watch_root_certs();
  if (!pairs.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

grpc::ChannelArguments ChannelArguments(std::string_view address, const ChannelOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout));
  // Idle connections are not pinged: nobody waits on them.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Milliseconds(options.connect_timeout));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Milliseconds(options.reconnect_backoff_max));
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.message_bytes_max));
  arguments.SetMaxSendMessageSize(static_cast<int>(options.message_bytes_max));
  if (options.own_connection) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (!options.via.empty()) {
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, std::string(address));
    if (options.security.uses_tls()) {
      arguments.SetSslTargetNameOverride(std::string(address.substr(0, address.rfind(':'))));
    }
  }
  // An HTTP proxy of the environment must not stand between two processes of one machine.
  if (IsLoopback(options.via.empty() ? address : options.via)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

absl::Status ToAbslStatus(const grpc::Status& status, std::string_view address) {
  if (status.ok()) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return Unreachable(address, status.error_message());
  }
  // gRPC's own refusal, on either side: it names the limit, but not what to do.
  if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
      status.error_message().find("message larger than max") != std::string::npos) {
    return TooMuch(status.error_message());
  }
  const absl::Status other(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  // ENHANCE_YOUR_CALM: a server whose memory for what is arriving is used up gives up calls so, without a word of ours.
  const bool is_calmed = status.error_message().find("RST_STREAM with error code 11") != std::string::npos;
  return is_calmed ? WithRetryAfter(other, absl::Seconds(1)) : other;
}

// The server's word on when to ask again.
absl::Status WithHint(absl::Status status, const grpc::ClientContext& context) {
  if (status.ok()) return status;
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(kRetryHeader);
  if (found == metadata.end()) return status;
  return WithRetryHeader(std::move(status), {found->second.data(), found->second.size()});
}

}  // namespace

// A channel shows what it was made with: renewed certificates are another one's.
struct GrpcTransport::Impl {
  struct Connection {
    Connection(const std::string& address, const ChannelOptions& options, const LoadedCertificates& loaded)
        : channel(grpc::CreateCustomChannel(options.via.empty() ? address : options.via,
                                            Credentials(options.security, loaded), ChannelArguments(address, options))),
          stub(channel) {}
    const std::shared_ptr<grpc::Channel> channel;
    Stub stub;
    // Calls that have not ended altogether.
    int64_t num_open = 0;
  };

  Impl(std::string target, const ChannelOptions& channel_options)
      : address(std::move(target)),
        options(channel_options),
        token(options.security.token_file),
        certificates(options.security, options.security.uses_tls()) {
    MutexLock lock(mutex);
    FindConnection().IgnoreError();
  }

  // The one for new calls. UNAVAILABLE, naming the file, if certificates cannot be read and never could.
  absl::StatusOr<std::shared_ptr<Connection>> FindConnection() REQUIRES(mutex) {
    const absl::StatusOr<ChannelCertificates::Current> current = certificates.Look(Now());
    if (!current.ok()) return Unreachable(address, std::string(current.status().message()));
    if (newest != nullptr && current->version == newest_version) return newest;
    newest_version = current->version;
    // Those without calls end here, where others are; in a thread of gRPC's it would wait for itself.
    std::erase_if(former, [](const auto& connection) { return connection->num_open == 0; });
    if (newest != nullptr) former.push_back(newest);
    newest = std::make_shared<Connection>(address, options, *current->loaded);
    return newest;
  }

  // Only then does this side cancel calls. A server that stops cancels what comes before its client has heard that no
  // more may come.
  bool IsClosing() {
    MutexLock lock(mutex);
    return is_closing;
  }

  const std::string address;
  const ChannelOptions options;
  TokenFile token;
  Mutex mutex;
  CondVar all_done;
  // Null as long as there are no certificates that could work.
  std::shared_ptr<Connection> newest GUARDED_BY(mutex);
  // Of the last renewals: their calls go on.
  std::vector<std::shared_ptr<Connection>> former GUARDED_BY(mutex);
  int64_t newest_version GUARDED_BY(mutex) = 0;
  ChannelCertificates certificates GUARDED_BY(mutex);
  // Those that can be cancelled, and how many have not ended altogether.
  std::set<grpc::ClientContext*> open GUARDED_BY(mutex);
  int64_t num_open GUARDED_BY(mutex) = 0;
  bool is_closing GUARDED_BY(mutex) = false;
};

GrpcTransport::GrpcTransport(std::string address, const ChannelOptions& options)
    : impl_(std::make_unique<Impl>(std::move(address), options)) {}

GrpcTransport::~GrpcTransport() {
  MutexLock lock(impl_->mutex);
  impl_->is_closing = true;
  for (grpc::ClientContext* context : impl_->open) context->TryCancel();
  while (impl_->num_open > 0) impl_->all_done.Wait(impl_->mutex);
}

void GrpcTransport::CallMethod(std::string_view method, const Message& request, Message* response,
                               const CallOptions& options, Done done) {
  auto context = std::make_shared<grpc::ClientContext>();
  context->set_deadline(Deadline(options.timeout));
  std::string shown = impl_->token.header();
  if (!shown.empty()) context->AddMetadata("authorization", shown);
  Impl::Connection* connection = nullptr;
  absl::Status unreachable;
  {
    MutexLock lock(impl_->mutex);
    const absl::StatusOr<std::shared_ptr<Impl::Connection>> found = impl_->FindConnection();
    unreachable = found.status();
    if (found.ok()) {
      connection = found->get();
      ++connection->num_open;
      impl_->open.insert(context.get());
      ++impl_->num_open;
    }
  }
  if (connection == nullptr) return done(std::move(unreachable));
  connection->stub.UnaryCall(context.get(), fmt::format("/{}", method), {}, &request, response,
                             [impl = impl_.get(), connection, context, shown = std::move(shown),
                              done = std::move(done)](const grpc::Status& status) mutable {
                               absl::Status result = WithHint(ToAbslStatus(status, impl->address), *context);
                               if (absl::IsCancelled(result) && !impl->IsClosing()) {
                                 result = Unreachable(impl->address, "it gave up the call, as one does that stops");
                               }
                               if (absl::IsUnauthenticated(result) && impl->token.Refused(shown)) {
                                 result = WorthANewToken(std::move(result));
                               }
                               done(std::move(result));
                               {
                                 MutexLock lock(impl->mutex);
                                 impl->open.erase(context.get());
                               }
                               // It shares the channel, which must not end here: this thread of gRPC's would wait for
                               // itself.
                               context.reset();
                               MutexLock lock(impl->mutex);
                               --connection->num_open;
                               if (--impl->num_open == 0) impl->all_done.NotifyAll();
                             });
}

const std::string& GrpcTransport::address() const { return impl_->address; }

int64_t GrpcTransport::token_version() { return impl_->token.version(); }

bool GrpcTransport::IsConnected() {
  MutexLock lock(impl_->mutex);
  const auto connection = impl_->FindConnection();
  return connection.ok() && (*connection)->channel->GetState(true) == GRPC_CHANNEL_READY;
}

void GrpcTimer::After(absl::Duration delay, std::function<void()> callback) {
  auto* alarm = new grpc::Alarm;
  // The alarm lives until it rang: it is its callback that deletes it.
  alarm->Set(Deadline(delay), [alarm, callback = std::move(callback)](bool) {
    callback();
    delete alarm;
  });
}

}  // namespace sheaf
