#include "server/stored/interval.h"

#include "server/stored/attempt.pb.h"

namespace sheaf {

void EncodeIntervals(std::span<const Interval> intervals,
                     google::protobuf::RepeatedPtrField<stored::v1::Interval>& stored) {
  absl::Duration at;
  for (const Interval& interval : intervals) {
    stored::v1::Interval& added = *stored.Add();
    added.set_phase(interval.phase);
    added.set_gap_nanos(absl::ToInt64Nanoseconds(interval.begin - at));
    added.set_nanos(absl::ToInt64Nanoseconds(interval.end - interval.begin));
    at = interval.end;
  }
}

std::vector<Interval> DecodeIntervals(const google::protobuf::RepeatedPtrField<stored::v1::Interval>& stored) {
  std::vector<Interval> intervals;
  intervals.reserve(static_cast<size_t>(stored.size()));
  absl::Duration at;
  for (const stored::v1::Interval& read : stored) {
    const absl::Duration begin = at + absl::Nanoseconds(read.gap_nanos());
    at = begin + absl::Nanoseconds(read.nanos());
    intervals.push_back({.phase = read.phase(), .begin = begin, .end = at});
  }
  return intervals;
}

}  // namespace sheaf
