// Connection: the way to a server, with the time and the chance of whoever goes it.
//
//   GrpcConnection server("127.0.0.1:7433");                           // For real: grpc_connection.h.
//   RunProgram(server, program, {.rounds = 20});
//
//   RunProgram({transport, clock, random}, program, {.rounds = 20});   // With parts of one's own, as in a test.
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
