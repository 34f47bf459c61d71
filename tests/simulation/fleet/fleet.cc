#include "tests/simulation/fleet/fleet.h"

#include <algorithm>

namespace sheaf::simulation {
namespace {

constexpr char kPopulation[] = "fleet";
constexpr absl::Duration kStay = absl::Hours(3);
// A worker that becomes available and is due calls within this time, and so does one whose server was away.
constexpr absl::Duration kCallWithin = absl::Minutes(1);
// What the server tells who does not wait, where few do.
const PaceRange kSoon = RangeOf(Pace::kLater);

}  // namespace

Fleet::Fleet(const Options& options, const Limits& limits)
    : options_(options), limits_(limits), random_(options.seed), availability_(kStay), workers_(options.num_workers) {
  steering_.emplace(limits_);
  for (uint32_t worker = 0; worker < options_.num_workers; ++worker) {
    if (options_.has_days) {
      workers_[worker].is_available = random_.Chance(Availability::Part(absl::ZeroDuration()));
      const absl::Duration change = workers_[worker].is_available
                                        ? availability_.UntilGone(random_)
                                        : availability_.UntilThere(absl::ZeroDuration(), random_);
      wheel_.At(change, worker * kKinds + kChange);
    }
    Next(worker, random_.Between(absl::ZeroDuration(), options_.first_calls + absl::Seconds(1)), kCall);
  }
}

void Fleet::RunUntil(absl::Duration time) {
  while (wheel_.now() < time) Step();
}

absl::Duration Fleet::RunUntilTaken(absl::Duration until) {
  const absl::Duration begin = wheel_.now();
  while (num_queued_ > 0 && wheel_.now() < until) Step();
  return wheel_.now() - begin;
}

void Fleet::StartServer(absl::Duration crowd) {
  steering_.emplace(limits_);
  for (uint32_t worker = 0; worker < options_.num_workers; ++worker) {
    if (workers_[worker].is_busy) continue;
    workers_[worker].is_due = true;
    if (workers_[worker].is_available) Next(worker, random_.Between(absl::ZeroDuration(), crowd), kCall);
  }
}

void Fleet::Next(uint32_t worker, absl::Duration after, Kind kind) {
  workers_[worker].next = wheel_.At(wheel_.now() + after, worker * kKinds + kind);
}

void Fleet::Step() {
  for (const uint32_t event : wheel_.Next()) {
    const uint32_t worker = event / kKinds;
    const auto kind = static_cast<Kind>(event % kKinds);
    if (kind != kChange && workers_[worker].next != wheel_.tick()) continue;
    digest_ = (digest_ ^ static_cast<uint64_t>(wheel_.tick())) * 0x100000001b3 + event;
    switch (kind) {
      case kCall:
        Call(worker);
        break;
      case kResult:
        HandIn(worker);
        break;
      case kChange:
        Change(worker);
        break;
    }
  }
  ThisMinute().num_queued = num_queued_;
}

void Fleet::Call(uint32_t worker) {
  Worker& caller = workers_[worker];
  caller.is_due = true;
  if (!caller.is_available) return;
  if (!steering_) return Next(worker, random_.Between(absl::ZeroDuration(), kCallWithin), kCall);
  caller.is_due = false;
  ++ThisMinute().num_calls;
  const bool has_task = num_queued_ > 0;
  if (has_task) {
    --num_queued_;
    ++ThisMinute().num_leases;
  }
  // That appointments are given back is tested elsewhere: a worker of this fleet never comes before its time.
  steering_->OnCall(kPopulation, {.num_leases = has_task ? 1 : 0, .now = ServerTime()}, [&] { return num_queued_; });
  if (!has_task) return ComeBack(worker);
  caller.is_busy = true;
  Next(worker, random_.Between(options_.compute_min, options_.compute_max), kResult);
}

void Fleet::HandIn(uint32_t worker) {
  Worker& holder = workers_[worker];
  holder.is_busy = false;
  if (holder.is_available && steering_) return ComeBack(worker);
  // Nobody hears of its result, and its task is somebody else's.
  ++num_queued_;
  Call(worker);
}

void Fleet::Change(uint32_t worker) {
  Worker& changed = workers_[worker];
  changed.is_available = !changed.is_available;
  const absl::Duration after =
      changed.is_available ? availability_.UntilGone(random_) : availability_.UntilThere(wheel_.now(), random_);
  wheel_.At(wheel_.now() + after, worker * kKinds + kChange);
  if (changed.is_available && changed.is_due && !changed.is_busy) {
    Next(worker, random_.Between(absl::ZeroDuration(), kCallWithin), kCall);
  }
}

void Fleet::ComeBack(uint32_t worker) {
  const PaceSteering::Next next = steering_->NextCall(kPopulation, kSoon, ServerTime());
  Next(worker, random_.Between(next.range.min, next.range.max), kCall);
}

Fleet::Minute& Fleet::ThisMinute() {
  const auto minute = static_cast<size_t>(wheel_.now() / absl::Minutes(1));
  if (minutes_.size() <= minute) minutes_.resize(minute + 1);
  return minutes_[minute];
}

}  // namespace sheaf::simulation
