// Limits that have neither a name nor a setting, because arithmetic or a format rests on them: one constant, and one
// row that says what it is about. docs/reference/limits.md lists the rows, and a test tries each at its value and
// beyond.
//
//   if (name.size() > kNameCharactersMax) return absl::InvalidArgumentError("the name is too long");
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/time/time.h"

namespace sheaf {

// Of populations, jobs, computations, workers and tokens.
inline constexpr size_t kNameCharactersMax = 128;
// Of a request_id or poll_id.
inline constexpr size_t kRequestIdCharactersMax = 64;
// Of a round, an attempt or a lease.
inline constexpr absl::Duration kRoundTimeMax = absl::Hours(24 * 365);
inline constexpr int kOverSelectionMax = 100;
// An attempt that may take so many times what others take has no limit.
inline constexpr int kStragglerFactorMax = 1000;
// Rounds that a task may be carried through: as many broadcasts stay readable.
inline constexpr int kStalenessMax = 100;
inline constexpr int kStalenessExponentMax = 10;
// The least urgent.
inline constexpr int kPriorityMax = 5;
inline constexpr size_t kTokenPopulationsMax = 64;
inline constexpr size_t kCertificateNameCharactersMax = 256;

struct FixedLimit {
  std::string_view what;
  uint64_t most = 0;
  // The code of a refusal, or the verdict REJECTED.
  std::string_view answer;
};

std::span<const FixedLimit> FixedLimits();

}  // namespace sheaf
