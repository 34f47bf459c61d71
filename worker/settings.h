// WorkerSettings: every knob of sheaf-worker, one row each. A setting `log_level` is the flag --log-level, the
// environment variable SHEAF_LOG_LEVEL and the key log_level of the configuration file; config.h says which wins.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/log.h"
#include "sdk/cpp/client/channel_options.h"
#include "worker/data_sources.h"
#include "worker/worker_loop.h"

namespace sheaf {

struct WorkerConfig {
  std::string server;
  ChannelSecurity security;
  // Its name is empty if nobody chose one.
  WorkerOptions options;
  // Name and location; checked.
  std::vector<std::pair<std::string, std::string>> data;
  // Computations it may run; empty means all.
  std::vector<std::string> allow;
  int64_t cache_bytes = 0;
  LogLevel log_level = LogLevel::kInfo;
};

struct WorkerSetting {
  std::string_view key;
  std::string_view default_text;
  // One sentence, without the default.
  std::string_view help;
  // May be given several times; in the environment separated by commas.
  bool is_list = false;
  // INVALID_ARGUMENT, saying what would be right, if `text` is not a value of this setting. Called for each item of a
  // list.
  absl::Status (*apply)(const std::string& text, WorkerConfig& config) = nullptr;

  // The flag alone, without a value, means "true".
  bool is_switch() const { return default_text == "false"; }
  // "--log-level" and "SHEAF_LOG_LEVEL".
  std::string flag() const;
  std::string variable() const;
};

std::span<const WorkerSetting> WorkerSettings();
// Null if there is none.
const WorkerSetting* FindWorkerSetting(std::string_view key);

}  // namespace sheaf
