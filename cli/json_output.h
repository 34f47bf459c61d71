// JSON: protobuf's own mapping of the API's messages, so that API and command line have one schema. What is read:
// input/message_input.h.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/statusor.h"

namespace sheaf {

enum class JsonStyle { kOneLine, kIndented };

// Fields in lowerCamelCase, 64-bit integers as strings, fields at their default included. Does not end in a newline.
absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message, JsonStyle style);

}  // namespace sheaf
