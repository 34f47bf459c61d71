// Fleet: up to millions of workers that come and go, in virtual time, and of the server what tells them when to come
// back: the real PaceSteering, and a queue that is a number. A worker that has an appointment calls then, if it is
// available; if it is not, it calls when it is again. It takes one task, computes, hands in its result and is told when
// to come next.
//
//   Fleet fleet({.seed = 1, .num_workers = 100'000, .has_days = true}, limits);
//   fleet.CreateTasks(1000);
//   fleet.RunUntil(absl::Hours(1));
//   for (const Fleet::Minute& minute : fleet.minutes()) fmt::print("{} calls\n", minute.num_calls);
//
// One seed, one run. A day of a million workers takes some seconds. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "base/random.h"
#include "server/core/sync/pace_steering.h"
#include "tests/simulation/fleet/availability.h"
#include "tests/simulation/fleet/time_wheel.h"

namespace sheaf::simulation {

class Fleet {
 public:
  struct Options {
    uint64_t seed = 1;
    uint32_t num_workers = 0;
    // Their first calls are spread over this time.
    absl::Duration first_calls;
    // They are available as Availability has it; otherwise always.
    bool has_days = false;
    absl::Duration compute_min = absl::Seconds(30);
    absl::Duration compute_max = absl::Minutes(3);
  };
  // `limits` outlives this.
  Fleet(const Options& options, const Limits& limits);

  void CreateTasks(int64_t count) { num_queued_ += count; }
  // Everything that happens until then.
  void RunUntil(absl::Duration time);
  // Until all tasks are taken, or until then; how long it took.
  absl::Duration RunUntilTaken(absl::Duration until);

  // The server is gone, and whoever calls tries again; then it is back, knows nothing but its queue, and all workers
  // that are available call within `crowd`.
  void StopServer() { steering_.reset(); }
  void StartServer(absl::Duration crowd);

  struct Minute {
    // Calls that could take a task, and those that did.
    int64_t num_calls = 0;
    int64_t num_leases = 0;
    // At its end.
    int64_t num_queued = 0;
  };
  // The newest may not be over yet.
  const std::vector<Minute>& minutes() const { return minutes_; }
  absl::Duration now() const { return wheel_.now(); }
  // Tells two runs apart.
  uint64_t digest() const { return digest_; }

 private:
  enum Kind : uint32_t { kCall, kResult, kChange };
  static constexpr uint32_t kKinds = 4;
  struct Worker {
    bool is_available = true;
    bool is_busy = false;
    // It would have called if it had been available.
    bool is_due = false;
    // The tick of its next call or result: one that is filed for another is void.
    int64_t next = 0;
  };

  // The worker calls, or hands in, after this time, and not when it was to before.
  void Next(uint32_t worker, absl::Duration after, Kind kind);
  void Step();
  void Call(uint32_t worker);
  void HandIn(uint32_t worker);
  void Change(uint32_t worker);
  void ComeBack(uint32_t worker);
  Minute& ThisMinute();
  absl::Time ServerTime() const { return absl::UnixEpoch() + wheel_.now(); }

  const Options options_;
  const Limits& limits_;
  SeededRandom random_;
  const Availability availability_;
  TimeWheel wheel_;
  std::optional<PaceSteering> steering_;
  std::vector<Worker> workers_;
  int64_t num_queued_ = 0;
  std::vector<Minute> minutes_;
  uint64_t digest_ = 0xcbf29ce484222325;
};

}  // namespace sheaf::simulation
