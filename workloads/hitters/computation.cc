#include "workloads/hitters/computation.h"

#include "base/status_macros.h"
#include "workloads/client_selector.h"
#include "workloads/hitters/dataset.h"
#include "workloads/hitters/program.h"
#include "workloads/package_source.h"

namespace sheaf {
namespace {

absl::StatusOr<v1::Contribution> CountNames(const v1::Lease& task, const HittersDataset& dataset, RunControl&) {
  RETURN_IF_ERROR(CheckHittersConfig(task.computation().config(), dataset));
  ASSIGN_OR_RETURN(const int client, ParseClientSelector(task.data_selector(), dataset.num_clients()));
  return BuildHittersContribution(dataset, client);
}

}  // namespace

ComputationRow HittersComputation() {
  return ComputationOver(kHittersComputation, PackageSource<HittersDataset>(kDependenciesData), CountNames,
                         kHittersComputationVersion);
}

}  // namespace sheaf
