// FaultyNetwork: a TCP proxy in this process that does to connections what networks do: swallows, half-closes, resets,
// trickles and cuts them.
//
//   ASSIGN_OR_RETURN(auto network, FaultyNetwork::Start("sheaf.example.org:7433", clock, /*seed=*/7));
//   network->SetFaults({.calm_max = absl::Seconds(2), .outage_max = absl::Seconds(1)});
//   GrpcTransport transport(network->address(), {});
//   network->Calm();
//
// A connection lives in peace for a time that is drawn, then something that is drawn happens to it. It sees bytes only,
// so that TLS passes through it unharmed. One thread of its own serves all connections. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace sheaf {

enum class NetworkFault {
  // What either side sends vanishes, until the connection is reset.
  kBlackHole,
  // One side is gone; the other hears nothing of it, until it is reset.
  kHalfOpen,
  // A request goes through, and its answer is lost with the connection.
  kResetAfterRequest,
  // A few bytes at a time.
  kTrickle,
  // Closed once nothing passes for a moment, as middleboxes do.
  kCutIdle,
};
inline constexpr int kNumNetworkFaults = 5;
std::string_view NetworkFaultName(NetworkFault fault);

struct NetworkFaults {
  // A connection has peace for a time drawn below this. Infinite: for ever.
  absl::Duration calm_max = absl::InfiniteDuration();
  // A fault that lasts does so for a time drawn below this.
  absl::Duration outage_max = absl::Seconds(1);
  // What may happen; one of them does. Not empty.
  std::vector<NetworkFault> kinds = {NetworkFault::kBlackHole, NetworkFault::kHalfOpen,
                                     NetworkFault::kResetAfterRequest, NetworkFault::kTrickle, NetworkFault::kCutIdle};
};

class FaultyNetwork {
 public:
  // `target` is HOST:PORT. INVALID_ARGUMENT if it is not; UNAVAILABLE if it cannot be reached, or no port is to be had.
  // `clock` must outlive the network.
  static absl::StatusOr<std::unique_ptr<FaultyNetwork>> Start(const std::string& target, const Clock& clock,
                                                              uint64_t seed);
  // Closes every connection.
  ~FaultyNetwork();
  FaultyNetwork(const FaultyNetwork&) = delete;
  FaultyNetwork& operator=(const FaultyNetwork&) = delete;

  // "127.0.0.1:PORT".
  const std::string& address() const { return address_; }

  // Also for the connections that are there.
  void SetFaults(const NetworkFaults& faults) EXCLUDES(mutex_);
  // Nothing new happens; what lasts comes to its end.
  void Calm() { SetFaults({}); }
  // How often each happened, in the order of NetworkFault.
  std::array<int64_t, kNumNetworkFaults> counts() const EXCLUDES(mutex_);

 private:
  class Proxy;
  FaultyNetwork() = default;

  std::string address_;
  // Becomes readable when the thread shall look at what follows.
  int wake_fd_ = -1;
  mutable Mutex mutex_;
  NetworkFaults faults_ GUARDED_BY(mutex_);
  // Grows with every SetFaults.
  int64_t faults_version_ GUARDED_BY(mutex_) = 0;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  std::array<int64_t, kNumNetworkFaults> counts_ GUARDED_BY(mutex_) = {};
  std::unique_ptr<Proxy> proxy_;
  std::thread thread_;
};

}  // namespace sheaf
