#include "workloads/reco/computation.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "workloads/package_source.h"
#include "workloads/reco/dataset.h"
#include "workloads/reco/model.h"

namespace sheaf {
namespace {

class RecoTask final : public PreparedTask {
 public:
  RecoTask(const RecoDataset& dataset, const RecoConfig& config, int client)
      : config_(config), draw_(DrawReco(dataset.items(client), client, config)) {
    v1::RowSelection& items = request_.selections.emplace_back();
    items.set_tensor(kRecoItemsTensor);
    items.mutable_rows()->Assign(draw_.rows.begin(), draw_.rows.end());
  }

  const InputRequest& input_request() const override { return request_; }

  absl::StatusOr<TaskOutcome> Run(const TaskInputs& inputs, RunControl& control) override {
    const NamedTensor& rows = inputs.selected.at(0);
    std::vector<float> weights(draw_.rows.size() * static_cast<size_t>(config_.row_width()));
    if (rows.dtype != v1::FLOAT32 || rows.data.size() != weights.size() * sizeof(float)) {
      return absl::InvalidArgumentError(
          fmt::format("tensor \"{}\" of the broadcast does not have the float32 rows of {} elements that the round's "
                      "config announces",
                      rows.name, config_.row_width()));
    }
    std::memcpy(weights.data(), rows.data.data(), rows.data.size());
    const RecoUpdate update = ComputeReco(draw_, config_, weights);
    control.ReportProgress();
    return BuildRecoContribution(update, config_);
  }

 private:
  const RecoConfig config_;
  const RecoDraw draw_;
  InputRequest request_;
};

class Reco final : public Computation {
 public:
  explicit Reco(LocalData<RecoDataset> data) : data_(std::move(data)) {}
  std::string_view name() const override { return kRecoComputation; }
  int version() const override { return kRecoComputationVersion; }
  absl::StatusOr<std::unique_ptr<PreparedTask>> Prepare(const v1::Lease& lease, RunControl& control) const override {
    ASSIGN_OR_RETURN(const RecoConfig config, RecoConfig::Parse(lease.computation().config()));
    ASSIGN_OR_RETURN(const std::shared_ptr<const RecoDataset> dataset, data_.Load());
    control.ReportProgress();
    RETURN_IF_ERROR(config.CheckFits(*dataset));
    ASSIGN_OR_RETURN(const int client, dataset->ParseSelector(lease.data_selector()));
    return std::make_unique<RecoTask>(*dataset, config, client);
  }

 private:
  const LocalData<RecoDataset> data_;
};

}  // namespace

ComputationRow RecoComputation() {
  const DataSource<RecoDataset> source = PackageSource<RecoDataset>(kNeedsData);
  return {.name = kRecoComputation, .data = source, .make = [source](const ComputationParts& parts) {
            return std::make_unique<Reco>(LocalData(source, parts.data));
          }};
}

}  // namespace sheaf
