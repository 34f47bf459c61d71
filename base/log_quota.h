// LogQuota: lines that strangers, or a thousand workers at once, can cause. Writes so many in a while; what is left out
// is counted, and told by the next line that is written.
//
//   LogQuota refusals;
//   refusals.Info(now, "{} was refused: {}", method, std::string(status.message()));
//   // ... "Sync was refused: the server does not know this token (and 7,215 more like it)"
//
// What is not printable is escaped, so that nobody can write lines of his own into the log. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/log.h"
#include "base/mutex.h"

namespace sheaf {

class LogQuota {
 public:
  explicit LogQuota(int64_t lines_max = 20, absl::Duration in = absl::Seconds(10)) : lines_max_(lines_max), in_(in) {}

  template <typename... Args>
  void Info(absl::Time now, fmt::format_string<Args...> format, Args&&... args) EXCLUDES(mutex_) {
    int64_t left_out = 0;
    if (!IsLogged(LogLevel::kInfo) || !Take(now, left_out)) return;
    LogLine(LogLevel::kInfo, Line(fmt::format(format, std::forward<Args>(args)...), left_out));
  }

  // Whether a line may be written now; if so, how many were left out since the last one.
  bool Take(absl::Time now, int64_t& left_out) EXCLUDES(mutex_);
  // `message` with what is not printable escaped, cut, and with the number left out.
  static std::string Line(const std::string& message, int64_t left_out);

 private:
  const int64_t lines_max_;
  const absl::Duration in_;
  Mutex mutex_;
  absl::Time begin_ GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t num_written_ GUARDED_BY(mutex_) = 0;
  int64_t num_left_out_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sheaf
