// ComputationRow: one thing that a worker can run, with the data that it is given. A worker's main has a table of them.
//
//   // A function of a task and of local data:
//   const ComputationRow mean = ComputationOver("station_mean", stations, StationMean);
//   // A Computation (computation.h):
//   const ComputationRow tags = {.name = "tags", .data = index, .make = MakeTags};
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "sdk/cpp/computation/computation.h"
#include "sdk/cpp/computation/data_source.h"
#include "sdk/cpp/computation/inputless_task.h"
#include "sdk/cpp/computation/waiter.h"

namespace sheaf {

// What a computation may use of its worker. Outlives the computation.
struct ComputationParts {
  DataSources& data;
  Waiter& waiter;
};

struct ComputationRow {
  std::string name;
  // A worker that has not been told where it lies does not offer the computation.
  std::optional<AnyDataSource> data;
  std::function<std::unique_ptr<Computation>(const ComputationParts& parts)> make;
};

// The contribution of one task. It needs nothing of the broadcast. Called by several threads at once.
template <typename Data>
using TaskFunction =
    std::function<absl::StatusOr<v1::Contribution>(const v1::Lease& task, const Data& data, RunControl& control)>;

template <typename Data>
class DataComputation final : public Computation {
 public:
  DataComputation(std::string name, int version, LocalData<Data> data, TaskFunction<Data> run)
      : name_(std::move(name)), version_(version), data_(std::move(data)), run_(std::move(run)) {}

  std::string_view name() const override { return name_; }
  int version() const override { return version_; }
  absl::StatusOr<std::unique_ptr<PreparedTask>> Prepare(const v1::Lease& task, RunControl& control) const override {
    ASSIGN_OR_RETURN(std::shared_ptr<const Data> data, data_.Load());
    control.ReportProgress();
    return std::make_unique<InputlessTask>(
        [run = run_, task, data = std::move(data)](RunControl& during) { return run(task, *data, during); });
  }

 private:
  const std::string name_;
  const int version_;
  const LocalData<Data> data_;
  const TaskFunction<Data> run_;
};

template <typename Data>
ComputationRow ComputationOver(std::string name, const DataSource<Data>& source,
                               std::type_identity_t<TaskFunction<Data>> run, int version = 1) {
  return {.name = name, .data = source, .make = [=](const ComputationParts& parts) {
            return std::make_unique<DataComputation<Data>>(name, version, LocalData(source, parts.data), run);
          }};
}

}  // namespace sheaf
