// ChannelOptions: how a client reaches a server.
//
//   GrpcTransport transport("sheaf.example.org:7433", {});
//
// The defaults suit a worker behind a NAT: a parked call is pinged often enough that a middlebox does not forget it,
// and a server that comes back is found within a second.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace sheaf {

struct ChannelOptions {
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
};

}  // namespace sheaf
