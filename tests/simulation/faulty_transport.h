// FaultyTransport: the network between one process and the server. It loses requests and answers, resets connections,
// delivers twice, delays beyond what comes later, and is cut for a while.
#pragma once

#include <memory>

#include "sdk/cpp/transport.h"
#include "tests/simulation/sim_server.h"
#include "tests/simulation/weather.h"

namespace sheaf::simulation {

class FaultyTransport final : public Transport {
 public:
  // Both outlive the transport.
  FaultyTransport(Weather& weather, SimServer& server) : weather_(weather), server_(server) {}

  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override;
  // Nothing passes until then, in either direction.
  void Cut(absl::Duration duration) { cut_until_ = weather_.agenda.now() + duration; }
  void Mend() { cut_until_ = absl::InfinitePast(); }

 private:
  // One copy of a request on its way; the first answer to come back ends the call.
  struct Exchange;
  void Deliver(const std::shared_ptr<Exchange>& exchange);
  absl::Duration Delay();
  bool IsCut() const { return weather_.agenda.now() < cut_until_; }

  Weather& weather_;
  SimServer& server_;
  absl::Time cut_until_ = absl::InfinitePast();
};

}  // namespace sheaf::simulation
