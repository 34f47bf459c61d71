// StagedServer: the real handlers and core under virtual time, called by method and bytes.
//
//   StagedServer server(agenda, limits);
//   server.Call(7, "sheaf.v1.WorkService/Sync", bytes, on_answer);   // With its status, and its bytes.
//   server.Break(7);                                                 // Its connection is gone.
//   server.KillAndRestart();                                         // Calls that are open are never answered.
//
// Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tests/server/core_federation.h"
#include "tests/simulation/agenda.h"

namespace sheaf::golden {

class StagedServer {
 public:
  using Answer = std::function<void(const absl::Status& status, const std::string& response_bytes)>;

  // The agenda must outlive the server, and its events the server's last.
  StagedServer(simulation::Agenda& agenda, const Limits& limits);

  // Arrives now. `answer` is called once, unless the server is killed first.
  void Call(int64_t id, std::string_view method, const std::string& request_bytes, Answer answer);
  void Break(int64_t id);
  void KillAndRestart();

 private:
  // Time passes for a server that nobody calls, too.
  void Beat();
  void CatchUp();

  simulation::Agenda& agenda_;
  CoreFederation federation_;
  std::map<int64_t, std::function<void()>> open_;
  int lives_ = 0;
};

// The server's limits with those of a transcript set; CHECKs that it knows them.
Limits LimitsOf(const std::map<std::string, int64_t>& by_name);

}  // namespace sheaf::golden
