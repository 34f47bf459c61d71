#include "cli/demo/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/status_macros.h"
#include "cli/demo/run.h"
#include "cli/terminal/errors.h"

namespace sheaf {
namespace {

// A demonstration that stands still this long is broken.
constexpr absl::Duration kRoundDeadline = absl::Minutes(5);
// Each that a worker prepares takes a thread of it.
constexpr int64_t kTasksAheadMax = 64;
// How often to look whether tabs have joined.
constexpr absl::Duration kLookInterval = absl::Milliseconds(200);
// How the version of a worker ends that runs in a tab (sdk/js/src/version.ts).
constexpr std::string_view kBrowser = " browser";

}  // namespace

void TrainingDemo::Declare(Arguments& arguments) {
  arguments.Number("--rounds", "N", "how many rounds to train", {.min = 1, .max = 100'000}, &rounds_);
  arguments.Number("--workers", "N", "how many workers to start", {.min = 1, .max = 60}, &workers_);
  if (traits_.join != nullptr) {
    arguments.Number("--browser", "N", "how many tabs of browsers to wait for, at the address that is printed",
                     {.min = 0, .max = 1'000}, &tabs_);
  }
  arguments.Number("--clients", "N", fmt::format("{} sampled per round", traits_.clients), {.min = 1, .max = 10'000},
                   &clients_);
  arguments.Number("--prepare-ahead", "K", "how many rounds the workers prepare ahead of the one that runs",
                   {.min = 0, .max = 16}, &ahead_);
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
  ASSIGN_OR_RETURN(const std::string join_directory, MakeJoinDirectory(session, directory));
  ASSIGN_OR_RETURN(LocalFederation federation,
                   LocalFederation::Start(session.host(), guard,
                                          {.directory = directory,
                                           .num_workers = static_cast<int>(workers_),
                                           .worker_data = fmt::format("{}={}", traits_.dataset, data_),
                                           .prepare_ahead = TasksAhead(),
                                           .join_directory = join_directory}));
  PrintIntroduction(session, federation.address());
  RETURN_IF_ERROR(WaitForTabs(session, guard, federation));
  RETURN_IF_ERROR(Train(session, guard, federation));
  PrintNext(session, directory);
  return absl::OkStatus();
}

int TrainingDemo::TasksAhead() const {
  // A worker's share of these rounds.
  return static_cast<int>(std::min(ahead_ * ((clients_ + workers_ - 1) / workers_), kTasksAheadMax));
}

absl::StatusOr<std::string> TrainingDemo::MakeJoinDirectory(Session& session, const std::string& directory) const {
  if (tabs_ == 0) return std::string();
  const std::string installed = fmt::format("{}/../share/sheaf/join/{}", session.host().binary_directory, traits_.join);
  const std::string made = directory + "/join";
  std::error_code error;
  std::filesystem::copy(installed, made, error);
  if (error) {
    return WithHint(absl::NotFoundError(fmt::format("what tabs compute is not in {}: {}", installed, error.message())),
                    "build or install all of it");
  }
  std::filesystem::copy_file(data_, fmt::format("{}/{}", made, traits_.dataset), error);
  if (!error) return made;
  return absl::UnavailableError(fmt::format("cannot copy {} to {}: {}", data_, made, error.message()));
}

absl::Status TrainingDemo::WaitForTabs(Session& session, InterruptGuard& guard, LocalFederation& federation) const {
  if (tabs_ == 0) return absl::OkStatus();
  session.err() << fmt::format("\nopen http://{}/join in {} {} of a browser, and join\n", federation.http_address(),
                               tabs_, tabs_ == 1 ? "tab" : "tabs")
                << std::flush;
  ASSIGN_OR_RETURN(const std::unique_ptr<Transport> transport, session.host().connect(federation.address(), {}));
  v1::ListWorkersRequest request;
  request.set_population(session.options().population);
  request.set_page_size(1000);
  for (int64_t seen = 0;;) {
    if (guard.interrupted()) return absl::CancelledError("interrupted");
    RETURN_IF_ERROR(federation.Check());
    ASSIGN_OR_RETURN(const v1::ListWorkersResponse listed, BlockingCall(*transport, kListWorkers, request));
    const int64_t now = std::count_if(listed.workers().begin(), listed.workers().end(), [](const v1::Worker& worker) {
      return worker.software_version().ends_with(kBrowser);
    });
    if (now > seen) session.err() << fmt::format("{} of {} tabs have joined\n", now, tabs_) << std::flush;
    seen = now;
    if (seen >= tabs_) return absl::OkStatus();
    session.host().pause(kLookInterval);
  }
}

absl::Status TrainingDemo::Train(Session& session, InterruptGuard& guard, LocalFederation& federation) {
  ASSIGN_OR_RETURN(Training training, MakeTraining({.clients_per_round = static_cast<int>(clients_),
                                                    .seed = static_cast<uint64_t>(seed_),
                                                    .population = session.options().population,
                                                    .round_deadline = kRoundDeadline}));
  training.facts.num_rounds = static_cast<int>(rounds_);
  DemoReport report(session, training.facts);
  RETURN_IF_ERROR(RunProgramOn(session, guard, federation, *training.program,
                               {.rounds = static_cast<int>(rounds_),
                                .ahead = static_cast<int>(ahead_),
                                .verify = verify_,
                                .observer = &report}));
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
