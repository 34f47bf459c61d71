// ServerAddress: where a server is, as people write it: HOST:PORT for gRPC, or the URL of its HTTP/1.1.
//
//   ASSIGN_OR_RETURN(const ServerAddress address, ParseServerAddress("https://sheaf.example.org:7434"));
//   address.is_http();                              // True.
//   address.url() + "/sheaf.v1.WorkService/Sync";   // What is asked for.
//
// A value. Whatever else gRPC takes as a target ("unix:/run/sheafd.sock", "dns:///sheaf:7433") is gRPC's.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sheaf {

struct ServerAddress {
  enum class Protocol { kGrpc, kHttp, kHttps };

  bool is_http() const { return protocol != Protocol::kGrpc; }
  // HOST:PORT; of gRPC, what was written.
  std::string target() const;
  // "https://HOST:PORT/PATH", without a slash at its end. Of HTTP only.
  std::string url() const;
  // Of this machine: nobody else can be reached by it, or listen on the way.
  bool is_loopback() const;

  Protocol protocol = Protocol::kGrpc;
  // Without the brackets of IPv6. Of gRPC's other targets all that was written, and no port.
  std::string host;
  std::string port;
  // Of HTTP: what stands before the names of methods, "" or "/PATH".
  std::string path;
};

// INVALID_ARGUMENT, naming what is wrong with it.
absl::StatusOr<ServerAddress> ParseServerAddress(std::string_view text);

// An address of this machine that no other can reach: "127.0.0.1:7433", "http://localhost:1", "[::1]:2", "unix:/run/s".
bool IsLoopback(std::string_view address);

}  // namespace sheaf
