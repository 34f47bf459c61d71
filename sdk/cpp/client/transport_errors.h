// What a client says of calls that came to nothing by themselves, in the same words over every transport.
//
//   return Unreachable("https://sheaf.example.org:443", "Connection refused");
//
// Functions of values.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace sheaf {

// UNAVAILABLE, naming the server by its address.
absl::Status Unreachable(std::string_view server, std::string_view why);

// RESOURCE_EXHAUSTED, with what to do about a message that is too large for one call.
absl::Status TooMuch(std::string_view what);

// The refusal of a call whose token file holds another token by now, with a hint to repeat it at once
// (base/retry_hint.h).
absl::Status WorthANewToken(absl::Status refusal);

// DEADLINE_EXCEEDED, in gRPC's words: the call's own time is over.
absl::Status TimeIsOver();

}  // namespace sheaf
