#include "base/retry_hint.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "absl/strings/cord.h"

namespace sheaf {
namespace {

constexpr char kPayload[] = "sheaf/retry-after-ms";
// A server that asks for more is not believed.
constexpr absl::Duration kLongest = absl::Minutes(5);

std::optional<int64_t> ParseMillis(std::string_view text) {
  int64_t millis = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), millis);
  if (error != std::errc() || end != text.data() + text.size() || millis < 0) return std::nullopt;
  return millis;
}

}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration pause) {
  status.SetPayload(kPayload, absl::Cord(RetryHeaderValue(std::max(pause, absl::Milliseconds(1)))));
  return status;
}

std::optional<absl::Duration> RetryAfter(const absl::Status& status) {
  if (status.ok()) return std::nullopt;
  const auto payload = status.GetPayload(kPayload);
  if (!payload) return std::nullopt;
  const std::optional<int64_t> millis = ParseMillis(std::string(*payload));
  if (!millis) return std::nullopt;
  return std::min(absl::Milliseconds(*millis), kLongest);
}

std::string RetryHeaderValue(absl::Duration pause) { return std::to_string(absl::ToInt64Milliseconds(pause)); }

absl::Status WithRetryHeader(absl::Status status, std::string_view value) {
  const std::optional<int64_t> millis = ParseMillis(value);
  if (status.ok() || !millis) return status;
  return WithRetryAfter(std::move(status), absl::Milliseconds(*millis));
}

absl::Duration PauseAfter(const absl::Status& status, absl::Duration bound, Random& random) {
  const absl::Duration least = RetryAfter(status).value_or(absl::ZeroDuration());
  return least + random.Between(absl::ZeroDuration(), std::max(bound, least));
}

}  // namespace sheaf
