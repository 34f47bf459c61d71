// ComputationTable: what a worker can run. The rows are its main's.
//
//   const ComputationTable table = {NoopComputation(), SlowComputation()};
//   DataSources data(table.data_sources());
//   std::vector<std::unique_ptr<Computation>> computations = table.Make({data, waiter}, allowed);
//
// Immutable, hence thread-safe.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sdk/cpp/computation/computation_row.h"

namespace sheaf {

class ComputationTable {
 public:
  ComputationTable() = default;
  ComputationTable(std::initializer_list<ComputationRow> rows) : rows_(rows) {}

  // Those that its computations name, each once.
  std::vector<AnyDataSource> data_sources() const;
  // Every computation whose data is configured; with `allowed`, only those named there. `parts` outlive them.
  std::vector<std::unique_ptr<Computation>> Make(const ComputationParts& parts,
                                                 const std::vector<std::string>& allowed = {}) const;
  // INVALID_ARGUMENT, naming those there are, if there is none of this name.
  absl::Status CheckName(const std::string& name) const;
  // One line for people about each computation that is left out because its data is not configured.
  std::vector<std::string> MissingDataHints(const DataSources& data) const;

 private:
  std::vector<ComputationRow> rows_;
};

}  // namespace sheaf
