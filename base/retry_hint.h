// A retry hint: a refusal that says when it is worth while to ask again. It travels inside the status: from whoever
// refuses, over the wire (a header), to whoever asks again.
//
//   const absl::Status refusal = WithRetryAfter(absl::ResourceExhaustedError("too much at once"), absl::Seconds(1));
//   const std::string value = RetryHeaderValue(*RetryAfter(refusal));   // "1000", sent as kRetryHeader.
//   const absl::Status heard = WithRetryHeader(absl::ResourceExhaustedError("too much at once"), value);
//
// Functions of values: thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/random.h"

namespace sheaf {

// `status` is not OK. Whole milliseconds are kept.
absl::Status WithRetryAfter(absl::Status status, absl::Duration pause);

// Nothing if the status has no hint.
std::optional<absl::Duration> RetryAfter(const absl::Status& status);

// The header of a transport that carries a hint, which is gRPC's own: "not before so many milliseconds have passed".
inline constexpr char kRetryHeader[] = "grpc-retry-pushback-ms";
std::string RetryHeaderValue(absl::Duration pause);
// `status` with the hint that the header brought; as it is, if it is OK or the value is no hint.
absl::Status WithRetryHeader(absl::Status status, std::string_view value);

// How long to wait after `status`: not less than it asks for, and up to as much again, or up to `bound` more if that is
// longer, so that those who were refused together do not come back together. Without a hint: up to `bound`.
absl::Duration PauseAfter(const absl::Status& status, absl::Duration bound, Random& random);

}  // namespace sheaf
