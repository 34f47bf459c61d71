#include "worker/computations/hitters.h"

#include <utility>

#include "base/status_macros.h"
#include "workloads/client_selector.h"
#include "workloads/hitters/dataset.h"
#include "workloads/hitters/program.h"

namespace sheaf {
namespace {

class HittersTask final : public PreparedTask {
 public:
  HittersTask(std::shared_ptr<const HittersDataset> dataset, int client)
      : dataset_(std::move(dataset)), client_(client) {}

  // Nothing of the broadcast.
  const InputRequest& input_request() const override { return request_; }
  absl::StatusOr<v1::Contribution> Run(const TaskInputs&, RunControl&) override {
    return BuildHittersContribution(*dataset_, client_);
  }

 private:
  const std::shared_ptr<const HittersDataset> dataset_;
  const int client_;
  InputRequest request_;
};

class Hitters final : public Computation {
 public:
  explicit Hitters(DataSources& data) : data_(data) {}
  std::string_view name() const override { return kHittersComputation; }
  int version() const override { return kHittersComputationVersion; }
  absl::StatusOr<std::unique_ptr<PreparedTask>> Prepare(const v1::Lease& lease, RunControl& control) const override {
    ASSIGN_OR_RETURN(std::shared_ptr<const HittersDataset> dataset, data_.Dependencies());
    control.ReportProgress();
    RETURN_IF_ERROR(CheckHittersConfig(lease.computation().config(), *dataset));
    ASSIGN_OR_RETURN(int client, ParseClientSelector(lease.data_selector(), dataset->num_clients()));
    return std::make_unique<HittersTask>(std::move(dataset), client);
  }

 private:
  DataSources& data_;
};

}  // namespace

std::unique_ptr<Computation> MakeHitters(DataSources& data) { return std::make_unique<Hitters>(data); }

}  // namespace sheaf
