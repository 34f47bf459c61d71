// Logging: one line per event, to stderr. Log where a decision is made, once.
//
//   LogInfo("round {} succeeded with {} contributions", id, n);
//
// Secrets (lease tokens, contribution values) never go in here. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace sheaf {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// `program` is printed in every line. Call once, from main.
void ConfigureLog(std::string_view program, LogLevel level);

// "debug", "info", "warning", "error" or "off"; false if `text` is none of them.
bool ParseLogLevel(std::string_view text, LogLevel* level);

// With what the thread's LogScope says of the work that it is about.
void LogLine(LogLevel level, const std::string& message);
bool IsLogged(LogLevel level);

// LogScope: while it lives, the lines that this thread writes end with what their source says of itself. It is asked
// only when a line is written, so that work of which there is nothing to say costs nothing. Inner ones hide outer ones.
//
//   const LogScope scope(&call);       // "... round r-2k5m FAILED: ... trace=4bf92f3577b34da6a3ce929d0e0e4736"
class LogScope {
 public:
  class Source {
   public:
    virtual ~Source() = default;
    // Empty: nothing. Printable.
    virtual std::string LogTag() const = 0;
  };
  // `source` outlives the scope; null: nothing is said.
  explicit LogScope(const Source* source);
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

 private:
  const Source* const outer_;
};

template <typename... Args>
void LogAt(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (IsLogged(level)) LogLine(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  LogAt(LogLevel::kDebug, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogAt(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  LogAt(LogLevel::kWarning, format, std::forward<Args>(args)...);
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  LogAt(LogLevel::kError, format, std::forward<Args>(args)...);
}

}  // namespace sheaf
