// FaultyTransport: the network between one process and the server. It loses requests and answers, resets connections,
// delivers twice, delays beyond what comes later, is cut for a while, and is clogged: what it carries then arrives, all
// at once and in any order, when it is free again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sdk/cpp/client/transport.h"
#include "tests/simulation/sim_servers.h"
#include "tests/simulation/weather.h"

namespace sheaf::simulation {

class FaultyTransport final : public Transport {
 public:
  // All outlive the transport. `authorization` comes with every call; empty: none.
  FaultyTransport(Weather& weather, SimServers& server, std::string authorization)
      : weather_(weather), server_(server), authorization_(std::move(authorization)) {}

  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override;
  // Nothing passes until then, in either direction.
  void Cut(absl::Duration duration) { cut_until_ = weather_.agenda.now() + duration; }
  // Nothing passes until Unclog.
  void Clog() { is_clogged_ = true; }
  void Unclog();
  // Whole again. The connection was reset: what was under way arrives no more, and its callers are told.
  void Mend();

 private:
  // One copy of a request on its way; the first answer to come back ends the call.
  struct Exchange;
  void Deliver(const std::shared_ptr<Exchange>& exchange, std::shared_ptr<const google::protobuf::Message> request);
  // Runs `arrive` when the message that was sent now gets through, if it does.
  void Send(const std::shared_ptr<Exchange>& exchange, std::function<void()> arrive);
  absl::Duration Delay();
  bool IsCut() const { return weather_.agenda.now() < cut_until_; }

  Weather& weather_;
  SimServers& server_;
  const std::string authorization_;
  absl::Time cut_until_ = absl::InfinitePast();
  bool is_clogged_ = false;
  std::vector<std::function<void()>> held_;
  std::vector<std::weak_ptr<Exchange>> exchanges_;
  // Messages are numbered as they are sent.
  int64_t newest_sent_ = 0;
  int64_t newest_arrived_ = 0;
};

}  // namespace sheaf::simulation
