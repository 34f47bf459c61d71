#include "worker/processes/process_spec.h"

#include <nlohmann/json.hpp>

namespace sheaf {
namespace {

// Infinite is -1.
int64_t ToNanoseconds(absl::Duration duration) {
  return duration == absl::InfiniteDuration() ? -1 : absl::ToInt64Nanoseconds(duration);
}
absl::Duration FromNanoseconds(int64_t nanoseconds) {
  return nanoseconds < 0 ? absl::InfiniteDuration() : absl::Nanoseconds(nanoseconds);
}

}  // namespace

std::string_view ProcessLimitName(ProcessLimit limit) {
  switch (limit) {
    case ProcessLimit::kCpu:
      return "cpu";
    case ProcessLimit::kTime:
      return "time";
    case ProcessLimit::kMemory:
      return "memory";
    case ProcessLimit::kOutput:
      return "output";
    case ProcessLimit::kNone:
      break;
  }
  return "none";
}

std::string WriteProcessSpec(const ProcessSpec& spec) {
  // Bytes, not text: arguments and paths need not be UTF-8.
  const std::vector<uint8_t> bytes = nlohmann::json::to_msgpack({{"arguments", spec.arguments},
                                                                 {"environment", spec.environment},
                                                                 {"directory", spec.directory},
                                                                 {"cpu", ToNanoseconds(spec.limits.cpu)},
                                                                 {"time", ToNanoseconds(spec.limits.time)},
                                                                 {"memory", spec.limits.memory_bytes},
                                                                 {"output", spec.limits.output_bytes},
                                                                 {"watched", spec.is_watched_at_once}});
  return {bytes.begin(), bytes.end()};
}

ProcessSpec ReadProcessSpec(std::string_view bytes) {
  const nlohmann::json json = nlohmann::json::from_msgpack(bytes.begin(), bytes.end());
  return {.arguments = json["arguments"],
          .environment = json["environment"],
          .directory = json["directory"],
          .limits = {.cpu = FromNanoseconds(json["cpu"]),
                     .time = FromNanoseconds(json["time"]),
                     .memory_bytes = json["memory"],
                     .output_bytes = json["output"]},
          .is_watched_at_once = json["watched"]};
}

}  // namespace sheaf
