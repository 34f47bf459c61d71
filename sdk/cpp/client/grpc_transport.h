// GrpcTransport: the wire, by gRPC. Every method goes through one generic stub, so that a new RPC costs nothing here.
//
//   GrpcTransport transport("127.0.0.1:7433", {});
//   ASSIGN_OR_RETURN(v1::GetServerInfoResponse info, BlockingCall(transport, kGetServerInfo, {}));
//
// See ServerTransport.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "sdk/cpp/client/channel_options.h"
#include "sdk/cpp/client/retrying_transport.h"
#include "sdk/cpp/client/server_transport.h"

namespace sheaf {

class GrpcTransport final : public ServerTransport {
 public:
  // `address` is "host:port", or any other target gRPC understands ("unix:/run/sheafd.sock", "dns:///..."). What is
  // wrong with files that the options name shows when a call fails; CheckChannelSecurity says it before, and better.
  GrpcTransport(std::string address, const ChannelOptions& options);
  ~GrpcTransport() override;

  // The server's own status, else UNAVAILABLE naming the address, or DEADLINE_EXCEEDED. UNAUTHENTICATED has a retry
  // hint (base/retry_hint.h) if the token file holds another token by now.
  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override;

  const std::string& address() const override;
  int64_t token_version() override;
  // Whether there is a connection now; begins to connect if there is none.
  bool IsConnected() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Waits on gRPC's own timer thread. Thread-safe; holds nothing.
class GrpcTimer final : public Timer {
 public:
  void After(absl::Duration delay, std::function<void()> callback) override;
};

}  // namespace sheaf
