// RecoConfig: what a round says to the workers of `reco`.
//
//   ASSIGN_OR_RETURN(RecoConfig config, RecoConfig::Parse(lease.computation().config()));
//   RETURN_IF_ERROR(config.CheckFits(dataset));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "workloads/reco/dataset.h"

namespace sheaf {

// How a client computes; travels as Computation.config, in JSON:
// {"dimensions":16,"items":15460,"local_rate":2.0,"local_steps":5,"negatives":80,"seed":7}
struct RecoConfig {
  int dimensions = 16;
  // Steps that rebuild the client's vector, and how far each goes.
  int local_steps = 5;
  double local_rate = 2.0;
  // Items drawn to be scored low, for each half.
  int negatives = 80;
  // Of the round; together with the client's number it gives the halves and the negatives.
  uint64_t seed = 0;
  // Shape of the model. A worker whose dataset has another shape must not compute.
  int num_items = 0;

  int row_width() const { return dimensions + 1; }
  std::string Serialize() const;
  // INVALID_ARGUMENT naming the key that is missing, unknown or out of range.
  static absl::StatusOr<RecoConfig> Parse(std::string_view json);
  // FAILED_PRECONDITION if `dataset` has another shape than this round's model.
  absl::Status CheckFits(const RecoDataset& dataset) const;
};

}  // namespace sheaf
