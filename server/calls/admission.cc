#include "server/calls/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/retry_hint.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// A few that wait long are no overload: each has a lot to do, or the core is busy with something large.
constexpr int64_t kCrowd = 256;
// Inspection may go on beyond the limit of bytes with requests of this size, which all of its are.
constexpr int64_t kSmallRequestBytes = 64 << 10;

}  // namespace

absl::Status Admission::Enter(Lane lane, const Identity& caller, int64_t bytes, absl::Time now) {
  absl::Status status = CheckQueue(lane, caller, now);
  if (status.ok()) status = TakeRoom(lane, caller, bytes, now);
  if (!status.ok()) refused_.fetch_add(1, std::memory_order_relaxed);
  return status;
}

void Admission::Leave(const Identity& caller, int64_t bytes) {
  MutexLock lock(mutex_);
  bytes_ -= bytes;
  callers_.at(caller.name).bytes -= bytes;
}

void Admission::Queue(Lane lane, const Identity& caller) {
  MutexLock lock(mutex_);
  waiting(lane).arrivals[caller.name].push_back(newest_);
  waiting(lane).by_identity.Add(caller.name, 1);
}

void Admission::Dequeue(Lane lane, const Identity& caller) {
  MutexLock lock(mutex_);
  Waiting& line = waiting(lane);
  line.by_identity.Add(caller.name, -1);
  const auto own = line.arrivals.find(caller.name);
  own->second.pop_front();
  if (own->second.empty()) line.arrivals.erase(own);
}

absl::Status Admission::CheckQueue(Lane lane, const Identity& caller, absl::Time now) {
  const bool is_work = lane == Lane::kWork;
  const auto limit = is_work ? &Limits::queued_calls_max : &Limits::queued_inspections_max;
  int64_t queued = 0;
  int64_t own = 0;
  int64_t own_max = 0;
  int64_t identities = 0;
  absl::Duration waited;
  {
    MutexLock lock(mutex_);
    newest_ = now;
    const Waiting& line = waiting(lane);
    queued = line.by_identity.total();
    own = line.by_identity.Of(caller.name);
    own_max = line.by_identity.Max(caller.name, limits_.*limit, limits_.population_percent_max);
    identities = line.by_identity.size();
    if (own > 0) waited = now - line.arrivals.at(caller.name).front();
  }
  if (own >= own_max) {
    return limits_.RefuseShare(
        limit, fmt::format("the server is overloaded: {} calls wait, {} of them of {}, which may have", queued, own,
                           caller.name.empty() ? "this machine" : caller.name));
  }
  // Who has less than the average in the queue is not the one who fills it.
  const bool is_heavy = own * std::max<int64_t>(identities, 1) >= queued;
  if (is_work && queued >= kCrowd && waited > limits_.queue_wait_max && is_heavy) {
    return limits_.Refuse(
        &Limits::queue_wait_max,
        fmt::format("the server is overloaded: {} calls wait, the first of {} for {},", queued,
                    caller.name.empty() ? "this machine" : caller.name, absl::FormatDuration(waited)));
  }
  return absl::OkStatus();
}

absl::Status Admission::TakeRoom(Lane lane, const Identity& caller, int64_t bytes, absl::Time now) {
  const auto rate = static_cast<double>(limits_.calls_per_second_max);
  const bool is_small = lane == Lane::kInspection && bytes <= kSmallRequestBytes;
  int64_t held = 0;
  int64_t own = 0;
  bool has_room = false;
  double missing = 0;
  {
    MutexLock lock(mutex_);
    Caller& room = callers_[caller.name];
    held = bytes_;
    own = room.bytes;
    const int64_t own_max =
        PopulationShare::Max(held - own, limits_.open_request_bytes_max, limits_.population_percent_max);
    has_room = own + bytes <= own_max || is_small;
    if (has_room) {
      const absl::Duration since = std::clamp(now - room.filled, absl::ZeroDuration(), absl::Seconds(1));
      room.tokens = std::min(rate, room.tokens + rate * absl::ToDoubleSeconds(since));
      room.filled = now;
      missing = 1 - room.tokens;
      if (missing <= 0) {
        room.tokens -= 1;
        room.bytes += bytes;
        bytes_ += bytes;
        return absl::OkStatus();
      }
    }
  }
  const std::string name = caller.name.empty() ? "this machine" : caller.name;
  if (!has_room) {
    return limits_.RefuseShare(
        &Limits::open_request_bytes_max,
        fmt::format("the server is overloaded: the requests it is answering have {} bytes, {} of them of {}, which may "
                    "have",
                    held, own, name));
  }
  return WithRetryAfter(limits_.Refuse(&Limits::calls_per_second_max, fmt::format("{} calls more often than", name)),
                        std::max(absl::Seconds(missing / rate), absl::Milliseconds(100)));
}

}  // namespace sheaf
