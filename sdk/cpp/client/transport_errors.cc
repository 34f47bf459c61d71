#include "sdk/cpp/client/transport_errors.h"

#include <fmt/format.h>

#include <utility>

#include "absl/time/time.h"
#include "base/retry_hint.h"

namespace sheaf {

absl::Status Unreachable(std::string_view server, std::string_view why) {
  return absl::UnavailableError(fmt::format("the server at {} cannot be reached: {}", server, why));
}

absl::Status TooMuch(std::string_view what) {
  return absl::ResourceExhaustedError(fmt::format(
      "too much for one call ({}); send less in one call: fewer tasks, smaller payloads, and what tasks share in "
      "the round's broadcast",
      what));
}

absl::Status TimeIsOver() { return absl::DeadlineExceededError("Deadline Exceeded"); }

absl::Status WorthANewToken(absl::Status refusal) { return WithRetryAfter(std::move(refusal), absl::Milliseconds(1)); }

}  // namespace sheaf
