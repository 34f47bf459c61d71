// RpcRelay: a server, of gRPC or of HTTP/1.1, that passes every call on through a Transport, so that decorators made
// for clients stand between real processes.
//
//   RpcRelay relay(faulty_calls);
//   federation.StartWorker("w1", {}, relay.target());
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
  enum class Protocol { kGrpc, kHttp };
  explicit RpcRelay(Transport& to, Protocol protocol = Protocol::kGrpc);
  // Waits for the calls that are open.
  ~RpcRelay();
  RpcRelay(const RpcRelay&) = delete;
  RpcRelay& operator=(const RpcRelay&) = delete;

  // "127.0.0.1:PORT", as gRPC's clients take it; those of HTTP put http:// before it.
  const std::string& target() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sheaf
