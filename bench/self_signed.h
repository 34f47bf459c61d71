// A certificate for 127.0.0.1 that it signs itself, hence also the authority that the other side trusts.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "bench/bench.h"

namespace sheaf::bench {

struct SelfSigned {
  // Files.
  std::string certificate;
  std::string key;
};

// In the directory of the set-up; UNAVAILABLE without `openssl`.
absl::StatusOr<SelfSigned> MakeSelfSigned(const Setup& setup);

}  // namespace sheaf::bench
