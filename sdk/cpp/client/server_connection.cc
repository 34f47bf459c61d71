#include "sdk/cpp/client/server_connection.h"

#include "sdk/cpp/client/grpc_transport.h"
#include "sdk/cpp/client/open_transport.h"
#include "sdk/cpp/client/retrying_transport.h"

namespace sheaf {

struct ServerConnection::Impl {
  Impl(const std::string& address, const ChannelSecurity& security)
      : wire(OpenTransport(address, {.security = security})) {}

  SystemClock clock;
  SystemRandom random;
  // The transport's own.
  SystemRandom pauses;
  GrpcTimer timer;
  const std::unique_ptr<ServerTransport> wire;
  RetryingTransport transport{*wire, timer, clock, pauses, {}};
};

ServerConnection::ServerConnection(const std::string& address, const ChannelSecurity& security)
    : impl_(std::make_unique<Impl>(address, security)) {}

ServerConnection::~ServerConnection() = default;

ServerConnection::operator Connection() { return {impl_->transport, impl_->clock, impl_->random}; }

}  // namespace sheaf
