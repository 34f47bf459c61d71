#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/demo/hitters_report.h"
#include "cli/demo/run.h"
#include "cli/files.h"
#include "cli/terminal/errors.h"
#include "workloads/hitters/program.h"

namespace sheaf {
namespace {

// A demonstration that stands still this long is broken.
constexpr absl::Duration kRoundDeadline = absl::Minutes(5);

class DemoHitters final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Number("--workers", "N", "how many workers to start", {.min = 1, .max = 60}, &workers_);
    arguments.Number("--min-contributors", "K", "withhold names that fewer maintainers have", {.min = 1},
                     &min_contributors_);
    arguments.Number("--top", "N", "how many names to show", {.min = 0, .max = 1'000'000}, &top_);
    arguments.Text("--output", "FILE", "write the whole table there, as `uniq -c` does", &path_);
    arguments.Flag("--verify", "recompute the round by brute force and compare all bits", &verify_);
    arguments.Flag("--keep", "keep the store and the logs", &keep_);
    arguments.Text("--data", "FILE", "a snapshot of dependency names [this machine's, from apt-cache dumpavail]",
                   &data_);
  }

  absl::Status Run(Session& session) override {
    if (path_ == "json" || path_ == "table") {
      return WithHint(
          absl::InvalidArgumentError(fmt::format("--output names a file here, and '{}' is a format", path_)),
          fmt::format("say -o {0} for the format, or --output ./{0} for the file", path_));
    }
    // Before the work, not after.
    if (!path_.empty() && FileExists(path_)) return ExistsAlready(path_);
    return RunDemo(session, keep_, [&](InterruptGuard& guard, const std::string& directory) {
      return RunIn(session, guard, directory);
    });
  }

 private:
  absl::Status RunIn(Session& session, InterruptGuard& guard, const std::string& directory) {
    ASSIGN_OR_RETURN(
        const HittersDataset dataset,
        PrepareDataset<HittersDataset>(session, fmt::format("{}/{}.snapshot", directory, kDependenciesData), data_));
    ASSIGN_OR_RETURN(LocalFederation federation,
                     LocalFederation::Start(session.host(), guard,
                                            {.directory = directory,
                                             .num_workers = static_cast<int>(workers_),
                                             .worker_data = fmt::format("{}={}", kDependenciesData, data_)}));
    session.err() << fmt::format("counting {} dependencies of {} maintainers on {} workers\n\n",
                                 HumanCount(dataset.num_occurrences()), HumanCount(dataset.num_clients()), workers_)
                  << std::flush;
    HittersProgram program(dataset, {.min_contributors = min_contributors_,
                                     .population = session.options().population,
                                     .round_deadline = kRoundDeadline});
    HittersReport report(session, program, static_cast<int>(top_));
    RETURN_IF_ERROR(
        RunProgramOn(session, guard, federation, program, {.rounds = 1, .verify = verify_, .observer = &report}));
    if (!path_.empty()) {
      RETURN_IF_ERROR(WriteFile(path_, UniqTable(program.table()), Overwrite::kNo));
      session.err() << fmt::format("wrote {}\n", path_);
    }
    if (report.verification().num_mismatches == 0) return absl::OkStatus();
    return WithHint(
        absl::AbortedError(fmt::format("{} released values differ from brute force; the first: {}",
                                       report.verification().num_mismatches, report.verification().first_mismatch)),
        "run it again with --keep and report it");
  }

  int64_t workers_ = 8;
  int64_t min_contributors_ = 1;
  int64_t top_ = 10;
  std::string path_;
  bool verify_ = false;
  bool keep_ = false;
  // Path of the snapshot; the workers read it, too.
  std::string data_;
};

}  // namespace

std::unique_ptr<Command> MakeDemoHitters() { return std::make_unique<DemoHitters>(); }

}  // namespace sheaf
