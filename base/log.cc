#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

namespace sheaf {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto created = spdlog::stderr_color_mt("sheaf");
    created->set_level(spdlog::level::warn);
    created->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    return created;
  }();
  return *logger;
}

// Of this thread.
thread_local const LogScope::Source* scope = nullptr;

}  // namespace

void ConfigureLog(std::string_view program, LogLevel level) {
  Logger().set_level(ToSpdlog(level));
  Logger().set_pattern(fmt::format("%Y-%m-%dT%H:%M:%S.%e {} %^%l%$ %v", program));
}

bool ParseLogLevel(std::string_view text, LogLevel* level) {
  static constexpr std::pair<std::string_view, LogLevel> kNames[] = {{"debug", LogLevel::kDebug},
                                                                     {"info", LogLevel::kInfo},
                                                                     {"warning", LogLevel::kWarning},
                                                                     {"error", LogLevel::kError},
                                                                     {"off", LogLevel::kOff}};
  for (const auto& [name, value] : kNames) {
    if (text == name) {
      *level = value;
      return true;
    }
  }
  return false;
}

bool IsLogged(LogLevel level) { return Logger().should_log(ToSpdlog(level)); }

void LogLine(LogLevel level, const std::string& message) {
  const std::string tag = scope == nullptr || !IsLogged(level) ? std::string() : scope->LogTag();
  Logger().log(ToSpdlog(level), tag.empty() ? message : fmt::format("{} {}", message, tag));
}

LogScope::LogScope(const Source* source) : outer_(std::exchange(scope, source)) {}

LogScope::~LogScope() { scope = outer_; }

}  // namespace sheaf
