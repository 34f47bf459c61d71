// Goal: what slow workers cost. The real core in virtual time, and workers whose tasks take log-normal times, as those
// of devices do: how long until a number of contributions has been released, by rounds that wait for all of their
// tasks, by rounds with more tasks than they need, and by rounds that continue one another.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <string>
#include <utility>

#include "base/random.h"
#include "proto/time.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

constexpr int kWorkers = 42;
constexpr int kGoal = 32;
constexpr int kRounds = 20;
constexpr double kSigma = 1.5;

struct Pace {
  absl::Duration time;
  // Of leases, how many brought nothing.
  double wasted = 0;
  // Of contributions that were released.
  double mean_staleness = 0;
  int64_t num_contributions = 0;
};

class Devices {
 public:
  // Each round has so many tasks.
  Devices(int num_tasks, bool buffered) : num_tasks_(num_tasks), buffered_(buffered) {
    for (int i = 0; i < kWorkers; ++i) idle_.insert(fmt::format("w{}", i));
  }

  Pace Run() {
    const absl::Time begin = server_.clock().Now();
    Announce();
    for (int number = 1; number <= kRounds; ++number) {
      const std::string round = std::exchange(next_, "");
      if (number < kRounds) Announce(round);
      Open(round);
      while (server_.GetRound(round).state() != v1::SUCCEEDED) Step();
      Count(server_.GetRound(round));
    }
    pace_.time = server_.clock().Now() - begin;
    pace_.wasted = 1 - static_cast<double>(pace_.num_contributions) / static_cast<double>(num_leases_);
    pace_.mean_staleness /= static_cast<double>(pace_.num_contributions);
    return pace_;
  }

 private:
  void Announce(const std::string& before = "") {
    v1::RoundSpec spec = SumRound(num_tasks_);
    spec.set_goal(kGoal);
    spec.set_announced(true);
    if (buffered_) spec.set_continues(before);
    for (auto* duration : {spec.mutable_lease_duration(), spec.mutable_deadline(), spec.mutable_announce_deadline()}) {
      *duration = ToProto(absl::Hours(8'000));
    }
    next_ = server_.CreateRound(spec);
  }
  void Open(const std::string& round) {
    v1::OpenRoundRequest request;
    request.set_request_id("open " + round);
    request.set_round(round);
    REQUIRE(server_.Call<v1::OpenRoundResponse>("RoundService/OpenRound", request).ok());
    // Who was told to stop, or finds nothing to do, asks again now.
    for (auto it = busy_.begin(); it != busy_.end();) {
      const std::string worker = it->second.first;
      v1::SyncRequest renewal = Ask(worker, 0);
      *renewal.add_held() = Held(it->second.second, ++progress_);
      const bool goes_on = server_.Sync(renewal).held(0).verdict() == v1::LeaseUpdate::HELD;
      if (!goes_on) idle_.insert(worker);
      it = goes_on ? std::next(it) : busy_.erase(it);
    }
    for (const std::string& worker : std::exchange(idle_, {})) Work(worker, Ask(worker, 1));
  }
  // The first device that is done hands in, and takes the next task.
  void Step() {
    REQUIRE_FALSE(busy_.empty());
    const auto first = busy_.begin();
    server_.Advance(first->first - server_.clock().Now());
    const auto [worker, lease] = first->second;
    busy_.erase(first);
    v1::SyncRequest request = Ask(worker, 1);
    *request.add_results() = Result(lease, 1);
    Work(worker, request);
  }
  void Work(const std::string& worker, const v1::SyncRequest& request) {
    const v1::SyncResponse response = server_.Sync(request);
    if (response.leases().empty()) {
      idle_.insert(worker);
      return;
    }
    ++num_leases_;
    busy_.emplace(server_.clock().Now() + absl::Seconds(60 * std::exp(kSigma * Normal())),
                  std::pair(worker, response.leases(0)));
  }
  double Normal() {
    // Box and Muller.
    return std::sqrt(-2 * std::log(1 - random_.Fraction())) * std::cos(2 * std::numbers::pi * random_.Fraction());
  }
  void Count(const v1::Round& round) {
    pace_.num_contributions += round.num_contributions();
    for (const auto& [staleness, count] : round.contributions_by_staleness()) {
      pace_.mean_staleness += static_cast<double>(staleness) * static_cast<double>(count);
    }
  }

  const int num_tasks_;
  const bool buffered_;
  CoreFederation server_;
  SeededRandom random_{7};
  // By when they are done.
  std::multimap<absl::Time, std::pair<std::string, v1::Lease>> busy_;
  std::set<std::string> idle_;
  std::string next_;
  int64_t progress_ = 0;
  int64_t num_leases_ = 0;
  Pace pace_;
};

std::string Text(const Pace& pace) {
  return fmt::format("{} for {} contributions, {:.0f} % of the work in vain, mean staleness {:.2f}",
                     absl::FormatDuration(absl::Trunc(pace.time, absl::Seconds(1))), pace.num_contributions,
                     100 * pace.wasted, pace.mean_staleness);
}

TEST_CASE("With slow workers rounds that continue one another take a third of the time of rounds that wait, or less") {
  const Pace waiting = Devices(kGoal, false).Run();
  const Pace over_selected = Devices(kWorkers, false).Run();
  const Pace buffered = Devices(kWorkers, true).Run();
  WARN("waiting for all:  " << Text(waiting));
  WARN("over-selected:    " << Text(over_selected));
  WARN("buffered:         " << Text(buffered));
  CHECK(buffered.num_contributions >= kRounds * kGoal);
  CHECK(buffered.time <= waiting.time / 3);
  CHECK(buffered.time <= over_selected.time);
  CHECK(buffered.wasted < over_selected.wasted / 2);
}

}  // namespace
}  // namespace sheaf
