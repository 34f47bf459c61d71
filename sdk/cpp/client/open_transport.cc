#include "sdk/cpp/client/open_transport.h"

#include <utility>

#include "sdk/cpp/client/grpc_transport.h"
#include "sdk/cpp/client/http_transport.h"
#include "sdk/cpp/client/server_address.h"

namespace sheaf {
namespace {

// To no address at all.
class NoTransport final : public ServerTransport {
 public:
  NoTransport(std::string address, absl::Status status) : address_(std::move(address)), status_(std::move(status)) {}

  void CallMethod(std::string_view, const google::protobuf::Message&, google::protobuf::Message*, const CallOptions&,
                  Done done) override {
    done(status_);
  }
  const std::string& address() const override { return address_; }
  int64_t token_version() override { return 0; }
  bool IsConnected() override { return false; }

 private:
  const std::string address_;
  const absl::Status status_;
};

}  // namespace

std::unique_ptr<ServerTransport> OpenTransport(const std::string& address, const ChannelOptions& options) {
  absl::StatusOr<ServerAddress> parsed = ParseServerAddress(address);
  if (!parsed.ok()) return std::make_unique<NoTransport>(address, parsed.status());
  if (parsed->is_http()) return std::make_unique<HttpTransport>(*std::move(parsed), options);
  return std::make_unique<GrpcTransport>(address, options);
}

}  // namespace sheaf
