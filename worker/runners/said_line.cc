#include "worker/runners/said_line.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/status_macros.h"

namespace sheaf {
namespace {

using Json = nlohmann::json;

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("it said a line {}", what));
}

// "" unless it is there; text.
absl::StatusOr<std::string> Text(const Json& line, const char* key) {
  if (!line.contains(key)) return "";
  if (!line[key].is_string()) return Malformed(fmt::format("whose \"{}\" is not a string", key));
  return line[key].get<std::string>();
}

absl::StatusOr<bool> Truth(const Json& line, const char* key) {
  if (!line.contains(key)) return false;
  if (!line[key].is_boolean()) return Malformed(fmt::format("whose \"{}\" is neither true nor false", key));
  return line[key].get<bool>();
}

absl::StatusOr<std::optional<ResultMetrics>> Metrics(const Json& line) {
  if (!line.contains("metrics")) return std::nullopt;
  ASSIGN_OR_RETURN(ResultMetrics metrics, ParseResultMetrics(line["metrics"].dump()));
  return metrics;
}

absl::StatusOr<SaidLine> ParseRows(const Json& rows) {
  WantedRows wanted;
  if (rows.is_string()) {
    wanted.file = rows.get<std::string>();
    return wanted;
  }
  if (!rows.is_object()) return Malformed("whose \"rows\" is neither an object nor the name of a file");
  for (const auto& [tensor, indices] : rows.items()) {
    if (!indices.is_array()) return Malformed("whose \"rows\" has something that is not a list of integers");
    std::vector<int64_t>& wanted_rows = wanted.rows[tensor];
    for (const Json& index : indices) {
      if (!index.is_number_integer()) return Malformed("whose \"rows\" has something that is not a list of integers");
      wanted_rows.push_back(index.get<int64_t>());
    }
  }
  return wanted;
}

absl::StatusOr<SaidLine> ParseUpdate(const Json& line) {
  SaidUpdate update;
  ASSIGN_OR_RETURN(update.file, Text(line, "update"));
  ASSIGN_OR_RETURN(const std::optional<ResultMetrics> metrics, Metrics(line));
  update.metrics = metrics.value_or(ResultMetrics());
  return update;
}

absl::StatusOr<SaidLine> ParseFailed(const Json& line) {
  SaidFailed failed;
  ASSIGN_OR_RETURN(failed.kind, Text(line, "failed"));
  ASSIGN_OR_RETURN(failed.message, Text(line, "message"));
  ASSIGN_OR_RETURN(failed.is_permanent, Truth(line, "is_permanent"));
  return failed;
}

}  // namespace

absl::StatusOr<SaidLine> ParseSaidLine(std::string_view line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Malformed("that is not a JSON object");
  if (json.contains("rows")) return ParseRows(json["rows"]);
  if (json.contains("broadcast")) return WantedBroadcast{};
  if (json.contains("progress")) {
    if (!json["progress"].is_number()) return Malformed("whose \"progress\" is not a number");
    return SaidProgress{json["progress"].get<double>()};
  }
  if (json.contains("update")) return ParseUpdate(json);
  if (json.contains("done")) {
    ASSIGN_OR_RETURN(std::optional<ResultMetrics> metrics, Metrics(json));
    return SaidDone{std::move(metrics)};
  }
  if (json.contains("declined")) {
    ASSIGN_OR_RETURN(std::string reason, Text(json, "declined"));
    return SaidDeclined{std::move(reason)};
  }
  if (json.contains("failed")) return ParseFailed(json);
  return Malformed("that has none of rows, broadcast, progress, update, done, declined and failed");
}

}  // namespace sheaf
