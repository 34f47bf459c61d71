#include "workloads/tags/computation.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "workloads/package_source.h"
#include "workloads/tags/dataset.h"
#include "workloads/tags/model.h"

namespace sheaf {
namespace {

// INVALID_ARGUMENT if the tensor does not have this many float32 elements.
absl::StatusOr<std::vector<float>> Floats(const NamedTensor& tensor, size_t count) {
  if (tensor.dtype != v1::FLOAT32 || tensor.data.size() != count * sizeof(float)) {
    return absl::InvalidArgumentError(
        fmt::format("tensor \"{}\" of the broadcast is not the float32 tensor of {} elements per selection that the "
                    "round's config announces",
                    tensor.name, count));
  }
  std::vector<float> floats(count);
  std::memcpy(floats.data(), tensor.data.data(), tensor.data.size());
  return floats;
}

class TagsTask final : public PreparedTask {
 public:
  TagsTask(std::shared_ptr<const TagsDataset> dataset, TagsConfig config, int client)
      : dataset_(std::move(dataset)),
        config_(config),
        client_(client),
        rows_(TagsRowsTouched(*dataset_, client_, config_)) {
    v1::RowSelection& weights = request_.selections.emplace_back();
    weights.set_tensor(kTagsWeightsTensor);
    weights.mutable_rows()->Assign(rows_.begin(), rows_.end());
    v1::RowSelection& bias = request_.selections.emplace_back();
    bias.set_tensor(kTagsBiasTensor);
    bias.set_all(true);
  }

  const InputRequest& input_request() const override { return request_; }

  absl::StatusOr<TaskOutcome> Run(const TaskInputs& inputs, RunControl& control) override {
    size_t labels = static_cast<size_t>(config_.num_labels);
    ASSIGN_OR_RETURN(std::vector<float> weights, Floats(inputs.selected.at(0), rows_.size() * labels));
    ASSIGN_OR_RETURN(std::vector<float> bias, Floats(inputs.selected.at(1), labels));
    TagsUpdate update = TrainTagsClient(*dataset_, client_, config_, {.rows = rows_, .weights = weights, .bias = bias});
    control.ReportProgress();
    return BuildTagsContribution(update, config_);
  }

 private:
  const std::shared_ptr<const TagsDataset> dataset_;
  const TagsConfig config_;
  const int client_;
  const std::vector<int64_t> rows_;
  InputRequest request_;
};

class Tags final : public Computation {
 public:
  explicit Tags(LocalData<TagsDataset> data) : data_(std::move(data)) {}
  std::string_view name() const override { return kTagsComputation; }
  int version() const override { return kTagsComputationVersion; }
  absl::StatusOr<std::unique_ptr<PreparedTask>> Prepare(const v1::Lease& lease, RunControl& control) const override {
    ASSIGN_OR_RETURN(TagsConfig config, TagsConfig::Parse(lease.computation().config()));
    ASSIGN_OR_RETURN(std::shared_ptr<const TagsDataset> dataset, data_.Load());
    control.ReportProgress();
    RETURN_IF_ERROR(config.CheckFits(*dataset));
    ASSIGN_OR_RETURN(int client, ParseTagsSelector(lease.data_selector(), *dataset));
    return std::make_unique<TagsTask>(std::move(dataset), config, client);
  }

 private:
  const LocalData<TagsDataset> data_;
};

}  // namespace

ComputationRow TagsComputation() {
  const DataSource<TagsDataset> source = PackageSource<TagsDataset>(kDebianIndexData);
  return {.name = kTagsComputation, .data = source, .make = [source](const ComputationParts& parts) {
            return std::make_unique<Tags>(LocalData(source, parts.data));
          }};
}

}  // namespace sheaf
