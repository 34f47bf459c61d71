#include "sdk/cpp/computation/data_source.h"

#include <fmt/format.h>

#include "base/check.h"

namespace sheaf {

const AnyDataSource* DataSources::Find(std::string_view name) const {
  for (const AnyDataSource& source : sources_) {
    if (source.name == name) return &source;
  }
  return nullptr;
}

absl::Status DataSources::Configure(const std::string& name, const std::string& location) {
  const AnyDataSource* source = Find(name);
  if (source == nullptr) {
    std::string known;
    for (const AnyDataSource& each : sources_) known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", each.name);
    return absl::InvalidArgumentError(
        fmt::format("there is no data source \"{}\"; there {}", name, known.empty() ? "is none" : "are " + known));
  }
  if (location.empty()) {
    return absl::InvalidArgumentError(fmt::format("data source \"{}\" needs a location: {}", name, source->locations));
  }
  locations_[name] = location;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const void>> DataSources::Load(const std::string& name, std::type_index type) {
  const AnyDataSource* source = Find(name);
  SHEAF_CHECK(source != nullptr && source->type == type, "no data source {} of this type", name);
  const auto location = locations_.find(name);
  if (location == locations_.end()) {
    return absl::FailedPreconditionError(
        fmt::format("this worker has no data \"{0}\": start it with --data {0}={1}", name, source->example));
  }
  MutexLock lock(mutex_);
  std::shared_ptr<const void>& data = loaded_[name];
  if (data == nullptr) {
    ASSIGN_OR_RETURN(data, source->load(location->second));
  }
  return data;
}

}  // namespace sheaf
