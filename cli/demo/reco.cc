#include <fmt/format.h>

#include <optional>

#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/demo/run.h"
#include "cli/demo/training.h"
#include "cli/terminal/human_text.h"
#include "workloads/reco/program.h"

namespace sheaf {
namespace {

class DemoReco final : public TrainingDemo {
 public:
  DemoReco()
      : TrainingDemo({.name = "reco",
                      .clients = "packages",
                      .dataset = kNeedsData,
                      .dataset_help = "what packages need",
                      .rounds = 50,
                      .clients_per_round = 100}) {}

 private:
  absl::Status Prepare(Session& session, const std::string& snapshot, std::string& data) override {
    ASSIGN_OR_RETURN(dataset_, PrepareDataset<RecoDataset>(session, snapshot, data));
    session.err() << fmt::format("{} packages, each a client; half of what one needs predicts the rest, of {} names\n",
                                 HumanCount(dataset_->num_clients()), HumanCount(dataset_->num_items()));
    return absl::OkStatus();
  }

  absl::StatusOr<Training> MakeTraining(const TrainingOptions& options) override {
    auto program =
        std::make_unique<RecoProgram>(*dataset_, RecoProgramOptions{.clients_per_round = options.clients_per_round,
                                                                    .seed = options.seed,
                                                                    .client = {},
                                                                    .population = options.population,
                                                                    .round_deadline = options.round_deadline});
    const RecoProgram& reco = *program;
    return Training{.program = std::move(program),
                    .model_digest = [&reco] { return reco.ModelDigest(); },
                    .facts = {.metric = kRecoRecallMetric,
                              .metric_label = "recall@20",
                              .measured_on = "packages that no client saw",
                              .rows_output = kRecoRowsOutput,
                              .model_bytes = reco.model_bytes(),
                              .popularity_recall = reco.PopularityRecall()}};
  }

  std::optional<RecoDataset> dataset_;
};

}  // namespace

std::unique_ptr<Command> MakeDemoReco() { return std::make_unique<DemoReco>(); }

}  // namespace sheaf
