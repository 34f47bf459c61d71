// ReadJson: a Document from JSON (RFC 8259).
//
//   ASSIGN_OR_RETURN(const Document document, ReadJson(text, "spec.json"));
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "cli/input/document.h"

namespace sheaf {

// INVALID_ARGUMENT, beginning with "ORIGIN:LINE: ", if it is not JSON, nests too deeply or names a member twice.
absl::StatusOr<Document> ReadJson(std::string_view text, std::string_view origin);

}  // namespace sheaf
