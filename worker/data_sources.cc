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

absl::StatusOr<TagsDataset> LoadDebianIndex(const std::string& location) {
  if (location != kFromApt) return TagsDataset::Load(location);
  ASSIGN_OR_RETURN(std::string index, ReadPackageIndex());
  return TagsDataset::ParseAvailable(index);
}

}  // namespace

absl::Status DataSources::Configure(const std::string& name, const std::string& location) {
  const Row* row = FindRow(name);
  if (row == nullptr) {
    return absl::InvalidArgumentError(fmt::format("there is no data source \"{}\"; there is {}", name, KnownNames()));
  }
  if (location.empty()) {
    return absl::InvalidArgumentError(fmt::format("data source \"{}\" needs a location: {}", name, row->locations));
  }
  locations_[name] = location;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const TagsDataset>> DataSources::DebianIndex() {
  auto location = locations_.find(kDebianIndexData);
  if (location == locations_.end()) {
    return absl::FailedPreconditionError(
        fmt::format("this worker has no data \"{0}\": start it with --data {0}=apt", kDebianIndexData));
  }
  MutexLock lock(mutex_);
  if (debian_index_ == nullptr) {
    ASSIGN_OR_RETURN(TagsDataset dataset, LoadDebianIndex(location->second));
    debian_index_ = std::make_shared<const TagsDataset>(std::move(dataset));
  }
  return debian_index_;
}

}  // namespace sheaf
