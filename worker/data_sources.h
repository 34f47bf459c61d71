// DataSources: the local data of a worker, by name. A server names data, never a file: what a name stands for is said
// on the worker's own command line.
//
//   DataSources data;
//   RETURN_IF_ERROR(data.Configure("debian-index", "apt"));          // Checked now, loaded when first needed.
//   ASSIGN_OR_RETURN(std::shared_ptr<const TagsDataset> index, data.DebianIndex());
//
// To add one: a row in the table of data_sources.cc, and a getter. Configure first, then share: getters are
// thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "workloads/hitters/dataset.h"
#include "workloads/reco/dataset.h"
#include "workloads/tags/dataset.h"

namespace sheaf {

inline constexpr char kDebianIndexData[] = "debian-index";
inline constexpr char kDependenciesData[] = "debian-dependencies";
inline constexpr char kNeedsData[] = "debian-needs";

class DataSources {
 public:
  // INVALID_ARGUMENT if there is no such source (names those there are) or it cannot be at `location`.
  absl::Status Configure(const std::string& name, const std::string& location);
  bool IsConfigured(std::string_view name) const { return locations_.contains(name); }

  // Loads it once; a failure is not kept, so that its remedy helps without a restart.
  // FAILED_PRECONDITION naming the remedy if it was not configured or holds nothing; errors of the dataset's Load.
  absl::StatusOr<std::shared_ptr<const TagsDataset>> DebianIndex() EXCLUDES(mutex_);
  absl::StatusOr<std::shared_ptr<const HittersDataset>> Dependencies() EXCLUDES(mutex_);
  absl::StatusOr<std::shared_ptr<const RecoDataset>> Needs() EXCLUDES(mutex_);

 private:
  // What `kept` points to, or the dataset at the location of `name`, which is then kept.
  template <typename Dataset>
  absl::StatusOr<std::shared_ptr<const Dataset>> LoadOnce(const char* name, std::shared_ptr<const Dataset>& kept)
      REQUIRES(mutex_);

  std::map<std::string, std::string, std::less<>> locations_;
  Mutex mutex_;
  std::shared_ptr<const TagsDataset> debian_index_ GUARDED_BY(mutex_);
  std::shared_ptr<const HittersDataset> dependencies_ GUARDED_BY(mutex_);
  std::shared_ptr<const RecoDataset> needs_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
