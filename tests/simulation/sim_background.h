// SimBackground: what a simulated server does beside its core, in virtual time. Jobs of a strand run one after the
// other, each a while after it could have begun, as chance has it: batches, and jobs of other strands, come in between.
//
//   SimBackground background(agenda, chance, [&](const auto& job) { Guard(job); }, [&] { return frozen_until; });
//   background.Run("r-2k5m", job);
//   background.Clear();              // The process is gone, and with it whatever it had not done.
//
// A crash inside a job is `guard`'s to catch.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/random.h"
#include "server/core/batches/background.h"
#include "tests/simulation/agenda.h"

namespace sheaf::simulation {

class SimBackground final : public Background {
 public:
  using Guard = std::function<void(const Job& job)>;
  // Both outlive this.
  // `frozen_until` says until when the process stands still; in the past if it does not.
  SimBackground(Agenda& agenda, Random& chance, Guard guard, std::function<absl::Time()> frozen_until)
      : agenda_(agenda), chance_(chance), guard_(std::move(guard)), frozen_until_(std::move(frozen_until)) {}

  void Run(const std::string& strand, Job job) override {
    std::deque<Job>& jobs = strands_[strand];
    jobs.push_back(std::move(job));
    if (jobs.size() == 1) Schedule(strand);
  }

  // From here on no job waits long: the server is told to stop.
  void Hurry() { is_in_a_hurry_ = true; }
  void Clear() {
    ++life_;
    is_in_a_hurry_ = false;
    strands_.clear();
  }
  size_t num_strands() const { return strands_.size(); }

 private:
  // Of a large checkpoint, say; well below what a call allows for its answer.
  static constexpr double kLong = 0.05;

  void Schedule(const std::string& strand) {
    const bool is_long = !is_in_a_hurry_ && chance_.Chance(kLong);
    const absl::Duration most = is_long ? absl::Milliseconds(150) : absl::Milliseconds(2);
    RunAt(agenda_.now() + chance_.Between(absl::ZeroDuration(), most), strand);
  }

  void RunAt(absl::Time time, const std::string& strand) {
    agenda_.At(time, [this, life = life_, strand] {
      if (life != life_) return;
      if (frozen_until_() > agenda_.now()) return RunAt(frozen_until_(), strand);
      // The job stays in front: what it asks for goes behind it.
      const Job job = std::move(strands_.at(strand).front());
      guard_(job);
      if (life != life_) return;
      std::deque<Job>& jobs = strands_.at(strand);
      jobs.pop_front();
      if (jobs.empty()) {
        strands_.erase(strand);
      } else {
        Schedule(strand);
      }
    });
  }

  Agenda& agenda_;
  Random& chance_;
  const Guard guard_;
  const std::function<absl::Time()> frozen_until_;
  std::map<std::string, std::deque<Job>> strands_;
  // Appointments of an earlier process are void.
  int64_t life_ = 0;
  bool is_in_a_hurry_ = false;
};

}  // namespace sheaf::simulation
