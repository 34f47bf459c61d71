// ServerConnection: a Connection that outlives restarts of the server, in one line. For the mains of programs.
//
//   ServerConnection server("127.0.0.1:7433");                                                    // gRPC.
//   ServerConnection far_server("sheaf.example.org:7433", {.tls_ca = "system", .token_file = "program.token"});
//   ServerConnection by_http("https://sheaf.example.org:7434", {.token_file = "program.token"});
//
// Connects when first called. Belongs to one thread. The destructor waits for open calls.
#pragma once

#include <memory>
#include <string>

#include "sdk/cpp/client/channel_options.h"
#include "sdk/cpp/client/connection.h"

namespace sheaf {

class ServerConnection {
 public:
  // What is wrong with the address, or with files that `security` names shows when a call fails; CheckChannelSecurity
  // says it before, and better.
  explicit ServerConnection(const std::string& address, const ChannelSecurity& security = {});
  ~ServerConnection();

  operator Connection();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sheaf
