// Observer: an operator who looks at everything, requeues what is buried, takes tasks away, and drains workers.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/faulty_transport.h"
#include "tests/simulation/seats.h"
#include "tests/simulation/weather.h"

namespace sheaf::simulation {

class Observer {
 public:
  // All outlive the observer.
  Observer(Weather& weather, SimServers& server, const std::string& authorization, Seats& seats);

  // Once a second: perhaps looks, perhaps acts, on one of these rounds.
  void Act(const std::vector<std::string>& rounds);
  FaultyTransport& link() { return transport_; }

 private:
  void Look(const std::string& round);
  void Requeue(const std::string& round);
  void Drain();
  // All that it drained.
  void TakeBack();
  // Makes a token that nobody uses, or revokes it.
  void MakeToken();
  template <typename M>
  void Ask(const M& method, const typename M::Request& request);

  Weather& weather_;
  Seats& seats_;
  FaultyTransport transport_;
  // How often it requeues, per second.
  double requeues_;
  int num_requests_ = 0;
  std::string token_;
  // By population and name: how often they were taken back in calm.
  std::map<std::pair<std::string, std::string>, int> drained_;
};

}  // namespace sheaf::simulation
