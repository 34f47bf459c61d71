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
// Inspection may go on beyond the limit of bytes with requests of this size, which all of its are.
constexpr int64_t kSmallRequestBytes = 64 << 10;

absl::Status Overloaded(std::string message) {
  return WithRetryAfter(absl::ResourceExhaustedError(std::move(message)), kComeBackAfter);
}

}  // namespace

absl::Status Admission::Enter(Lane lane, const Identity& caller, int64_t bytes, absl::Time now) {
  absl::Status status = CheckLoad(lane, bytes);
  if (status.ok()) status = CheckRate(caller, now);
  if (!status.ok()) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return status;
  }
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return status;
}

absl::Status Admission::CheckLoad(Lane lane, int64_t bytes) {
  const bool is_work = lane == Lane::kWork;
  const int64_t queued = this->queued(lane).load(std::memory_order_relaxed);
  if (queued >= (is_work ? limits_.queued_calls_max : limits_.queued_inspections_max)) {
    return Overloaded(fmt::format("the server is overloaded: {} calls wait, {} = {}; try again in a moment", queued,
                                  is_work ? "queued_calls_max" : "queued_inspections_max",
                                  is_work ? limits_.queued_calls_max : limits_.queued_inspections_max));
  }
  const int64_t held = this->bytes();
  if (held + bytes > limits_.open_request_bytes_max && (is_work || bytes > kSmallRequestBytes)) {
    return Overloaded(fmt::format(
        "the server is overloaded: the requests it is answering have {} bytes, open_request_bytes_max = {}; "
        "try again in a moment",
        held, limits_.open_request_bytes_max));
  }
  return absl::OkStatus();
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
