#include "settings/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

namespace sheaf {
namespace {

// Units of bytes, as powers of two; the smallest first.
constexpr std::array<std::pair<std::string_view, int>, 6> kUnits = {
    {{"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};

std::string Described(NumberBounds bounds) {
  if (bounds.max == std::numeric_limits<int64_t>::max()) return fmt::format("greater than {}", bounds.min - 1);
  return fmt::format("from {} to {}", bounds.min, bounds.max);
}

}  // namespace

absl::StatusOr<int64_t> ParseNumber(const std::string& text, NumberBounds bounds) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < bounds.min || number > bounds.max) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not a whole number {}", text, Described(bounds)));
  }
  return number;
}

absl::StatusOr<int64_t> ParseBytes(const std::string& text, std::string_view example) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const auto* found = std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& row) { return row.first == unit; });
  if (error != std::errc() || found == kUnits.end() || number <= 0 ||
      number > (std::numeric_limits<int64_t>::max() >> found->second)) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not a size such as \"65536\" or \"{}\"", text, example));
  }
  return number << found->second;
}

std::string FormatBytes(int64_t bytes) {
  const auto fits = [bytes](const auto& row) { return bytes != 0 && bytes % (int64_t{1} << row.second) == 0; };
  const auto unit = std::find_if(kUnits.rbegin(), kUnits.rend() - 2, fits);
  return unit == kUnits.rend() - 2 ? fmt::format("{}", bytes) : fmt::format("{}{}", bytes >> unit->second, unit->first);
}

absl::StatusOr<absl::Duration> ParseDuration(const std::string& text, DurationBounds bounds, std::string_view example) {
  const bool is_bare = !text.empty() && std::isdigit(static_cast<unsigned char>(text.back()));
  absl::Duration duration;
  if (!absl::ParseDuration(is_bare ? text + "s" : text, &duration) || duration < absl::ZeroDuration() ||
      (duration == absl::ZeroDuration() && !bounds.may_be_zero) ||
      (duration == absl::InfiniteDuration() && !bounds.may_be_infinite)) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not a duration such as \"{}\" or \"5m\"", text, example));
  }
  return duration;
}

absl::StatusOr<bool> ParseTruth(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  return absl::InvalidArgumentError(fmt::format("\"{}\" is neither true nor false", text));
}

}  // namespace sheaf
