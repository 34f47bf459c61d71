// Numbers as people read them: durations, ages, byte sizes, counts and times.
//
//   HumanDuration(absl::Milliseconds(3810));   // "3.81s"
//   HumanBytes(5'100'000);                     // "5.1 MB"
//   HumanCount(56942);                         // "56,942"
//
// For tables only: JSON output carries the exact values.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"

namespace sheaf {

// Three significant digits below a minute ("250ms", "3.81s"), then two units ("1m12s", "2h05m", "3d04h").
std::string HumanDuration(absl::Duration duration);
// One unit, rounded down: "4s", "31m", "2h", "3d". For columns of ages.
std::string HumanAge(absl::Duration age);
// Of a moment in the past; "-" when it is unset (the epoch).
std::string AgeOf(const google::protobuf::Timestamp& time, absl::Time now);
// Clock form of a running time: "00:04", "1:02:03".
std::string ElapsedTime(absl::Duration elapsed);
// Decimal units: "0 B", "640 B", "58 kB", "5.1 MB".
std::string HumanBytes(int64_t bytes);
// With thousands separators.
std::string HumanCount(int64_t count);
// "2026-01-31T12:00:00.250Z".
std::string IsoTime(absl::Time time);

// How a command shows times: "31s ago" and "in 59m" of some now, or ISO 8601.
enum class TimeStyle { kRelative, kIso };

struct TimeText {
  TimeStyle style = TimeStyle::kRelative;
  absl::Time now;

  // "-" when unset (the epoch).
  std::string operator()(const google::protobuf::Timestamp& time) const;
};

}  // namespace sheaf
