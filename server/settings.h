// Settings: every knob of sheafd, one row each. A setting `data_dir` is the flag --data-dir, the environment variable
// SHEAF_DATA_DIR and the key data_dir of the configuration file; config.h says which wins.
//
//   for (const Setting& setting : Settings()) RETURN_IF_ERROR(setting.apply(std::string(setting.default_text),
//   config));
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "server/core/limits/limits.h"
#include "tls/certificates.h"

namespace sheaf {

struct Config {
  std::string listen;
  std::string data_dir;
  // "sqlite" or "memory".
  std::string store;
  // Empty: none.
  std::string port_file;
  LogLevel log_level = LogLevel::kInfo;
  bool insecure = false;
  CertificateFiles tls;
  // No other machine can reach `listen`.
  bool is_loopback = true;
  absl::Duration stop_grace;
  Limits limits;
};

struct Setting {
  std::string_view key;
  std::string_view default_text;
  // One sentence, without the default.
  std::string_view help;
  // True if the flag alone, without a value, means "true".
  bool is_switch = false;
  // INVALID_ARGUMENT, saying what would be right, if `text` is not a value of this setting.
  absl::Status (*apply)(const std::string& text, Config& config) = nullptr;

  // "--data-dir" and "SHEAF_DATA_DIR".
  std::string flag() const;
  std::string variable() const;
};

std::span<const Setting> Settings();

// Null if there is none.
const Setting* FindSetting(std::string_view key);

// The known key with the fewest typing errors from `key`.
std::string_view NearestKey(std::string_view key);

}  // namespace sheaf
