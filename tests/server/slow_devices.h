// SlowDevices: the real core in virtual time, and devices of which some are much slower than others: each task takes a
// log-normal time, whatever it is. A device has one task at a time, and asks for the next when it hands in.
//
//   SlowDevices devices({.num_devices = 42}, [](const v1::Lease& lease) { return Result(lease, 1); });
//   std::string round = devices.Announce(spec);
//   const std::string next = devices.Announce(spec_of_the_next);   // Before this one has its goal.
//   devices.Open(round);
//   const v1::Round released = devices.Finish(round);
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/random.h"
#include "tests/server/core_federation.h"

namespace sheaf {

class SlowDevices {
 public:
  struct Options {
    int num_devices = 1;
    // Of the time that a task takes: exp(sigma * n) times the median, n being normal.
    absl::Duration median = absl::Minutes(1);
    double sigma = 1.5;
    uint64_t seed = 7;
  };
  // What a device hands in: made when it begins, from what there is then.
  using Compute = std::function<v1::TaskResult(const v1::Lease& lease)>;

  SlowDevices(const Options& options, Compute compute);

  // A round of the computation "noop", which is never too late. Its id.
  std::string Announce(v1::RoundSpec spec);
  // Who holds a task hears whether to go on, and idle devices ask for one.
  void Open(const std::string& round);
  // Until it has SUCCEEDED.
  v1::Round Finish(const std::string& round);

  CoreFederation& server() { return server_; }
  absl::Duration elapsed() { return server_.clock().Now() - begin_; }
  int64_t num_leases() const { return num_leases_; }

 private:
  struct Work {
    std::string device;
    v1::Lease lease;
    v1::TaskResult result;
  };

  // The first device that is done hands in, and takes the next task.
  void Step();
  void Ask(const std::string& device, const v1::SyncRequest& request);
  double Normal();

  const Options options_;
  const Compute compute_;
  CoreFederation server_;
  SeededRandom random_;
  absl::Time begin_;
  // By when it is done.
  std::multimap<absl::Time, Work> busy_;
  std::set<std::string> idle_;
  int64_t progress_ = 0;
  int64_t num_leases_ = 0;
};

}  // namespace sheaf
