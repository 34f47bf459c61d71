// SimServers: the servers of a world behind one address, as a load balancer has them: one alone, or several on one
// database (sim_database.h), of which one owns it and the others forward calls to it.
//
//   SimServers servers(weather, parts, 3, 17);
//   servers.Call(kSync.name, authorization, request, std::make_unique<v1::SyncResponse>(), on_answer);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "tests/simulation/sim_database.h"
#include "tests/simulation/sim_server.h"
#include "tests/simulation/store_monitor.h"
#include "tests/simulation/weather.h"

namespace sheaf::simulation {

class SimServers {
 public:
  using Message = SimServer::Message;
  using OnAnswer = SimServer::OnAnswer;

  // What of it goes wrong, besides what does with one server. Drawn from the seed.
  struct Plan {
    absl::Duration takeover_after;
    // Per server and second.
    double pause = 0;
    double cut = 0;
    // Per commit.
    double answer_lost = 0;
    // Per forwarded call.
    double forward_lost = 0;
    double forward_repeated = 0;
  };
  // All outlive this. Nobody draws from `seed` but the servers and their database; 1 server has no database.
  SimServers(Weather& weather, const SimServer::Parts& parts, int num_servers, uint64_t seed);

  // Of any server.
  void Call(std::string_view method, const std::string& authorization, std::shared_ptr<const Message> request,
            std::unique_ptr<Message> response, OnAnswer on_answer);

  // Once a second: perhaps somebody stands still, or cannot reach the database.
  void Strike();
  // See SimServer; of all, or of one of them.
  void BecomeFaulty();
  void Mend();
  void RestartGracefully() { Any().RestartGracefully(); }
  void FillDisk(absl::Duration duration) { Any().FillDisk(duration); }
  void CheckService();
  bool is_up() const;
  absl::Time last_crash() const;
  TaskStore& tasks() { return storage_.tasks(); }
  const StoreMonitor& monitor() const { return monitor_; }
  StoreMonitor& monitor() { return monitor_; }
  int64_t num_passages() const;
  size_t num_open_calls() const;
  std::string Leaks();

 private:
  static Plan Draw(Random& chance);
  SimServer& Any() { return *servers_[servers_.size() == 1 ? 0 : chance_.Below(servers_.size())]; }
  const SimServer* Owner() const;
  // From a waiting server to the one that it takes for the owner.
  void Forward(int to, std::string_view method, const std::string& authorization,
               const std::shared_ptr<const Message>& request, std::unique_ptr<Message> response, OnAnswer on_answer);

  Weather& weather_;
  SimStorage& storage_;
  SeededRandom chance_;
  const Plan plan_;
  StoreMonitor monitor_;
  // Null with one server.
  std::unique_ptr<SimDatabase> database_;
  std::vector<std::unique_ptr<SimServer>> servers_;
};

}  // namespace sheaf::simulation
