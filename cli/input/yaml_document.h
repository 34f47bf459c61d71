// ReadYaml: a Document from YAML 1.2 (https://yaml.org/spec/1.2.2/), with the scalars of its core schema: null, true
// and false, whole numbers, floats, and texts; what is quoted is a text.
//
//   ASSIGN_OR_RETURN(const Document document, ReadYaml(text, "spec.yaml"));
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "cli/input/document.h"

namespace sheaf {

// INVALID_ARGUMENT, beginning with "ORIGIN:LINE: ", if it is not one YAML document, nests too deeply, names a member
// twice, or has an alias (which could make a short text a large one) or a tag.
absl::StatusOr<Document> ReadYaml(std::string_view text, std::string_view origin);

}  // namespace sheaf
