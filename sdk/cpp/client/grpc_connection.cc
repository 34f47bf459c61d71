#include "sdk/cpp/client/grpc_connection.h"

#include "sdk/cpp/client/grpc_transport.h"
#include "sdk/cpp/client/retrying_transport.h"

namespace sheaf {

struct GrpcConnection::Impl {
  Impl(const std::string& address, const ChannelSecurity& security) : wire(address, {.security = security}) {}

  SystemClock clock;
  SystemRandom random;
  // The transport's own.
  SystemRandom pauses;
  GrpcTimer timer;
  GrpcTransport wire;
  RetryingTransport transport{wire, timer, clock, pauses, {}};
};

GrpcConnection::GrpcConnection(const std::string& address, const ChannelSecurity& security)
    : impl_(std::make_unique<Impl>(address, security)) {}

GrpcConnection::~GrpcConnection() = default;

GrpcConnection::operator Connection() { return {impl_->transport, impl_->clock, impl_->random}; }

}  // namespace sheaf
