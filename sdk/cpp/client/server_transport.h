// ServerTransport: the wire to a server, by whichever protocol; OpenTransport (open_transport.h) makes one.
//
//   const bool is_back = !was_connected && wire.IsConnected();
//
// Connects when first called, and again whenever the connection breaks. Files of TLS are looked at each second while
// there are calls: renewed ones that can work are used from the next call on, others are not
// (tls/certificate_renewal.h). Thread-safe. The destructor cancels the open calls and waits until each `done` has
// returned; do not run it from within a `done`. A `done` does not wait for another call.
#pragma once

#include <cstdint>
#include <string>

#include "sdk/cpp/client/transport.h"

namespace sheaf {

class ServerTransport : public Transport {
 public:
  virtual const std::string& address() const = 0;
  // Grows whenever the token file holds another token; looks at it.
  virtual int64_t token_version() = 0;
  // Whether the server was reached when it was last asked for; begins to try again if it was not.
  virtual bool IsConnected() = 0;
};

}  // namespace sheaf
