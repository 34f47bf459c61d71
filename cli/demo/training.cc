#include "cli/demo/training.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "cli/demo/run.h"
#include "cli/terminal/errors.h"

namespace sheaf {
namespace {

// A demonstration that stands still this long is broken.
constexpr absl::Duration kRoundDeadline = absl::Minutes(5);

}  // namespace

void TrainingDemo::Declare(Arguments& arguments) {
  arguments.Number("--rounds", "N", "how many rounds to train", {.min = 1, .max = 100'000}, &rounds_);
  arguments.Number("--workers", "N", "how many workers to start", {.min = 1, .max = 60}, &workers_);
  arguments.Number("--clients", "N", fmt::format("{} sampled per round", traits_.clients), {.min = 1, .max = 10'000},
                   &clients_);
  arguments.Number("--seed", "N", "the seed of all random choices; the same seed gives the same model", {.min = 0},
                   &seed_);
  arguments.Flag("--verify", "recompute every round by brute force and compare all bits", &verify_);
  arguments.Flag("--keep", "keep the store and the logs", &keep_);
  arguments.Text("--data", "FILE",
                 fmt::format("a snapshot of {} [this machine's, from apt-cache dumpavail]", traits_.dataset_help),
                 &data_);
}

absl::Status TrainingDemo::Run(Session& session) {
  return RunDemo(session, keep_,
                 [&](InterruptGuard& guard, const std::string& directory) { return RunIn(session, guard, directory); });
}

absl::Status TrainingDemo::RunIn(Session& session, InterruptGuard& guard, const std::string& directory) {
  RETURN_IF_ERROR(Prepare(session, fmt::format("{}/{}.snapshot", directory, traits_.dataset), data_));
  ASSIGN_OR_RETURN(LocalFederation federation,
                   LocalFederation::Start(session.host(), guard,
                                          {.directory = directory,
                                           .num_workers = static_cast<int>(workers_),
                                           .worker_data = fmt::format("{}={}", traits_.dataset, data_)}));
  PrintIntroduction(session, federation.address());
  RETURN_IF_ERROR(Train(session, guard, federation));
  PrintNext(session, directory);
  return absl::OkStatus();
}

absl::Status TrainingDemo::Train(Session& session, InterruptGuard& guard, LocalFederation& federation) {
  ASSIGN_OR_RETURN(Training training, MakeTraining({.clients_per_round = static_cast<int>(clients_),
                                                    .seed = static_cast<uint64_t>(seed_),
                                                    .population = session.options().population,
                                                    .round_deadline = kRoundDeadline}));
  training.facts.num_rounds = static_cast<int>(rounds_);
  DemoReport report(session, training.facts);
  RETURN_IF_ERROR(RunProgramOn(session, guard, federation, *training.program,
                               {.rounds = static_cast<int>(rounds_), .verify = verify_, .observer = &report}));
  report.PrintEnd(training.model_digest());
  if (report.totals().mismatches == 0) return absl::OkStatus();
  return WithHint(absl::AbortedError(fmt::format("{} released values differ from brute force; the first in {}",
                                                 report.totals().mismatches, report.totals().first_mismatch)),
                  fmt::format("run it again with --seed {} --keep and report it", seed_));
}

void TrainingDemo::PrintIntroduction(Session& session, const std::string& address) const {
  const std::string sheaf = fmt::format("{} -s {}", session.host().program, address);
  session.err() << fmt::format(
                       "training {} rounds of {} {} each on {} workers, which call out for their tasks\n"
                       "\nwhile it runs, in another terminal:\n"
                       "  {} queue describe\n  {} task list\n  {} worker list\n",
                       rounds_, clients_, traits_.clients, workers_, sheaf, sheaf, sheaf)
                << std::flush;
}

void TrainingDemo::PrintNext(Session& session, const std::string& directory) const {
  if (session.json()) return;
  const std::string& sheaf = session.host().program;
  std::vector<Suggestion> next = MoreNext(sheaf);
  if (!verify_) {
    next.insert(next.begin(), {fmt::format("{} demo {} --rounds 5 --verify", sheaf, traits_.name),
                               "compare every round with brute force"});
  }
  if (keep_) {
    next.push_back({fmt::format("{}/sheafd --data-dir {}/server", session.host().binary_directory, directory),
                    "serve these rounds again"});
  }
  next.push_back({fmt::format("{} --help", sheaf), "everything else"});
  size_t width = 0;
  for (const Suggestion& each : next) width = std::max(width, each.command.size());
  session.err() << "\nnext:\n";
  for (const Suggestion& each : next) session.err() << fmt::format("  {:<{}}  {}\n", each.command, width, each.what);
}

}  // namespace sheaf
