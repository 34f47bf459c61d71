// The envelope of serialised states: magic, version, the signature of what it belongs to, body, CRC-32 of all before
// it.
//
//   std::string bytes = SealState(kMagic, signature, body);
//   ASSIGN_OR_RETURN(std::string_view body, OpenState(kMagic, signature, bytes));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sheaf {

std::string SealState(uint32_t magic, std::string_view signature, std::string_view body);
// The body, a view into `state`. INVALID_ARGUMENT if it is no such state, of another version, or of another signature
// (says both); DATA_LOSS if the checksum or a length is wrong.
absl::StatusOr<std::string_view> OpenState(uint32_t magic, std::string_view signature, std::string_view state);

}  // namespace sheaf
