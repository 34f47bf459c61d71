// FromJson and FromYaml: a message of the API from what a person wrote: protobuf's own mapping to JSON, but that
// durations may be written as people write them ("10m", "1h30m"), and that an error names the line, the field and what
// is expected there.
//
//   v1::RoundSpec spec;
//   RETURN_IF_ERROR(FromJson(text, "spec.json", &spec));
//   // spec.json:7: aggregate.outputs[1].dtype: "FLOT32" is none of FLOAT32, FLOAT64, ...; did you mean FLOAT32?
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sheaf {

// Fields are found by their lowerCamelCase or their snake_case name. INVALID_ARGUMENT, beginning with "ORIGIN:LINE: ",
// if the text cannot be read (json_document.h, yaml_document.h), names a field twice or one that there is not, or a
// value does not fit.
absl::Status FromJson(std::string_view text, std::string_view origin, google::protobuf::Message* message);
absl::Status FromYaml(std::string_view text, std::string_view origin, google::protobuf::Message* message);

}  // namespace sheaf
