// Interval: a named stretch of time, in lists that are in order and do not overlap, as attempts and rounds keep them.
// EncodeIntervals and DecodeIntervals are of an attempt's; round_release.h has those of a round. Pure; thread-safe.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace sheaf::stored::v1 {
class Interval;
}  // namespace sheaf::stored::v1

namespace sheaf {

struct Interval {
  // See PhaseInterval.phase in task.proto.
  std::string phase;
  // Of an attempt: from the beginning of its lease. Of a round: from its creation.
  absl::Duration begin;
  absl::Duration end;
  // On a round's critical path: the attempt that it is of. 0 and empty for what the server does alone.
  int32_t task_index = 0;
  int32_t attempt = 0;
  std::string worker = {};

  friend bool operator==(const Interval&, const Interval&) = default;
};

// As stores and messages keep it: differences of such times are whole nanoseconds, too.
inline absl::Time ToNanoseconds(absl::Time time) { return absl::FromUnixNanos(absl::ToUnixNanos(time)); }

void EncodeIntervals(std::span<const Interval> intervals,
                     google::protobuf::RepeatedPtrField<stored::v1::Interval>& stored);
std::vector<Interval> DecodeIntervals(const google::protobuf::RepeatedPtrField<stored::v1::Interval>& stored);

}  // namespace sheaf
