// NoopWorkers: workers that compute nothing: each parks a call and answers a lease at once.
//
//   NoopWorkers workers(server->address(), 50, [&] { ++num_leases; });   // Told whenever one of them is given a task.
//
// Each has a connection of its own. With `prepares` each also holds one task of an announced round, and answers when it
// hears that the round has opened. They stop when the object goes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {

class NoopWorkers {
 public:
  NoopWorkers(const std::string& address, int count, std::function<void()> on_lease, bool prepares = false);

 private:
  struct Worker {
    std::string name;
    int64_t num_polls = 0;
    int num_retries = 0;
    v1::SyncRequest request;
    v1::SyncResponse response;
    // Of the announced round whose task it has.
    std::optional<v1::HeldLease> held;
    std::unique_ptr<GrpcTransport> transport;
  };
  void Poll(Worker& worker);
  void Send(Worker& worker);

  // What the answer brought, into the next request.
  void TakeAnswer(Worker& worker);

  const std::function<void()> on_lease_;
  const bool prepares_;
  const std::string contribution_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

// Waits until the server says that so many calls are parked.
absl::Status WaitForParkedPolls(Transport& transport, int64_t count);

}  // namespace sheaf::bench
