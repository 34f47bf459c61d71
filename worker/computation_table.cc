#include "worker/computation_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace sheaf {
namespace {

bool HasData(const ComputationRow& row, const DataSources& data) {
  return !row.data.has_value() || data.IsConfigured(row.data->name);
}

}  // namespace

std::vector<AnyDataSource> ComputationTable::data_sources() const {
  std::vector<AnyDataSource> sources;
  for (const ComputationRow& row : rows_) {
    const auto is_same = [&](const AnyDataSource& source) { return row.data->name == source.name; };
    if (row.data.has_value() && std::none_of(sources.begin(), sources.end(), is_same)) sources.push_back(*row.data);
  }
  return sources;
}

std::vector<std::unique_ptr<Computation>> ComputationTable::Make(const ComputationParts& parts,
                                                                 const std::vector<std::string>& allowed) const {
  std::vector<std::unique_ptr<Computation>> computations;
  for (const ComputationRow& row : rows_) {
    const bool is_allowed = allowed.empty() || std::find(allowed.begin(), allowed.end(), row.name) != allowed.end();
    if (is_allowed && HasData(row, parts.data)) computations.push_back(row.make(parts));
  }
  return computations;
}

absl::Status ComputationTable::CheckName(const std::string& name) const {
  std::string known;
  for (const ComputationRow& row : rows_) {
    if (row.name == name) return absl::OkStatus();
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", row.name);
  }
  return absl::InvalidArgumentError(fmt::format("there is no computation \"{}\"; there are {}", name, known));
}

std::vector<std::string> ComputationTable::MissingDataHints(const DataSources& data) const {
  std::vector<std::string> hints;
  for (const ComputationRow& row : rows_) {
    if (!HasData(row, data)) {
      hints.push_back(fmt::format("not offering \"{}\": it needs --data {}=LOCATION", row.name, row.data->name));
    }
  }
  return hints;
}

}  // namespace sheaf
