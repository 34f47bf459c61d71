#include "server/handlers/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/retry_hint.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// A queue that is full is empty again long before.
constexpr absl::Duration kComeBackAfter = absl::Seconds(1);
// A few that wait long are no overload: each has a lot to do, or the core is busy with something large.
constexpr int64_t kCrowd = 256;
// Inspection may go on beyond the limit of bytes with requests of this size, which all of its are.
constexpr int64_t kSmallRequestBytes = 64 << 10;

absl::Status Overloaded(std::string message) {
  return WithRetryAfter(absl::ResourceExhaustedError(std::move(message)), kComeBackAfter);
}

}  // namespace

absl::Status Admission::Enter(Lane lane, const Identity& caller, int64_t bytes, absl::Time now) {
  absl::Status status = CheckQueue(lane, caller, now);
  if (status.ok()) status = CheckBytes(lane, bytes);
  if (status.ok()) status = CheckRate(caller, now);
  if (!status.ok()) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return status;
  }
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return status;
}

void Admission::Queue(Lane lane, const Identity& caller) {
  MutexLock lock(mutex_);
  waiting(lane).calls.emplace_back(newest_, caller.name);
  waiting(lane).by_identity.Add(caller.name, 1);
}

void Admission::Dequeue(Lane lane) {
  MutexLock lock(mutex_);
  Waiting& line = waiting(lane);
  line.by_identity.Add(line.calls.front().second, -1);
  line.calls.pop_front();
}

absl::Status Admission::CheckQueue(Lane lane, const Identity& caller, absl::Time now) {
  const bool is_work = lane == Lane::kWork;
  const int64_t calls_max = is_work ? limits_.queued_calls_max : limits_.queued_inspections_max;
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
    own_max = line.by_identity.Max(caller.name, calls_max, limits_.population_percent_max);
    identities = line.by_identity.size();
    if (queued > 0) waited = now - line.calls.front().first;
  }
  if (own >= own_max) {
    return Overloaded(fmt::format(
        "the server is overloaded: {} calls wait, {} of them of {}, {} = {}, of which one identity may have {} % of "
        "what "
        "the others leave; try again in a moment",
        queued, own, caller.name.empty() ? "this machine" : caller.name,
        is_work ? "queued_calls_max" : "queued_inspections_max", calls_max, limits_.population_percent_max));
  }
  // Who has less than the average in the queue is not the one who fills it.
  const bool is_heavy = own * std::max<int64_t>(identities, 1) >= queued;
  if (is_work && queued >= kCrowd && waited > limits_.queue_wait_max && is_heavy) {
    return Overloaded(
        fmt::format("the server is overloaded: {} calls wait, the first for {}, queue_wait_max_ms = {}; try again in a "
                    "moment",
                    queued, absl::FormatDuration(waited), absl::ToInt64Milliseconds(limits_.queue_wait_max)));
  }
  return absl::OkStatus();
}

absl::Status Admission::CheckBytes(Lane lane, int64_t bytes) const {
  const int64_t held = this->bytes();
  if (held + bytes <= limits_.open_request_bytes_max) return absl::OkStatus();
  if (lane == Lane::kInspection && bytes <= kSmallRequestBytes) return absl::OkStatus();
  return Overloaded(
      fmt::format("the server is overloaded: the requests it is answering have {} bytes, open_request_bytes_max = {}; "
                  "try again in a moment",
                  held, limits_.open_request_bytes_max));
}

absl::Status Admission::CheckRate(const Identity& caller, absl::Time now) {
  const auto rate = static_cast<double>(limits_.calls_per_second_max);
  double missing = 0;
  {
    MutexLock lock(mutex_);
    Bucket& bucket = buckets_[caller.name];
    const absl::Duration since = std::clamp(now - bucket.filled, absl::ZeroDuration(), absl::Seconds(1));
    bucket.tokens = std::min(rate, bucket.tokens + rate * absl::ToDoubleSeconds(since));
    bucket.filled = now;
    missing = 1 - bucket.tokens;
    if (missing <= 0) bucket.tokens -= 1;
  }
  if (missing <= 0) return absl::OkStatus();
  return WithRetryAfter(
      absl::ResourceExhaustedError(fmt::format(
          "{} calls more often than calls_per_second_max = {}; call less often, or raise --calls-per-second-max",
          caller.name.empty() ? "this machine" : caller.name, limits_.calls_per_second_max)),
      std::max(absl::Seconds(missing / rate), absl::Milliseconds(100)));
}

}  // namespace sheaf
