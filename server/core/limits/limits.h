// Limits: everything has one, with a name and a reason. Each is one row of limits.def, and nowhere else: the field
// here, the setting of sheafd, what `sheaf server info` shows, the end of a refusal and docs/reference/limits.md come
// of it.
//
//   const Limits limits{.tasks_per_round_max = 1000};   // The others keep their defaults.
//   if (num_tasks > limits.tasks_per_round_max) {
//     // RESOURCE_EXHAUSTED: the round has 1001 tasks, over tasks_per_round_max = 1000; split it
//     return limits.Refuse(&Limits::tasks_per_round_max, fmt::format("the round has {} tasks, over", num_tasks));
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sheaf {

struct Limits;
using LimitField = std::variant<int64_t Limits::*, absl::Duration Limits::*>;

struct Limits {
  using Count = int64_t;
  using Bytes = int64_t;
  using Percent = int64_t;
  using Time = absl::Duration;
#define LIMIT(kind, name, value, ...) kind name = value;
#include "server/core/limits/limits.def"

  // Name to value (durations in milliseconds).
  std::map<std::string, int64_t> ByName() const;

  // "tasks_per_round_max = 100000". Durations have their milliseconds, and a name that says so.
  std::string Named(LimitField field) const;
  // "<found> tasks_per_round_max = 100000; <remedy>": `found` says what came, and stops before the limit's name. The
  // remedy is the row's, unless the caller knows a better one.
  std::string Sentence(LimitField field, std::string_view found, std::string_view remedy = "") const;
  // The same where one population or identity has what it may have of the limit: "<found> population_percent_max = 90 %
  // of what others leave of live_rounds_max = 10000; <remedy>".
  std::string SentenceOfShare(LimitField field, std::string_view found) const;
  // Those sentences with the code of the row, and with the time to come back if it has one.
  absl::Status Refuse(LimitField field, std::string_view found, std::string_view remedy = "") const;
  absl::Status RefuseShare(LimitField field, std::string_view found) const;
};

enum class LimitKind { kCount, kBytes, kPercent, kTime };

// What whoever is beyond a limit hears.
struct LimitAnswer {
  // OK if nobody is refused, or not by the core: then the limit has no sentence here either.
  absl::StatusCode code = absl::StatusCode::kOk;
  // Zero if to come again is of no use.
  absl::Duration come_back_after;
};

struct LimitRow {
  LimitKind kind = LimitKind::kCount;
  // "lease_default"
  std::string_view name;
  LimitField field;
  bool is_setting = false;
  LimitAnswer answer;
  std::string_view what;
  std::string_view beyond;
  std::string_view remedy;

  // "lease_default_ms", where there is no unit beside it.
  std::string public_name() const;
};

// In the order of limits.def.
std::span<const LimitRow> LimitRows();

// Which of these rows refused, of a status that a limit made; nothing of any other.
std::optional<size_t> RefusingLimit(const absl::Status& status);

}  // namespace sheaf
