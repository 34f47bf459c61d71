// SaidLine: a line of JSON that an executable said about its task.
//
//   ASSIGN_OR_RETURN(const SaidLine said, ParseSaidLine(R"({"progress": 12})"));
//   if (const auto* progress = std::get_if<SaidProgress>(&said)) fmt::print("{}\n", progress->value);
//
// docs/reference/runner.md lists them. A function of values: thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/runners/result_contribution.h"

namespace sheaf {

// Rows of the broadcast are wanted: by tensor, or a file says which.
struct WantedRows {
  std::map<std::string, std::vector<int64_t>> rows;
  std::string file;
};
// The whole broadcast is.
struct WantedBroadcast {};
struct SaidProgress {
  double value = 0;
};
// The result of one client is in a file.
struct SaidUpdate {
  std::string file;
  ResultMetrics metrics;
};
struct SaidDone {
  // Unset: a file may have them.
  std::optional<ResultMetrics> metrics;
};
struct SaidDeclined {
  std::string reason;
};
struct SaidFailed {
  // What kind of error, and where: nothing of the data.
  std::string kind;
  // May quote data.
  std::string message;
  bool is_permanent = false;
};
using SaidLine =
    std::variant<WantedRows, WantedBroadcast, SaidProgress, SaidUpdate, SaidDone, SaidDeclined, SaidFailed>;

// INVALID_ARGUMENT, in words about lines in general, if it is none of them.
absl::StatusOr<SaidLine> ParseSaidLine(std::string_view line);

}  // namespace sheaf
