#include <fmt/format.h>

#include <optional>

#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/demo/run.h"
#include "cli/demo/training.h"
#include "cli/terminal/human_text.h"
#include "workloads/tags/program.h"
#include "workloads/tags/recall.h"

namespace sheaf {
namespace {

class DemoTags final : public TrainingDemo {
 public:
  DemoTags()
      : TrainingDemo({.name = "tags",
                      .clients = "maintainers",
                      .dataset = kDebianIndexData,
                      .dataset_help = "a package index",
                      .join = "tags",
                      .rounds = 20,
                      .clients_per_round = 50}) {}

  void Declare(Arguments& arguments) override {
    TrainingDemo::Declare(arguments);
    arguments.Choice("--mean", "divide a row by the clients that touched it, or by all", {"coordinate", "client"},
                     &mean_);
  }

 private:
  absl::Status Prepare(Session& session, const std::string& snapshot, std::string& data) override {
    ASSIGN_OR_RETURN(dataset_, PrepareDataset<TagsDataset>(session, snapshot, data));
    session.err() << fmt::format("{} packages of {} maintainers; {} words and dependencies predict {} tags\n",
                                 HumanCount(dataset_->num_examples()), HumanCount(dataset_->num_clients()),
                                 HumanCount(dataset_->num_features()), HumanCount(dataset_->num_labels()));
    return absl::OkStatus();
  }

  absl::StatusOr<Training> MakeTraining(const TrainingOptions& options) override {
    ASSIGN_OR_RETURN(const TagsMean mean, ParseTagsMean(mean_));
    auto program =
        std::make_unique<TagsProgram>(*dataset_, TagsProgramOptions{.clients_per_round = options.clients_per_round,
                                                                    .seed = options.seed,
                                                                    .mean = mean,
                                                                    .population = options.population,
                                                                    .round_deadline = options.round_deadline});
    const TagsProgram& tags = *program;
    return Training{.program = std::move(program),
                    .model_digest = [&tags] { return tags.ModelDigest(); },
                    .facts = {.metric = kTagsRecallMetric,
                              .metric_label = "recall@5",
                              .measured_on = "maintainers that no client saw",
                              .rows_output = kTagsRowsOutput,
                              .model_bytes = tags.model_bytes(),
                              .popularity_recall = TagsPopularityRecallAt5(*dataset_)}};
  }

  std::vector<Suggestion> MoreNext(const std::string& sheaf) const override {
    if (mean_ != "coordinate") return {};
    return {{fmt::format("{} demo tags --mean client", sheaf), "the plain mean, which learns slower"}};
  }

  std::string mean_ = "coordinate";
  std::optional<TagsDataset> dataset_;
};

}  // namespace

std::unique_ptr<Command> MakeDemoTags() { return std::make_unique<DemoTags>(); }

}  // namespace sheaf
