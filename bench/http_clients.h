// HttpClients: connections to an HTTP port, each with one call of the Connect protocol open at a time. One thread
// serves them all.
//
//   HttpClients clients("127.0.0.1:7434", {.authority = "ca.pem"});
//   RETURN_IF_ERROR(clients.Open(64));
//   clients.Post(0, kSync.name, request.SerializeAsString(), on_answer);
//
// Callbacks run in that thread and may post again. Thread-safe. Calls that are open when the object goes are never
// answered.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sheaf::bench {

class HttpClients {
 public:
  using OnAnswer = std::function<void(absl::StatusOr<std::string> body)>;

  struct Options {
    // Certificates, a file: it speaks TLS. Empty: in the clear.
    std::string authority;
    // The token that calls show; empty: none.
    std::string token;
  };
  // HOST:PORT, of an IPv4 address.
  HttpClients(const std::string& address, const Options& options);
  ~HttpClients();

  // So many more. UNAVAILABLE if one of them cannot connect.
  absl::Status Open(int count);
  // Any status but 200 is the error that the server said.
  void Post(int connection, std::string_view method, std::string body, OnAnswer on_answer);
  void Get(int connection, std::string_view path, OnAnswer on_answer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sheaf::bench
