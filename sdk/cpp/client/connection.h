// Connection: the way to a server, with the time and the chance of whoever goes it.
//
//   ServerConnection server("127.0.0.1:7433");                   // For real: server_connection.h.
//   const Connection connection{transport, clock, random};     // Of parts of one's own, as in a test.
//
//   ASSIGN_OR_RETURN(std::vector<RoundOutcome> outcomes, RunProgram(server, program, {.rounds = 20}));
#pragma once

#include "base/clock.h"
#include "base/random.h"
#include "sdk/cpp/client/transport.h"

namespace sheaf {

// All outlive it.
struct Connection {
  Transport& transport;
  const Clock& clock;
  Random& random;
};

}  // namespace sheaf
