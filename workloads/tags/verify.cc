#include <vector>

#include "base/status_macros.h"
#include "workloads/brute_force.h"
#include "workloads/tags/program.h"

namespace sheaf {

absl::StatusOr<Verification> TagsProgram::Verify(int, const RoundPlan& plan, const SafetensorsView& aggregate) {
  ASSIGN_OR_RETURN(const TagsConfig config, TagsConfig::Parse(plan.spec.computation().config()));
  std::vector<v1::Contribution> contributions;
  for (const v1::TaskSpec& task : plan.spec.listed().tasks()) {
    ASSIGN_OR_RETURN(const int client, ParseTagsSelector(task.data_selector(), dataset_));
    const std::vector<int64_t> rows = TagsRowsTouched(dataset_, client, config);
    const TagsUpdate update = TrainTagsClient(dataset_, client, config, rows, model_.Gather(rows), model_.bias);
    contributions.push_back(BuildTagsContribution(update, config));
  }
  return VerifyByBruteForce(plan.spec.aggregate(), contributions, aggregate);
}

}  // namespace sheaf
