#include <fmt/format.h>

#include "cli/commands.h"
#include "sdk/cpp/methods.h"

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
    const v1::Worker& worker = response.worker();
    if (undo_) {
      session.out() << fmt::format("worker {} is back in service\n", worker.name());
    } else {
      session.out() << fmt::format("worker {} gets nothing more; it still holds {} leases\n", worker.name(),
                                   worker.num_leased());
    }
    return absl::OkStatus();
  }

 private:
  std::string worker_;
  bool undo_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeWorkerDrain() { return std::make_unique<WorkerDrain>(); }

}  // namespace sheaf
