// Selftest: tries a deployment. Rounds of one-hot contributions, workers in this process, between them and the server a
// network that fails; what each round releases is held to what was handed in and what was promised (probe/history.h).
//
//   ASSIGN_OR_RETURN(auto selftest, Selftest::Start(session, {.num_workers = 16, .seed = 7}));
//   ASSIGN_OR_RETURN(RoundTrial trial, selftest->RunRound());
//   const SelftestReport& report = selftest->report();
//
// It touches nothing but its own rounds: their computation is one that no worker of the deployment offers, and its
// workers offer no other. A round that does not end in time is cancelled; so is one that an error leaves behind.
// Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/random.h"
#include "cli/session.h"
#include "probe/event_queue.h"
#include "probe/faulty_calls.h"
#include "probe/faulty_network.h"
#include "probe/history.h"
#include "probe/protocol_worker.h"
#include "probe/recording_transport.h"

namespace sheaf {

struct SelftestOptions {
  int num_workers = 16;
  int num_tasks = 64;
  absl::Duration lease = absl::Seconds(1);
  bool has_faults = true;
  uint64_t seed = 1;
  // Ends the round under way, which is then cancelled.
  std::function<bool()> is_interrupted = [] { return false; };
};

struct SelftestReport {
  HistoryReport history;
  int64_t num_released = 0;
  // Rounds that did not end once the faults had ended.
  std::vector<std::string> stuck_rounds;
  // Until a worker that had got no answer got one.
  std::vector<absl::Duration> recoveries;
  // Until the task of a worker that had vanished was another's.
  std::vector<absl::Duration> reruns;
  int64_t num_vanished = 0;
  std::array<int64_t, kNumNetworkFaults> network_faults = {};
  int64_t call_faults = 0;

  bool ok() const { return history.ok() && stuck_rounds.empty(); }
};

// One round.
struct RoundTrial {
  std::string round;
  HistoryReport history;
  absl::Duration took;
  bool is_released = false;
};

class Selftest final : public ProtocolWorker::Observer {
 public:
  // The session's server and population; it must outlive the selftest. The codes of FaultyNetwork::Start and of
  // Session::transport.
  static absl::StatusOr<std::unique_ptr<Selftest>> Start(Session& session, const SelftestOptions& options);
  ~Selftest() override;

  // The codes of RoundService.CreateRound and WorkService.Sync; CANCELLED after an interrupt.
  absl::StatusOr<RoundTrial> RunRound();
  const SelftestReport& report();

 private:
  // What stands between one worker and the server, from below.
  struct Seat {
    std::unique_ptr<Transport> wire;
    std::unique_ptr<RecordingTransport> recording;
    std::unique_ptr<FaultyCalls> calls;
    std::unique_ptr<ProtocolWorker> worker;
  };
  // Of a task whose worker vanished.
  struct Abandoned {
    std::string lease_token;
    absl::Time time;
  };

  Selftest(Session& session, const SelftestOptions& options)
      : session_(session), options_(options), random_(options.seed), name_(session.host().random.Token(6)) {}

  v1::RoundSpec Spec();
  // The same request twice: it must be one round.
  absl::StatusOr<v1::Round> CreateTwice(const v1::RoundSpec& spec);
  void SetFaults(bool are_on);
  // Until the round has ended, or `until`.
  absl::Status Drive(const std::string& round, absl::Time faults_end, absl::Time until);
  void Cancel(const std::string& round);
  std::string NewName();

  void OnLease(const v1::Lease& lease, absl::Time now) override;
  void OnRecovered(absl::Duration after) override;
  void OnRefused(const absl::Status& status) override;
  void OnAbandoned(const std::string& task, const std::string& lease_token, absl::Time now) override;

  Session& session_;
  const SelftestOptions options_;
  SeededRandom random_;
  // Tells this run's workers from those of another.
  std::string name_;
  int64_t num_names_ = 0;
  History history_;
  SelftestReport report_;
  std::map<std::string, Abandoned> abandoned_;
  absl::Status refusal_;

  // Destroyed in this order, last first: workers, then their ways to the server, then the network, then the events.
  EventQueue queue_;
  std::unique_ptr<FaultyNetwork> network_;
  std::vector<Seat> seats_;
};

}  // namespace sheaf
