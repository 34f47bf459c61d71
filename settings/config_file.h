// The configuration file of a program: a flat table in TOML, whose keys are those of the settings.
//
//   data_dir = "/srv/sheaf"
//   insecure = true
//   label = ["zone=eu", "gpu=no"]
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "settings/setting.h"

namespace sheaf {

// INVALID_ARGUMENT, with the line, if the file cannot be read, is no TOML, or has a key that is no setting's or a value
// that is no text, whole number or truth (or of a list: an array of these).
absl::StatusOr<GivenValues> ReadConfigFile(const std::string& path, std::span<const Setting> settings);

}  // namespace sheaf
