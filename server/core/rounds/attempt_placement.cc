#include "server/core/rounds/attempt_placement.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "proto/time.h"
#include "server/core/limits/fixed_limits.h"

namespace sheaf {
namespace {

// A round's tasks times this stay within 64 bits.
constexpr int64_t kBytesDownMax = int64_t{1} << 45;
constexpr size_t kPhaseCharactersMax = 32;

// What the server says itself, and no worker.
constexpr auto kServersPhases =
    std::to_array<std::string_view>({"wait", "grant", "hand_in", "receive", "backoff", "lost", "failed", "released",
                                     "cancelled", "unaccounted", "closing", "commit", "fold", "seal"});

absl::Duration Plausible(const google::protobuf::Duration& duration) {
  return std::clamp(FromProto(duration), absl::ZeroDuration(), kRoundTimeMax);
}

// It is kept, shown and added up: no time is negative or longer than a round, and fields that this server does not know
// are left out.
v1::AttemptTimings PlausibleDurations(const v1::AttemptTimings& reported) {
  v1::AttemptTimings plausible;
  if (reported.has_download()) *plausible.mutable_download() = ToProto(Plausible(reported.download()));
  if (reported.has_prepare()) *plausible.mutable_prepare() = ToProto(Plausible(reported.prepare()));
  if (reported.has_compute()) *plausible.mutable_compute() = ToProto(Plausible(reported.compute()));
  if (reported.has_upload()) *plausible.mutable_upload() = ToProto(Plausible(reported.upload()));
  plausible.set_bytes_down(std::clamp<int64_t>(reported.bytes_down(), 0, kBytesDownMax));
  return plausible;
}

bool IsWorkersPhase(std::string_view phase) {
  return !phase.empty() && phase.size() <= kPhaseCharactersMax &&
         std::all_of(phase.begin(), phase.end(),
                     [](unsigned char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_'; }) &&
         std::find(kServersPhases.begin(), kServersPhases.end(), phase) == kServersPhases.end();
}

// Intervals in order, from the beginning of the lease on, none before the end of the last and none beyond the room.
class Placement {
 public:
  explicit Placement(std::vector<Interval>& intervals) : intervals_(intervals) {}

  void Add(std::string_view phase, absl::Duration begin, absl::Duration end, absl::Duration room) {
    begin = std::clamp(begin, at_, std::max(at_, room));
    end = std::clamp(end, begin, std::max(begin, room));
    if (end == begin) return;
    intervals_.push_back({.phase = std::string(phase), .begin = begin, .end = end});
    at_ = end;
  }
  absl::Duration at() const { return at_; }

 private:
  std::vector<Interval>& intervals_;
  absl::Duration at_;
};

// One after the other, in the order in which a worker does them. True if there is any.
bool AddDurations(const v1::AttemptTimings& durations, absl::Duration room, Placement& placement) {
  const std::pair<std::string_view, absl::Duration> parts[] = {{"prepare", FromProto(durations.prepare())},
                                                               {"download", FromProto(durations.download())},
                                                               {"compute", FromProto(durations.compute())},
                                                               {"upload", FromProto(durations.upload())}};
  bool has_any = false;
  for (const auto& [phase, took] : parts) {
    has_any = has_any || took > absl::ZeroDuration();
    placement.Add(phase, placement.at(), placement.at() + took, room);
  }
  return has_any;
}

// When the worker had the lease, from its beginning.
absl::Duration OffsetOf(const v1::AttemptTimings& reported, const AttemptStamps& stamps, absl::Duration room) {
  const absl::Duration latest = room - std::clamp(FromProto(reported.handed_in()), absl::ZeroDuration(), room);
  const absl::Duration granted =
      reported.has_grant_time()
          ? std::clamp(FromProto(reported.grant_time()) - stamps.leased, absl::ZeroDuration(), latest)
          : absl::ZeroDuration();
  // Stored in nanoseconds, of which an absl::Duration knows quarters.
  return granted + absl::Trunc((latest - granted) / 2, absl::Nanoseconds(1));
}

void AddWorkersIntervals(const v1::AttemptTimings& reported, absl::Duration offset, absl::Duration room,
                         Placement& placement) {
  const int num_intervals = std::min(reported.intervals_size(), kWorkerIntervalsMax);
  for (int i = 0; i < num_intervals; ++i) {
    const v1::AttemptTimings::Interval& said = reported.intervals(i);
    if (!IsWorkersPhase(said.phase())) continue;
    placement.Add(said.phase(), offset + Plausible(said.begin()), offset + Plausible(said.end()), room);
  }
}

// With stamps of whole nanoseconds.
AttemptTimings Place(const v1::AttemptTimings& reported, const AttemptStamps& stamps) {
  AttemptTimings timings{.durations = PlausibleDurations(reported)};
  // A clock that was set back makes nothing negative.
  const absl::Duration room = std::max(stamps.received - stamps.leased, absl::ZeroDuration());
  if (stamps.available < stamps.leased) {
    timings.intervals.push_back({.phase = "wait", .begin = stamps.available - stamps.leased});
  }
  Placement placement(timings.intervals);
  bool is_known = false;
  if (reported.intervals_size() > 0) {
    const absl::Duration offset = OffsetOf(reported, stamps, room);
    placement.Add("grant", absl::ZeroDuration(), offset, room);
    AddWorkersIntervals(reported, offset, room, placement);
    is_known = true;
  } else {
    is_known = AddDurations(timings.durations, room, placement);
  }
  if (!is_known) return timings;
  placement.Add("hand_in", placement.at(), room, room);
  const absl::Duration ended = std::max(stamps.ended - stamps.leased, room);
  placement.Add("receive", room, ended, ended);
  return timings;
}

}  // namespace

AttemptTimings PlaceAttempt(const v1::AttemptTimings& reported, const AttemptStamps& stamps) {
  return Place(reported, {.available = ToNanoseconds(stamps.available),
                          .leased = ToNanoseconds(stamps.leased),
                          .received = ToNanoseconds(stamps.received),
                          .ended = ToNanoseconds(stamps.ended)});
}

std::vector<Interval> IntervalsOf(const AttemptTimings& timings, absl::Duration ended_after) {
  if (!timings.intervals.empty()) return timings.intervals;
  std::vector<Interval> intervals;
  Placement placement(intervals);
  if (AddDurations(timings.durations, ended_after, placement)) {
    placement.Add("hand_in", placement.at(), ended_after, ended_after);
  }
  return intervals;
}

}  // namespace sheaf
