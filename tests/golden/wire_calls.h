// WireCalls: calls over a real connection, with bytes and metadata as they travel.
//
//   WireCalls calls("127.0.0.1:7433");
//   WireAnswer answer = calls.Call("sheaf.v1.WorkService/Sync", bytes, "Bearer s-...");
//
// Waits for each answer. Not thread-safe.
#pragma once

#include <grpcpp/generic/generic_stub.h>

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace sheaf::golden {

struct WireAnswer {
  absl::Status status;
  std::string response_bytes;
  // Trailing metadata of ours: names that begin with "grpc-retry" or "sheaf".
  std::map<std::string, std::string> trailing;
};

class WireCalls {
 public:
  explicit WireCalls(const std::string& address);

  // `authorization` is the metadata of that name; empty for none.
  WireAnswer Call(const std::string& method, const std::string& request_bytes, const std::string& authorization);

 private:
  grpc::GenericStub stub_;
};

}  // namespace sheaf::golden
