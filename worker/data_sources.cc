#include "worker/data_sources.h"

#include <fmt/format.h>

#include <utility>

#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr char kFromApt[] = "apt";

// THE table of data sources.
struct Row {
  const char* name;
  const char* locations;
};
constexpr Row kRows[] = {
    {kDebianIndexData, "\"apt\" for this machine's package index, or the path of a snapshot"},
    {kDependenciesData, "\"apt\" for this machine's package index, or the path of a snapshot"},
    {kNeedsData, "\"apt\" for this machine's package index, or the path of a snapshot"},
};

const Row* FindRow(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::string KnownNames() {
  std::string names;
  for (const Row& row : kRows) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", row.name);
  return names;
}

template <typename Dataset>
absl::StatusOr<Dataset> LoadFrom(const std::string& location) {
  if (location != kFromApt) return Dataset::Load(location);
  ASSIGN_OR_RETURN(std::string index, ReadPackageIndex());
  return Dataset::ParseAvailable(index);
}

}  // namespace

absl::Status DataSources::Configure(const std::string& name, const std::string& location) {
  const Row* row = FindRow(name);
  if (row == nullptr) {
    return absl::InvalidArgumentError(fmt::format("there is no data source \"{}\"; there are {}", name, KnownNames()));
  }
  if (location.empty()) {
    return absl::InvalidArgumentError(fmt::format("data source \"{}\" needs a location: {}", name, row->locations));
  }
  locations_[name] = location;
  return absl::OkStatus();
}

template <typename Dataset>
absl::StatusOr<std::shared_ptr<const Dataset>> DataSources::LoadOnce(const char* name,
                                                                     std::shared_ptr<const Dataset>& kept) {
  auto location = locations_.find(name);
  if (location == locations_.end()) {
    return absl::FailedPreconditionError(
        fmt::format("this worker has no data \"{0}\": start it with --data {0}=apt", name));
  }
  if (kept == nullptr) {
    ASSIGN_OR_RETURN(Dataset dataset, LoadFrom<Dataset>(location->second));
    kept = std::make_shared<const Dataset>(std::move(dataset));
  }
  return kept;
}

absl::StatusOr<std::shared_ptr<const TagsDataset>> DataSources::DebianIndex() {
  MutexLock lock(mutex_);
  return LoadOnce(kDebianIndexData, debian_index_);
}

absl::StatusOr<std::shared_ptr<const HittersDataset>> DataSources::Dependencies() {
  MutexLock lock(mutex_);
  return LoadOnce(kDependenciesData, dependencies_);
}

absl::StatusOr<std::shared_ptr<const RecoDataset>> DataSources::Needs() {
  MutexLock lock(mutex_);
  return LoadOnce(kNeedsData, needs_);
}

}  // namespace sheaf
