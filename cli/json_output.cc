#include "cli/json_output.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

namespace sheaf {

absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message, JsonStyle style) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.add_whitespace = style == JsonStyle::kIndented;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) {
    return absl::InternalError(
        fmt::format("{} has no JSON form: {}", message.GetTypeName(), std::string(status.message())));
  }
  while (!json.empty() && json.back() == '\n') json.pop_back();
  return json;
}

}  // namespace sheaf
