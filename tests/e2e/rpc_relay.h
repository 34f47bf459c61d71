// RpcRelay: a gRPC server that passes every call on through a Transport, so that decorators made for clients stand
// between real processes.
//
//   RpcRelay relay(faulty_calls);
//   federation.StartWorker("w1", {}, relay.address());
//
// Knows every method of our services; a caller that goes away does not end the call it made, as with many a proxy.
// Thread-safe. What it is given must outlive it.
#pragma once

#include <memory>
#include <string>

#include "sdk/cpp/client/transport.h"

namespace sheaf {

class RpcRelay {
 public:
  explicit RpcRelay(Transport& to);
  // Waits for the calls that are open.
  ~RpcRelay();
  RpcRelay(const RpcRelay&) = delete;
  RpcRelay& operator=(const RpcRelay&) = delete;

  // "127.0.0.1:PORT".
  const std::string& address() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sheaf
