// DataSource: local data that a worker gives to its computations. A server names data, never a file. The worker's own
// command line says where the data is: --data NAME=LOCATION.
//
//   const DataSource<Stations> stations = {.name = "stations",
//                                          .example = "stations.txt",
//                                          .locations = "the path of a file with a line for each station",
//                                          .load = ReadStations};
//
//   DataSources sources({stations});                                  // All sources of a worker.
//   RETURN_IF_ERROR(sources.Configure("stations", "stations.txt"));   // Checked now, loaded when first needed.
//   ASSIGN_OR_RETURN(std::shared_ptr<const Stations> data, LocalData(stations, sources).Load());
//
// Configure first, then share: the rest is thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <typeindex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace sheaf {

template <typename Data>
struct DataSource {
  std::string name;
  // An example of a location, for help texts.
  std::string example;
  // What a location may be, for people.
  std::string locations;
  std::function<absl::StatusOr<Data>(const std::string& location)> load;
};

// A DataSource whose type is known to the computations that name it.
struct AnyDataSource {
  template <typename Data>
  AnyDataSource(const DataSource<Data>& source)
      : name(source.name),
        example(source.example),
        locations(source.locations),
        type(typeid(Data)),
        load([load = source.load](const std::string& location) -> absl::StatusOr<std::shared_ptr<const void>> {
          ASSIGN_OR_RETURN(Data data, load(location));
          return std::make_shared<const Data>(std::move(data));
        }) {}

  std::string name;
  std::string example;
  std::string locations;
  std::type_index type;
  std::function<absl::StatusOr<std::shared_ptr<const void>>(const std::string& location)> load;
};

class DataSources {
 public:
  // The sources have different names.
  explicit DataSources(std::vector<AnyDataSource> sources) : sources_(std::move(sources)) {}

  // INVALID_ARGUMENT if there is no such source (names those there are) or it cannot be at `location`.
  absl::Status Configure(const std::string& name, const std::string& location);
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  bool IsConfigured(std::string_view name) const { return locations_.contains(name); }

  // Loads the data once. A load that failed is tried again, so that its cause can be corrected without a restart.
  // FAILED_PRECONDITION naming the remedy if it was not configured; errors of the source's load.
  absl::StatusOr<std::shared_ptr<const void>> Load(const std::string& name, std::type_index type) EXCLUDES(mutex_);

 private:
  // Null if there is none.
  const AnyDataSource* Find(std::string_view name) const;

  std::vector<AnyDataSource> sources_;
  std::map<std::string, std::string, std::less<>> locations_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<const void>, std::less<>> loaded_ GUARDED_BY(mutex_);
};

// What a computation has of its data source. The sources outlive it.
template <typename Data>
class LocalData {
 public:
  LocalData(const DataSource<Data>& source, DataSources& sources) : name_(source.name), sources_(&sources) {}

  // As DataSources::Load.
  absl::StatusOr<std::shared_ptr<const Data>> Load() const {
    ASSIGN_OR_RETURN(const std::shared_ptr<const void> data, sources_->Load(name_, typeid(Data)));
    return std::static_pointer_cast<const Data>(data);
  }

 private:
  std::string name_;
  DataSources* sources_;
};

}  // namespace sheaf
