// PackageSource: the data source of a dataset that is made from the package index.
//
//   const DataSource<TagsDataset> source = PackageSource<TagsDataset>("debian-index");
#pragma once

#include <string>
#include <utility>

#include "sdk/cpp/computation/data_source.h"
#include "workloads/package_index.h"

namespace sheaf {

template <typename Dataset>
DataSource<Dataset> PackageSource(std::string name) {
  return {.name = std::move(name),
          .example = "apt",
          .locations = "\"apt\" for this machine's package index, or the path of a snapshot",
          .load = [](const std::string& location) -> absl::StatusOr<Dataset> {
            if (location != "apt") return Dataset::Load(location);
            ASSIGN_OR_RETURN(const std::string index, ReadPackageIndex());
            return Dataset::ParseAvailable(index);
          }};
}

}  // namespace sheaf
