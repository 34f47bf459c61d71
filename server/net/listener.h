// Listener: takes connections, and hands them to a transport. gRPC can take them itself, but the first time that the
// process has no file left for a connection it stops listening, for good; and it has no limit on connections. This one
// closes a new connection at once when there are few files left, so that those there are go on, and so do the stores.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, Listener::Open("127.0.0.1:0"));
//   listener->Start([&](int fd) { Serve(fd); });       // In a thread of its own.
//   LogInfo("listening on {}", listener->address());        // "127.0.0.1:41234"
//   listener->Stop();
//
// Not thread-safe, but `take` is called in the listener's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf {

class Listener {
 public:
  // Binds every address that HOST of "HOST:PORT" stands for, and listens: the kernel keeps who comes before Start.
  // UNAVAILABLE, with the remedy, if the port is in use; INVALID_ARGUMENT if this machine has no such address.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const std::string& listen);
  // Stops.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // HOST:PORT, with the port that was chosen.
  const std::string& address() const { return address_; }

  // `take` owns each connection from then on.
  void Start(std::function<void(int fd)> take);
  // Takes no more, and closes the port. Stopping twice is fine.
  void Stop();

 private:
  Listener(std::vector<int> sockets, int stop_event, std::string address)
      : sockets_(std::move(sockets)), stop_event_(stop_event), address_(std::move(address)) {}
  void Run(const std::function<void(int fd)>& take);
  // False if there is no file for a connection right now.
  bool Accept(int socket, const std::function<void(int fd)>& take);

  std::vector<int> sockets_;
  int stop_event_;
  const std::string address_;
  bool is_full_ = false;
  std::thread thread_;
};

}  // namespace sheaf
