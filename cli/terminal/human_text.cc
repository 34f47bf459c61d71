#include "cli/terminal/human_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "proto/time.h"

namespace sheaf {
namespace {

// Three significant digits, without a fraction that says nothing.
std::string ThreeDigits(double value) {
  const double magnitude = std::abs(value);
  const int decimals = magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (decimals > 0) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

bool IsUnset(const google::protobuf::Timestamp& time) { return time.seconds() == 0 && time.nanos() == 0; }

}  // namespace

std::string HumanDuration(absl::Duration duration) {
  if (duration < absl::ZeroDuration()) return "-" + HumanDuration(-duration);
  if (duration == absl::InfiniteDuration()) return "forever";
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds == 0) return "0s";
  if (seconds < 0.9995e-3) return ThreeDigits(seconds * 1e6) + "us";
  if (seconds < 0.9995) return ThreeDigits(seconds * 1e3) + "ms";
  if (seconds < 59.95) return ThreeDigits(seconds) + "s";
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole / 3600 % 24);
}

std::string HumanAge(absl::Duration age) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(age));
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m", seconds / 60);
  if (seconds < 86400) return fmt::format("{}h", seconds / 3600);
  return fmt::format("{}d", seconds / 86400);
}

std::string AgeOf(const google::protobuf::Timestamp& time, absl::Time now) {
  return IsUnset(time) ? "-" : HumanAge(now - FromProto(time));
}

std::string ElapsedTime(absl::Duration elapsed) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(elapsed));
  if (seconds < 3600) return fmt::format("{:02}:{:02}", seconds / 60, seconds % 60);
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string HumanBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* larger : kUnits) {
    if (value < 999.5) break;
    value /= 1000;
    unit = larger;
  }
  return fmt::format("{:.{}f} {}", value, value < 9.95 ? 1 : 0, unit);
}

std::string HumanCount(int64_t count) {
  std::string digits = fmt::format("{}", count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t end = digits.size(); end > first + 3; end -= 3) digits.insert(end - 3, ",");
  return digits;
}

std::string IsoTime(absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone()); }

std::string TimeText::operator()(const google::protobuf::Timestamp& time) const {
  if (IsUnset(time)) return "-";
  const absl::Time at = FromProto(time);
  if (style == TimeStyle::kIso) return IsoTime(at);
  return at <= now ? HumanAge(now - at) + " ago" : "in " + HumanAge(at - now);
}

}  // namespace sheaf
