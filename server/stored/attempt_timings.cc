#include "server/stored/attempt_timings.h"

#include <fmt/format.h>

#include "server/stored/attempt.pb.h"
#include "server/stored/unreadable.h"

namespace sheaf {
namespace {

// In both directions: durations have the same fields in the API's message and in the stored one.
template <typename From, typename To>
void CopyTimings(const From& from, To& to) {
  if (from.has_download()) *to.mutable_download() = from.download();
  if (from.has_prepare()) *to.mutable_prepare() = from.prepare();
  if (from.has_compute()) *to.mutable_compute() = from.compute();
  if (from.has_upload()) *to.mutable_upload() = from.upload();
  to.set_bytes_down(from.bytes_down());
}

}  // namespace

std::string EncodeTimings(const AttemptTimings& timings) {
  stored::v1::AttemptTimings stored;
  CopyTimings(timings.durations, stored);
  EncodeIntervals(timings.intervals, *stored.mutable_intervals());
  return stored.SerializeAsString();
}

absl::StatusOr<AttemptTimings> DecodeTimings(const TaskId& task, const AttemptRecord& record) {
  stored::v1::AttemptTimings stored;
  if (!stored.ParseFromString(record.timings)) {
    return Unreadable(fmt::format("the timings of attempt {} at task {}", record.number, task.ToString()),
                      "they are no AttemptTimings");
  }
  AttemptTimings timings{.intervals = DecodeIntervals(stored.intervals())};
  CopyTimings(stored, timings.durations);
  return timings;
}

}  // namespace sheaf
