// How a failure is told: "error:" and one sentence, then "hint:" and the next thing to try.
//
//   return WithHint(absl::FailedPreconditionError("w.npz exists already"), "add --force to replace it");
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sheaf {

// `status` carrying what to try next. The first hint given stays.
absl::Status WithHint(absl::Status status, std::string_view hint);

// The hint it carries, else "".
std::string HintOf(const absl::Status& status);

// Somebody took the connection, and closed it before there was an answer: a server that ends, or a load balancer that
// sends callers to another one. The same call may go through on a new connection.
bool WasHungUpOn(const absl::Status& status);

// What the failure happened to, for hints.
struct ErrorContext {
  std::string server;
  // --tls-ca was given.
  bool uses_tls = false;
  // "round", "task", ...; empty if the command line itself is at fault.
  std::string noun;
  // As typed, for the way to its help: "round list".
  std::string command;
};

// Two lines on `err`; `colors` paints the labels.
void PrintError(std::ostream& err, const absl::Status& status, const ErrorContext& context, bool colors);

}  // namespace sheaf
