// HistoryStorm: a server and workers as processes, and everything that can go wrong with them and between them, drawn
// from a seed.
//
//   worker processes --TCP--> FaultyNetwork --TCP--> RpcRelay --> FaultyCalls --> RecordingTransport --> sheafd
//
//   HistoryStorm storm({.num_workers = 8, .lease = absl::Seconds(1), .seed = 7});
//   storm.Rage(round, absl::Seconds(5));   // Until the round has ended, or so long. Then everything is well again.
//   CHECK(storm.history().Check(round, counts).ok());
//
// Connections are swallowed, half-closed, reset, trickled and cut; calls sent twice, late by three leases, and their
// answers lost; the server killed and restarted, also under a clock that was set forward or back by an hour; workers
// killed; all of them stopped (SIGSTOP) for two leases. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/random.h"
#include "probe/faulty_calls.h"
#include "probe/faulty_network.h"
#include "probe/history.h"
#include "probe/recording_transport.h"
#include "sheaf/v1/round.pb.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/rpc_relay.h"

namespace sheaf {

// Notes how long the tasks of workers that were killed wait for the next. Thread-safe.
class TakeoverTransport final : public Transport {
 public:
  TakeoverTransport(Transport& inner, const Clock& clock) : inner_(inner), clock_(clock) {}

  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override;

  // What it held is abandoned.
  void OnKilled(const std::string& worker) EXCLUDES(mutex_);
  // From the kill to the next lease, of every task that was taken over.
  std::vector<absl::Duration> takeovers() const EXCLUDES(mutex_);

 private:
  struct Holder {
    std::string worker;
    std::string lease_token;
    // Infinite future while the worker lives.
    absl::Time abandoned = absl::InfiniteFuture();
  };
  void OnAnswer(const std::string& worker, const v1::SyncResponse& response) EXCLUDES(mutex_);

  Transport& inner_;
  const Clock& clock_;
  mutable Mutex mutex_;
  // By task.
  std::map<std::string, Holder> holders_ GUARDED_BY(mutex_);
  std::vector<absl::Duration> takeovers_ GUARDED_BY(mutex_);
};

// The file that steps the wall clock of a program (stepped_clock.cc).
class SteppedClock {
 public:
  explicit SteppedClock(std::string path);
  // Words before a program's own. None where the clock cannot be stepped.
  std::vector<std::string> Wrapper() const;
  void Set(absl::Duration offset);
  // The machine sleeps for so long.
  void Suspend(absl::Duration duration);

 private:
  void Write(int place, absl::Duration duration);

  std::string path_;
  absl::Duration slept_;
};

// So many tasks of up to `work`; of every other round three quarters are enough.
v1::RoundSpec StormRound(Random& random, absl::Duration lease, int num_tasks = 60,
                         absl::Duration work = absl::Milliseconds(300));

struct StormOptions {
  int num_workers = 8;
  // Of each, besides those that it needs.
  std::vector<std::string> worker_arguments;
  absl::Duration lease = absl::Seconds(1);
  uint64_t seed = 1;
  // How the workers reach the relay, and the relay the server; with kHttps the former are without TLS.
  ServerAddress::Protocol protocol = ServerAddress::Protocol::kGrpc;
  Programs programs;
  // Paths; the workers' seats take turns at them. Empty: that of `programs`.
  std::vector<std::string> worker_programs;
};

class HistoryStorm {
 public:
  explicit HistoryStorm(const StormOptions& options);
  ~HistoryStorm();

  Federation& federation() { return federation_; }
  const History& history() const { return history_; }
  std::vector<absl::Duration> takeovers() const { return takeover_.takeovers(); }

  // Returns when the round has ended, or after `longest`; all faults have ended then.
  void Rage(const std::string& round, absl::Duration longest);
  // One worker of them, drawn; another takes its seat.
  void KillWorker();
  // Kills the server; from now on it is this program.
  void ReplaceServer(const std::string& sheafd);

  struct Counts {
    int server_kills = 0;
    int worker_kills = 0;
    int stops = 0;
    int clock_steps = 0;
  };
  const Counts& counts() const { return counts_; }
  // From the start of each new server to its first answer.
  const std::vector<absl::Duration>& recoveries() const { return recoveries_; }
  // Of connections and of calls.
  int64_t num_network_faults() const;
  int64_t num_call_faults() const { return calls_.num_faults(); }

 private:
  struct Seat {
    std::string worker;
    pid_t pid = 0;
    std::string program;
    SteppedClock clock;
  };

  bool uses_http() const { return options_.protocol != ServerAddress::Protocol::kGrpc; }
  FederationOptions ServerOptions();
  void StartWorker(Seat& seat);
  void Disturb(absl::Time now);
  void RestartServer();
  void Stop(pid_t pid, absl::Time now);
  // Lets those go on whose time has come.
  void Continue(absl::Time now);
  absl::Duration DrawOffset();
  void SetFaults(bool are_on);

  const StormOptions options_;
  SeededRandom random_;
  const TemporaryDirectory directory_ = ScratchDirectory();
  SteppedClock server_clock_{directory_.path() + "/server-clock"};
  // Null without TLS.
  std::unique_ptr<Certificates> certificates_;
  Federation federation_;
  History history_;
  GrpcTimer timer_;
  const std::unique_ptr<ServerTransport> wire_;
  RecordingTransport recording_{*wire_, history_};
  TakeoverTransport takeover_{recording_, federation_.clock()};
  FaultyCalls calls_;
  RpcRelay relay_;
  std::unique_ptr<FaultyNetwork> network_;
  std::vector<Seat> seats_;
  int num_workers_ = 0;
  // Stopped processes, and until when.
  std::map<pid_t, absl::Time> stopped_;
  Counts counts_;
  std::vector<absl::Duration> recoveries_;
};

}  // namespace sheaf
