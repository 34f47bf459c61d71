// LocalFederation: a server and workers of our own, on this machine, for a demonstration.
//
//   ASSIGN_OR_RETURN(LocalFederation federation,
//                    LocalFederation::Start(host, guard, {.directory = dir, .num_workers = 8}));
//   GrpcTransport transport(federation.address(), {});
//
// Everything is in `directory`: the store, the logs, the port file. All processes end with this object. Not
// thread-safe.
#pragma once

#include <deque>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/host.h"
#include "cli/processes/child_process.h"
#include "cli/processes/interrupt.h"

namespace sheaf {

struct LocalFederationOptions {
  // Exists, and is writable.
  std::string directory;
  int num_workers = 8;
  // For every worker's --data: "name=path".
  std::string worker_data;
  // Tasks of announced rounds that each worker prepares beside those that it computes.
  int prepare_ahead = 0;
  // What tabs may run and fetch (sheafd --join); empty: the server does not speak HTTP.
  std::string join_directory;
};

class LocalFederation {
 public:
  // Returns when the server serves. NOT_FOUND if sheafd or sheaf-worker is not beside this program;
  // ABORTED, with the end of its log, if one of them ends at once; DEADLINE_EXCEEDED if the server does not serve
  // within 15 s.
  static absl::StatusOr<LocalFederation> Start(Host& host, InterruptGuard& guard,
                                               const LocalFederationOptions& options);

  LocalFederation(LocalFederation&&) = default;
  // Workers first, then the server.
  ~LocalFederation();

  // "127.0.0.1:PORT".
  const std::string& address() const { return address_; }
  // The same of HTTP; empty without a directory for tabs.
  const std::string& http_address() const { return http_address_; }
  // OK while the server and at least one worker run; else ABORTED, saying how it ended, with the end of its log.
  absl::Status Check();

 private:
  LocalFederation() = default;
  absl::Status StartServer(Host& host, InterruptGuard& guard, const LocalFederationOptions& options);
  absl::Status StartWorkers(Host& host, InterruptGuard& guard, const LocalFederationOptions& options);

  std::deque<ChildProcess> server_;
  std::deque<ChildProcess> workers_;
  std::string address_;
  std::string http_address_;
};

}  // namespace sheaf
