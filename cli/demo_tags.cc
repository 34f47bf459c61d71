#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/demo_report.h"
#include "cli/demo_run.h"
#include "cli/errors.h"
#include "sdk/cpp/workloads/tags_program.h"

namespace sheaf {
namespace {

// A demonstration that stands still this long is broken.
constexpr absl::Duration kRoundDeadline = absl::Minutes(5);

class DemoTags final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Number("--rounds", "N", "how many rounds to train", {.min = 1, .max = 100'000}, &rounds_);
    arguments.Number("--workers", "N", "how many workers to start", {.min = 1, .max = 60}, &workers_);
    arguments.Number("--clients", "N", "maintainers sampled per round", {.min = 1, .max = 10'000}, &clients_);
    arguments.Number("--seed", "N", "of everything that is drawn; the same seed gives the same model", {.min = 0},
                     &seed_);
    arguments.Choice("--mean", "divide a row by those who touched it, or by all", {"coordinate", "client"}, &mean_);
    arguments.Flag("--verify", "recompute every round by brute force and compare all bits", &verify_);
    arguments.Flag("--keep", "keep the store and the logs", &keep_);
    arguments.Text("--data", "FILE", "a snapshot of a package index [this machine's, from apt-cache dumpavail]",
                   &data_);
  }

  absl::Status Run(Session& session) override {
    return RunDemo(session, keep_, [&](InterruptGuard& guard, const std::string& directory) {
      return RunIn(session, guard, directory);
    });
  }

 private:
  absl::Status RunIn(Session& session, InterruptGuard& guard, const std::string& directory) {
    ASSIGN_OR_RETURN(const TagsDataset dataset, PrepareDataset(session, directory));
    ASSIGN_OR_RETURN(LocalFederation federation, LocalFederation::Start(session.host(), guard,
                                                                        {.directory = directory,
                                                                         .num_workers = static_cast<int>(workers_),
                                                                         .worker_data = "debian-index=" + data_}));
    PrintIntroduction(session, federation.address());
    RETURN_IF_ERROR(Train(session, guard, federation, dataset));
    PrintNext(session, directory);
    return absl::OkStatus();
  }

  // The index is parsed once, here; the workers load the snapshot.
  absl::StatusOr<TagsDataset> PrepareDataset(Session& session, const std::string& directory) {
    if (!data_.empty()) return TagsDataset::Load(data_);
    ASSIGN_OR_RETURN(const std::string index, ReadIndexForDemo(session));
    absl::StatusOr<TagsDataset> dataset = TagsDataset::ParseAvailable(index);
    if (!dataset.ok()) return WithHint(dataset.status(), "give a snapshot with --data");
    data_ = directory + "/debian-index.snapshot";
    RETURN_IF_ERROR(dataset->Save(data_));
    session.err() << fmt::format("{} packages of {} maintainers; {} words and dependencies predict {} tags\n",
                                 HumanCount(dataset->num_examples()), HumanCount(dataset->num_clients()),
                                 HumanCount(dataset->num_features()), HumanCount(dataset->num_labels()));
    return dataset;
  }

  void PrintIntroduction(Session& session, const std::string& address) const {
    const std::string sheaf = fmt::format("{} -s {}", session.host().program, address);
    session.err() << fmt::format(
                         "training {} rounds of {} maintainers each on {} workers, which nobody can connect to\n"
                         "\nwhile it runs, in another terminal:\n"
                         "  {} queue describe\n  {} task list\n  {} worker list\n",
                         rounds_, clients_, workers_, sheaf, sheaf, sheaf)
                  << std::flush;
  }

  absl::Status Train(Session& session, InterruptGuard& guard, LocalFederation& federation, const TagsDataset& dataset) {
    ASSIGN_OR_RETURN(const TagsMean mean, ParseTagsMean(mean_));
    TagsProgram program(dataset, {.clients_per_round = static_cast<int>(clients_),
                                  .seed = static_cast<uint64_t>(seed_),
                                  .mean = mean,
                                  .population = session.options().population,
                                  .round_deadline = kRoundDeadline});
    DemoReport report(session, {.metric = kTagsRecallMetric,
                                .metric_label = "recall@5",
                                .measured_on = "maintainers that no client saw",
                                .rows_output = kTagsRowsOutput,
                                .num_rounds = static_cast<int>(rounds_),
                                .model_bytes = program.model_bytes(),
                                .popularity_recall = TagsPopularityRecallAt5(dataset)});
    RETURN_IF_ERROR(RunProgramOn(session, guard, federation, program,
                                 {.rounds = static_cast<int>(rounds_), .verify = verify_}, report));
    report.PrintEnd(program.ModelDigest());
    if (report.totals().mismatches == 0) return absl::OkStatus();
    return WithHint(absl::AbortedError(fmt::format("{} released values differ from brute force; the first in {}",
                                                   report.totals().mismatches, report.totals().first_mismatch)),
                    fmt::format("run it again with --seed {} --keep and report it", seed_));
  }

  void PrintNext(Session& session, const std::string& directory) const {
    if (session.json()) return;
    const std::string& sheaf = session.host().program;
    std::ostream& err = session.err();
    err << "\nnext:\n";
    if (!verify_)
      err << fmt::format("  {} demo tags --rounds 5 --verify      compare every round with brute force\n", sheaf);
    if (mean_ == "coordinate") {
      err << fmt::format("  {} demo tags --mean client           the plain mean, which learns slower\n", sheaf);
    }
    if (keep_) {
      const std::string server = session.host().binary_directory + "/sheafd";
      err << fmt::format("  {} --data-dir {}/server      serve these rounds again\n", server, directory);
    }
    err << fmt::format("  {} --help                              everything else\n", sheaf);
  }

  int64_t rounds_ = 20;
  int64_t workers_ = 8;
  int64_t clients_ = 50;
  int64_t seed_ = 1;
  std::string mean_ = "coordinate";
  bool verify_ = false;
  bool keep_ = false;
  // Path of the snapshot; the workers read it, too.
  std::string data_;
};

}  // namespace

std::unique_ptr<Command> MakeDemoTags() { return std::make_unique<DemoTags>(); }

}  // namespace sheaf
