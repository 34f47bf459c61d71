#include <fmt/format.h>

#include "base/plural.h"
#include "cli/commands.h"
#include "proto/methods.h"

namespace sheaf {
namespace {

class WorkerDrain final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Positional("WORKER", "the worker's name", &worker_);
    arguments.Flag("--undo", "take it back into service", &undo_);
  }

  absl::Status Run(Session& session) override {
    v1::DrainWorkerRequest request;
    request.set_request_id(session.NewRequestId());
    request.set_worker(worker_);
    request.set_population(session.options().population);
    request.set_undo(undo_);
    ASSIGN_OR_RETURN(const v1::DrainWorkerResponse response, session.Call(kDrainWorker, request));
    if (session.json()) return session.PrintJson(response);
    session.out() << Sentence(response.worker(), session.now()) << "\n";
    return absl::OkStatus();
  }

 private:
  std::string Sentence(const v1::Worker& worker, absl::Time now) const {
    // A worker that holds nothing has a call parked, in service or not, but for moments.
    if (!worker.is_parked() && worker.num_leased() == 0) {
      return fmt::format("worker {} is not connected (last seen {} ago); when it comes back under this name it {}",
                         worker.name(), AgeOf(worker.last_seen_time(), now),
                         undo_ ? "is given tasks again" : "is given none, until 'sheaf worker drain --undo'");
    }
    if (undo_) return fmt::format("worker {} is back in service", worker.name());
    if (worker.num_leased() == 0)
      return fmt::format("worker {} is drained: it holds nothing and gets nothing", worker.name());
    return fmt::format("worker {} finishes what it holds ({}) and gets nothing more", worker.name(),
                       Counted(worker.num_leased(), "lease"));
  }

  std::string worker_;
  bool undo_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeWorkerDrain() { return std::make_unique<WorkerDrain>(); }

}  // namespace sheaf
