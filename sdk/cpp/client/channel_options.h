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
  // trusts. Empty: no TLS for gRPC, and those that this machine trusts for https://.
  std::string tls_ca;
  // Our own certificate and its key, for a server that asks for them. Empty: none.
  std::string tls_cert;
  std::string tls_key;
  // File with the token that every call shows; read again when it changes, and when the server refuses a call. Empty:
  // none.
  std::string token_file;
  // Send the token even where others on the network can read it.
  bool is_insecure = false;

  // Of gRPC; with HTTP it is the scheme of the address that says so.
  bool uses_tls() const { return !tls_ca.empty(); }
};

struct ChannelOptions {
  ChannelSecurity security;
  // A connection with an open call and no traffic is pinged this often, over HTTP by TCP; NATs forget idle connections
  // after a minute or more.
  absl::Duration keepalive_time = absl::Seconds(30);
  // A ping unanswered for this long ends the connection, and its calls with UNAVAILABLE.
  absl::Duration keepalive_timeout = absl::Seconds(20);
  // How long one attempt to connect may take.
  absl::Duration connect_timeout = absl::Seconds(10);
  // Longest pause between attempts to connect.
  absl::Duration reconnect_backoff_max = absl::Seconds(1);
  // Larger requests and answers are refused with RESOURCE_EXHAUSTED; large content travels in chunks far below this.
  int64_t message_bytes_max = int64_t{64} << 20;
  // Of gRPC: a TCP connection of its own, not shared with other transports of this process to the same address. Over
  // HTTP nothing is shared.
  bool own_connection = false;
  // HOST:PORT that is connected to in place of the first on the way to the server (FirstHop, http_proxy.h): of
  // something that passes all bytes on to it, and that no certificate names. Empty: none.
  std::string via;
  // Of HTTP, where each call under way has a connection to itself: the most at a time. Further calls wait for one.
  int connections_max = 256;
};

// Whether what is sent to `address` is encrypted.
bool UsesTls(std::string_view address, const ChannelSecurity& security);

// Checks that `address` is one (server_address.h), that the files are there and valid, and that no token would be sent
// to it in the clear if it is another machine. The codes of ParseServerAddress and CheckCertificates; each message
// names what is wrong, or the remedy.
absl::Status CheckChannelSecurity(std::string_view address, const ChannelSecurity& security);

}  // namespace sheaf
