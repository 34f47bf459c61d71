// HttpTransport: the wire, by HTTP/1.1: unary calls of the Connect protocol, for whoever sits behind a proxy that
// passes nothing else. libcurl makes the connections.
//
//   ASSIGN_OR_RETURN(ServerAddress address, ParseServerAddress("https://sheaf.example.org:7434"));
//   HttpTransport transport(address, {.security = {.token_file = "edge.token"}});
//
// Each call has a connection to itself while it is under way; those that are idle are used again. Proxies are those of
// the environment (http_proxy.h). All I/O, and every `done`, is one thread's: the one that this object has. See
// ServerTransport.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "sdk/cpp/client/channel_options.h"
#include "sdk/cpp/client/server_address.h"
#include "sdk/cpp/client/server_transport.h"

namespace sheaf {

class HttpTransport final : public ServerTransport {
 public:
  // `address` is one of HTTP.
  HttpTransport(ServerAddress address, const ChannelOptions& options);
  ~HttpTransport() override;

  // The server's own status, else UNAVAILABLE naming its URL, DEADLINE_EXCEEDED, or what StatusOf (connect_answer.h)
  // makes of an answer that is not a server's. UNAUTHENTICATED has a retry hint (base/retry_hint.h) if the token file
  // holds another token by now.
  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override;

  const std::string& address() const override;
  int64_t token_version() override;
  // Asks for /readyz, once a second at most, as long as calls do not reach the server.
  bool IsConnected() override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sheaf
