// ChannelOptions: how a client reaches a server.
//
//   GrpcTransport transport("sheaf.example.org:7433", {});
//
// The defaults suit a worker behind a NAT: a parked call is pinged often enough that a middlebox does not forget it,
// and a server that comes back is found within a second.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sheaf {

// The certificates and the token of a client. Files are PEM and are read again when they change, if the new ones work.
struct ChannelSecurity {
  // The authorities that may have signed the server's certificate: a file, or "system" for those that this machine
  // trusts. Empty: no TLS.
  std::string tls_ca;
  // Our own certificate and its key, for a server that asks for them. Empty: none.
  std::string tls_cert;
  std::string tls_key;
  // File with the token that every call shows; read again when it changes, and when the server refuses a call. Empty:
  // none.
  std::string token_file;
  // Send the token even where others on the network can read it.
  bool is_insecure = false;

  bool uses_tls() const { return !tls_ca.empty(); }
};

struct ChannelOptions {
  ChannelSecurity security;
  // A connection with an open call and no traffic is pinged this often; NATs forget idle connections after a minute or
  // more.
  absl::Duration keepalive_time = absl::Seconds(30);
  // A ping unanswered for this long ends the connection, and its calls with UNAVAILABLE.
  absl::Duration keepalive_timeout = absl::Seconds(20);
  // How long one attempt to connect may take.
  absl::Duration connect_timeout = absl::Seconds(10);
  // Longest pause between attempts to connect.
  absl::Duration reconnect_backoff_max = absl::Seconds(1);
  // Larger requests and answers are refused with RESOURCE_EXHAUSTED; large content travels in chunks far below this.
  int64_t message_bytes_max = int64_t{64} << 20;
  // A TCP connection of its own, not shared with other transports of this process to the same address.
  bool own_connection = false;
  // The HOST:PORT that the server's certificate must be for, if the address is not the server's own but, for example, a
  // proxy's. Empty: the address.
  std::string server_name;
};

// Checks that the files are there and valid, and that no token would be sent to `address` in the clear if that is
// another machine. The codes of CheckCertificates; each message names the file, or the remedy.
absl::Status CheckChannelSecurity(std::string_view address, const ChannelSecurity& security);

// An address of this machine that no other can reach: "127.0.0.1:7433", "localhost:1", "[::1]:2", "unix:/run/s".
bool IsLoopback(std::string_view address);

}  // namespace sheaf
