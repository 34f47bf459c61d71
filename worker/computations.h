// THE table of built-in computations.
//
//   std::vector<std::unique_ptr<Computation>> computations = BuiltinComputations({data, waiter}, allowed);
//
//   tags      trains the tags model on one maintainer's packages; needs the data "debian-index"
//   reco      rebuilds a package's vector and returns gradients of item rows; needs "debian-needs"
//   hitters   counts the names that one maintainer's packages depend on; needs the data "debian-dependencies"
//   noop      returns zeros for dense outputs and nothing for sparse ones
//   one_hot   returns 1 at the index that the payload says in decimal, and in sparse outputs at index 0 as well: the
//             aggregate shows which contributions were counted, and how often
//   slow      computes for as long as the payload says ("1.5s"), reporting progress, then returns what noop does
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/computation.h"
#include "worker/data_sources.h"
#include "worker/waiter.h"

namespace sheaf {

// Outlives the computations.
struct ComputationParts {
  DataSources& data;
  Waiter& waiter;
};

// Every built-in whose local data is configured; with `allowed`, only those named there.
std::vector<std::unique_ptr<Computation>> BuiltinComputations(const ComputationParts& parts,
                                                              const std::vector<std::string>& allowed = {});

// INVALID_ARGUMENT, naming those there are, if one of `names` is not a built-in.
absl::Status CheckComputationNames(const std::vector<std::string>& names);

// One line for people about each built-in that is left out because its data is not configured.
std::vector<std::string> MissingDataHints(const DataSources& data);

}  // namespace sheaf
