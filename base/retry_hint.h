// A retry hint: a refusal that says when it is worth while to ask again. It travels inside the status: from whoever
// refuses, over the wire (gRPC's own metadata "grpc-retry-pushback-ms"), to whoever asks again.
//
//   return WithRetryAfter(absl::ResourceExhaustedError("..."), absl::Seconds(1));
//   if (const std::optional<absl::Duration> pause = RetryAfter(status)) ...
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/random.h"

namespace sheaf {

// `status` is not OK. Whole milliseconds are kept.
absl::Status WithRetryAfter(absl::Status status, absl::Duration pause);

// Nothing if the status has no hint.
std::optional<absl::Duration> RetryAfter(const absl::Status& status);

// How long to wait after `status`: not less than it asks for, and up to as much again, or up to `bound` more if that is
// longer, so that those who were refused together do not come back together. Without a hint: up to `bound`.
absl::Duration PauseAfter(const absl::Status& status, absl::Duration bound, Random& random);

}  // namespace sheaf
