#include "base/retry_hint.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "absl/strings/cord.h"

namespace sheaf {
namespace {

constexpr char kPayload[] = "sheaf/retry-after-ms";
// A server that asks for more is not believed.
constexpr absl::Duration kLongest = absl::Minutes(5);

}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration pause) {
  status.SetPayload(kPayload, absl::Cord(std::to_string(std::max<int64_t>(absl::ToInt64Milliseconds(pause), 1))));
  return status;
}

std::optional<absl::Duration> RetryAfter(const absl::Status& status) {
  if (status.ok()) return std::nullopt;
  const auto payload = status.GetPayload(kPayload);
  if (!payload) return std::nullopt;
  const std::string text(*payload);
  int64_t millis = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), millis);
  if (error != std::errc() || end != text.data() + text.size() || millis < 0) return std::nullopt;
  return std::min(absl::Milliseconds(millis), kLongest);
}

absl::Duration PauseAfter(const absl::Status& status, absl::Duration bound, Random& random) {
  const absl::Duration least = RetryAfter(status).value_or(absl::ZeroDuration());
  return least + random.Between(absl::ZeroDuration(), std::max(bound, least));
}

}  // namespace sheaf
