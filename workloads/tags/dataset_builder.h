// TagsDatasetBuilder: puts a TagsDataset together, client by client. For the parser, the snapshot reader and tests.
//
//   TagsDatasetBuilder builder({"role::program", "game::strategy"});
//   builder.AddExample(features, labels);
//   builder.EndClient(/*is_held_out=*/false);
//   TagsDataset dataset = std::move(builder).Build(num_features);
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workloads/tags/dataset.h"

namespace sheaf {

class TagsDatasetBuilder {
 public:
  explicit TagsDatasetBuilder(std::vector<std::string> label_names);

  // Both sorted, unique, and below the numbers of features and labels.
  void AddExample(std::span<const uint32_t> features, std::span<const uint16_t> labels);
  // The examples added since the last call are those of the next client.
  void EndClient(bool is_held_out);
  TagsDataset Build(int num_features) &&;

 private:
  TagsDataset dataset_;
};

}  // namespace sheaf
