#include "server/core/rounds/critical_path.h"

#include <algorithm>
#include <string_view>

#include "proto/time.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

// Grows to the right, without gaps, and never beyond the round's end.
class Path {
 public:
  Path(absl::Time begin, absl::Time end)
      : origin_(ToNanoseconds(begin)), wall_(std::max(ToNanoseconds(end) - origin_, absl::ZeroDuration())) {}

  // From here on, what is added is of this attempt; of none, with null.
  void Of(int32_t task_index, const PathAttempt* attempt) {
    task_index_ = attempt == nullptr ? 0 : task_index;
    attempt_ = attempt;
  }
  // Nothing that lies behind takes any time.
  void Reach(std::string_view phase, absl::Time until_time) {
    const absl::Duration until = std::clamp(ToNanoseconds(until_time) - origin_, at_, wall_);
    if (until == at_) return;
    Interval next{.phase = std::string(phase), .begin = at_, .end = until, .task_index = task_index_};
    if (attempt_ != nullptr) {
      next.attempt = attempt_->number;
      next.worker = attempt_->worker;
    }
    at_ = until;
    if (!intervals_.empty() && IsSame(intervals_.back(), next)) {
      intervals_.back().end = until;
    } else {
      intervals_.push_back(std::move(next));
    }
  }
  std::vector<Interval> Take() && { return std::move(intervals_); }

 private:
  static bool IsSame(const Interval& a, const Interval& b) {
    return a.phase == b.phase && a.task_index == b.task_index && a.attempt == b.attempt && a.worker == b.worker;
  }

  const absl::Time origin_;
  const absl::Duration wall_;
  absl::Duration at_;
  int32_t task_index_ = 0;
  const PathAttempt* attempt_ = nullptr;
  std::vector<Interval> intervals_;
};

constexpr std::string_view kWait = "wait";

// From when on its task could be leased. Where nobody knows, at its lease.
absl::Time AvailableTime(const PathAttempt& attempt) {
  const bool is_known = !attempt.intervals.empty() && attempt.intervals.front().phase == kWait;
  return is_known ? attempt.leased + attempt.intervals.front().begin : attempt.leased;
}

std::string_view PhaseOf(AttemptOutcome outcome) {
  switch (outcome) {
    case AttemptOutcome::kFailed:
      return "failed";
    case AttemptOutcome::kLost:
      return "lost";
    case AttemptOutcome::kReleased:
      return "released";
    default:
      // It ran beside the one that was accepted.
      return "cancelled";
  }
}

// Until its lease began: behind another attempt it may have had to wait first.
void AddQueueing(const PathAttempt& attempt, bool is_first, Path& path) {
  path.Reach(is_first ? kWait : "backoff", AvailableTime(attempt));
  path.Reach(is_first || AvailableTime(attempt) < attempt.leased ? kWait : "backoff", attempt.leased);
}

struct Bucket {
  std::string_view phase;
  google::protobuf::Duration* (v1::RoundPhases::*sum)();
};
// What no row names is a worker's own: it computes.
constexpr Bucket kBuckets[] = {
    {"wait", &v1::RoundPhases::mutable_wait},          {"backoff", &v1::RoundPhases::mutable_wait},
    {"grant", &v1::RoundPhases::mutable_wait},         {"prepared", &v1::RoundPhases::mutable_wait},
    {"lost", &v1::RoundPhases::mutable_wait},          {"failed", &v1::RoundPhases::mutable_wait},
    {"released", &v1::RoundPhases::mutable_wait},      {"cancelled", &v1::RoundPhases::mutable_wait},
    {"closing", &v1::RoundPhases::mutable_wait},       {"download", &v1::RoundPhases::mutable_download},
    {"prepare", &v1::RoundPhases::mutable_prepare},    {"compute", &v1::RoundPhases::mutable_compute},
    {"upload", &v1::RoundPhases::mutable_upload},      {"hand_in", &v1::RoundPhases::mutable_upload},
    {"unaccounted", &v1::RoundPhases::mutable_upload}, {"receive", &v1::RoundPhases::mutable_fold},
    {"fold", &v1::RoundPhases::mutable_fold},          {"commit", &v1::RoundPhases::mutable_commit},
    {"seal", &v1::RoundPhases::mutable_commit},
};

}  // namespace

std::vector<Interval> CriticalPath(const RoundStamps& stamps, const PathTask& task) {
  Path path(stamps.created, stamps.ended);
  const std::vector<PathAttempt>& attempts = task.attempts;
  const auto accepted = std::find_if(attempts.rbegin(), attempts.rend(), [](const PathAttempt& attempt) {
    return attempt.outcome == AttemptOutcome::kSucceeded;
  });
  if (accepted == attempts.rend()) {
    path.Reach("unaccounted", stamps.closed);
  } else {
    const auto num_earlier = static_cast<size_t>(attempts.rend() - accepted) - 1;
    const size_t first = num_earlier - std::min(num_earlier, kEarlierAttemptsMax);
    if (first > 0) {
      // The oldest together, with what they waited.
      path.Of(task.index, &attempts[first - 1]);
      path.Reach(PhaseOf(attempts[first - 1].outcome), std::min(attempts[first - 1].ended, accepted->leased));
    }
    for (size_t i = first; i < num_earlier; ++i) {
      path.Of(task.index, &attempts[i]);
      AddQueueing(attempts[i], i == 0, path);
      // One that ran beside the accepted one held it up until that was leased.
      path.Reach(PhaseOf(attempts[i].outcome), std::min(attempts[i].ended, accepted->leased));
    }
    path.Of(task.index, &*accepted);
    AddQueueing(*accepted, num_earlier == 0, path);
    for (const Interval& interval : accepted->intervals) {
      path.Reach("unaccounted", accepted->leased + interval.begin);
      path.Reach(interval.phase, accepted->leased + interval.end);
    }
    path.Reach("unaccounted", accepted->ended);
  }
  path.Of(0, nullptr);
  path.Reach("closing", stamps.closed);
  path.Reach("commit", stamps.committed);
  path.Reach("fold", stamps.folded);
  path.Reach("seal", stamps.ended);
  return std::move(path).Take();
}

v1::RoundPhases SumPhases(std::span<const Interval> path) {
  v1::RoundPhases phases;
  // All of them are set.
  for (const Bucket& bucket : kBuckets) (phases.*bucket.sum)();
  for (const Interval& interval : path) {
    const auto* found = std::find_if(std::begin(kBuckets), std::end(kBuckets),
                                     [&](const Bucket& bucket) { return bucket.phase == interval.phase; });
    google::protobuf::Duration* sum = found == std::end(kBuckets) ? phases.mutable_compute() : (phases.*found->sum)();
    *sum = ToProto(FromProto(*sum) + (interval.end - interval.begin));
  }
  return phases;
}

}  // namespace sheaf
