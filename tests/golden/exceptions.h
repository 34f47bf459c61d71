// Exceptions: where this version means to do otherwise than a released one did, a row each with its reason. Everything
// else that differs fails the test; so does a row that nothing needs any more.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace sheaf::golden {

// Whose part of the transcript it is: the server's answers, or the worker's calls.
enum class Side { kServer, kWorker };

struct Exception {
  // "v1/calls/every_method"
  std::string_view transcript;
  Side side;
  // As numbered in the transcript; 0 is what belongs to no call.
  size_t call;
  // The beginning of the finding: "leases[0].remaining", "status". Empty: whatever differs in this call. "call": it would
  // end otherwise and so change what follows, and is not played to the server at all.
  std::string_view field;
  // What changed, and why this is right.
  std::string_view reason;
};

std::span<const Exception> Exceptions();

}  // namespace sheaf::golden
