// Names of states in the text of a statement; the compiler puts the numbers of records.h in their place.
//
//   ASSIGN_OR_RETURN(const int64_t changed, connection.Execute(R"(-- renew_lease
//       UPDATE tasks SET expire_time = ? WHERE task_key = ? AND state = $LEASED)"_sql, {ToSql(expire_time), key}));
//
// A name that is not in the table does not compile. Conditions are whole: `r.$IS_LIVE` is `r.state <= 3`, as the
// partial indexes of the schema have it.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "storage/records.h"

namespace sheaf {

struct SqlName {
  std::string_view name;
  std::string_view text;
};

inline constexpr SqlName kSqlNames[] = {
    // Of a round.
    {"$COLLECTING", "2"},
    {"$HAS_DEADLINE", "state <= 2"},  // ANNOUNCED, COLLECTING
    {"$HANDS_OUT_TASKS", "state <= 2"},
    {"$IS_LIVE", "state <= 3"},      // and SEALING
    {"$HAS_STOPPED", "state >= 3"},  // SEALING, and what has ended
    {"$HAS_ENDED", "state >= 4"},    // SUCCEEDED, FAILED, CANCELLED
    // Of a task.
    {"$QUEUED", "1"},
    {"$LEASED", "2"},
    {"$TASK_SUCCEEDED", "3"},
    {"$TASK_FAILED", "4"},
    {"$TASK_CANCELLED", "5"},
    {"$BURIED", "6"},
    {"$IS_OPEN", "state <= 2"},  // QUEUED, LEASED
    // How an attempt ended.
    {"$ATTEMPT_SUCCEEDED", "1"},
    {"$ATTEMPT_CANCELLED", "5"},
};

// What the numbers above rest on. They are in every database: a new state gets the next one.
static_assert(static_cast<int>(RoundState::kAnnounced) == 1 && static_cast<int>(RoundState::kCollecting) == 2 &&
              static_cast<int>(RoundState::kSealing) == 3 && static_cast<int>(RoundState::kSucceeded) == 4 &&
              static_cast<int>(RoundState::kFailed) == 5 && static_cast<int>(RoundState::kCancelled) == 6);
static_assert(static_cast<int>(TaskState::kQueued) == 1 && static_cast<int>(TaskState::kLeased) == 2 &&
              static_cast<int>(TaskState::kSucceeded) == 3 && static_cast<int>(TaskState::kFailed) == 4 &&
              static_cast<int>(TaskState::kCancelled) == 5 && static_cast<int>(TaskState::kBuried) == 6);
static_assert(static_cast<int>(AttemptOutcome::kSucceeded) == 1 && static_cast<int>(AttemptOutcome::kFailed) == 2 &&
              static_cast<int>(AttemptOutcome::kLost) == 3 && static_cast<int>(AttemptOutcome::kReleased) == 4 &&
              static_cast<int>(AttemptOutcome::kCancelled) == 5);

// A string literal as a template's argument.
template <size_t kSize>
struct SqlLiteral {
  char text[kSize];
  consteval SqlLiteral(const char (&literal)[kSize]) {  // NOLINT(google-explicit-constructor)
    for (size_t i = 0; i < kSize; ++i) text[i] = literal[i];
  }
  constexpr std::string_view view() const { return {text, kSize - 1}; }
};

constexpr std::string_view NumberOf(std::string_view name) {
  for (const SqlName& row : kSqlNames) {
    if (row.name == name) return row.text;
  }
  throw "no such name in kSqlNames";
}

// Calls `put` with each character of `from`, with the numbers in place of the names.
template <typename Put>
constexpr void PutNumbers(std::string_view from, Put put) {
  constexpr auto is_of_name = [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; };
  for (size_t i = 0; i < from.size();) {
    size_t end = i + 1;
    if (from[i] == '$') {
      while (end < from.size() && is_of_name(from[end])) ++end;
    }
    const std::string_view text = from.substr(i, end - i);
    // `$1` is the place of a value.
    for (const char c : text.size() > 1 ? NumberOf(text) : text) put(c);
    i = end;
  }
}

template <SqlLiteral kFrom>
consteval auto WithNumbers() {
  constexpr size_t kLength = [] {
    size_t length = 0;
    PutNumbers(kFrom.view(), [&](char) { ++length; });
    return length;
  }();
  std::array<char, kLength> text = {};
  PutNumbers(kFrom.view(), [&, i = size_t{0}](char c) mutable { text[i++] = c; });
  return text;
}
template <SqlLiteral kFrom>
inline constexpr auto kWithNumbers = WithNumbers<kFrom>();

template <SqlLiteral kFrom>
constexpr std::string_view operator""_sql() {
  return {kWithNumbers<kFrom>.data(), kWithNumbers<kFrom>.size()};
}

// The state of task `t` of round `r`: of a round that has stopped, rows that say QUEUED or LEASED count as CANCELLED.
inline constexpr std::string_view kTaskState =
    "CASE WHEN r.$HAS_STOPPED AND t.$IS_OPEN THEN $TASK_CANCELLED ELSE t.state END"_sql;

}  // namespace sheaf
