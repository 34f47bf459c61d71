// Messages as JSON, and back, by protobuf's own rules (https://protobuf.dev/programming-guides/proto3/#json).
//
//   RETURN_IF_ERROR(CheckJson(text, limits));                          // Before it is made into anything.
//   ASSIGN_OR_RETURN(std::string bytes, JsonToBytes(type, text));
//   ASSIGN_OR_RETURN(std::string json, BytesToJson(type, bytes));
//
// Functions of values: thread-safe.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/core/limits/limits.h"

namespace sheaf {

// The text in quotes, with everything escaped that JSON, or a page that JSON stands in, would read as something else.
// What is no UTF-8 becomes "?".
std::string JsonString(std::string_view text);

// RESOURCE_EXHAUSTED if the text has more objects and listed strings than request_parts_max: each takes some hundred
// bytes once it is parsed, and three here. INVALID_ARGUMENT if it is deeper than any message of ours. OK if it is
// malformed: that is the parser's to say.
absl::Status CheckJson(std::string_view text, const Limits& limits);

// The message of this type, serialised. Names may be the proto's or JSON's; fields that the type has not are dropped,
// as those of a newer client are from serialised messages. INVALID_ARGUMENT if it is no such message.
absl::StatusOr<std::string> JsonToBytes(const google::protobuf::Descriptor& type, std::string_view text);
// INTERNAL if it is no such message.
absl::StatusOr<std::string> BytesToJson(const google::protobuf::Descriptor& type, const std::string& bytes);

}  // namespace sheaf
