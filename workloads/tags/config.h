// TagsConfig: what a round says to the workers of `tags`.
//
//   ASSIGN_OR_RETURN(TagsConfig config, TagsConfig::Parse(lease.computation().config()));
//   RETURN_IF_ERROR(config.CheckFits(dataset));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "workloads/tags/dataset.h"

namespace sheaf {

// How a client trains; travels as Computation.config, in JSON:
// {"batch":10,"examples_max":512,"features":56942,"labels":500,"learning_rate":1.0,"seed":7}
struct TagsConfig {
  double learning_rate = 1.0;
  int batch = 10;
  // A client with more examples trains on this many of them, drawn with the seed.
  int examples_max = 512;
  // Of the round; together with the client's number it gives the order of the examples.
  uint64_t seed = 0;
  // Shape of the model. A worker whose dataset has another shape must not compute.
  int num_features = 0;
  int num_labels = 0;

  std::string Serialize() const;
  // INVALID_ARGUMENT naming the key that is missing, unknown or out of range.
  static absl::StatusOr<TagsConfig> Parse(std::string_view json);
  // FAILED_PRECONDITION if `dataset` has another shape than this round's model.
  absl::Status CheckFits(const TagsDataset& dataset) const;
};

}  // namespace sheaf
