// JSON: protobuf's own mapping of the API's messages, so that API and command line have one schema.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/statusor.h"

namespace sheaf {

enum class JsonStyle { kOneLine, kIndented };

// Fields in lowerCamelCase, 64-bit integers as strings, fields at their default included. Does not end in a newline.
absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message, JsonStyle style);

// INVALID_ARGUMENT if `json` is not JSON, or has a field that the message has not (names it), or a value that does not
// fit.
absl::Status FromJson(const std::string& json, google::protobuf::Message* message);

}  // namespace sheaf
