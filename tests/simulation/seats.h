// Seats: the workers. Each seat has a network of its own and a real WorkerLoop, which crashes, is told to stop, and
// comes back under a new name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sdk/cpp/computation/data_source.h"
#include "tests/no_waiter.h"
#include "tests/simulation/credentials.h"
#include "tests/simulation/faulty_runner.h"
#include "tests/simulation/faulty_transport.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/weather.h"
#include "worker/blob_cache.h"
#include "worker/computation_runner.h"
#include "worker/worker_loop.h"

namespace sheaf::simulation {

class Seats {
 public:
  // All outlive the seats. `random` is the workers' own.
  Seats(Weather& weather, SimServers& server, Ledger& ledger, Random& random, const Credentials& credentials,
        int count);

  // Once a second: perhaps something happens to somebody.
  void Strike();
  // Networks are whole from here on, who is down comes back, and what hangs goes on.
  void Mend();
  // All are told to stop, and do not come back.
  void Close();
  bool is_empty() const;
  std::vector<FaultyTransport*> links() const;
  int count() const { return static_cast<int>(seats_.size()); }
  // The worker in this seat, by name.
  const std::string& worker(int seat) const { return seats_[seat]->worker; }
  const std::string& population(int seat) const { return seats_[seat]->population; }

 private:
  struct Seat {
    std::string population;
    std::map<std::string, std::string> labels;
    std::unique_ptr<FaultyTransport> transport;
    BlobCache cache{1 << 20};
    std::string worker;
    std::unique_ptr<WorkerLoop> loop;
    // A loop has one timer: setting it anew makes the old one void.
    int64_t timer = 0;
    // The same of who is down.
    int64_t rest = 0;
  };

  void Start(int seat);
  void Kill(int seat, absl::Duration downtime);
  void StepAt(absl::Time time, int seat);
  void Step(int seat);
  // A task that was prepared for an announced round begins to run.
  void OnAheadRuns(const v1::Lease& lease, const TaskInputs& inputs);

  Weather& weather_;
  SimServers& server_;
  Ledger& ledger_;
  Random& random_;
  DataSources data_{{}};
  NoWaiter waiter_;
  ComputationRunner builtin_;
  FaultyRunner runner_;
  bool is_closed_ = false;
  int num_lives_ = 0;
  std::vector<std::unique_ptr<Seat>> seats_;
};

}  // namespace sheaf::simulation
