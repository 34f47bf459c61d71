#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "cli/commands.h"
#include "cli/commands/paging.h"
#include "proto/methods.h"

namespace sheaf {
namespace {

// What a worker does now, in one word.
Cell WorkerState(const v1::Worker& worker) {
  if (worker.is_draining()) return {worker.num_leased() > 0 ? "DRAINING" : "DRAINED", Color::kYellow};
  if (worker.num_leased() > 0) return {"WORKING", Color::kGreen};
  if (worker.is_parked()) return {"WAITING"};
  return {"AWAY", Color::kDim};
}

std::string OffersOf(const v1::Worker& worker) {
  std::string offers;
  for (const v1::OfferedComputation& computation : worker.computations()) {
    offers += fmt::format("{}{}/{}", offers.empty() ? "" : ",", computation.name(), computation.version());
  }
  return offers;
}

std::string LabelsOf(const v1::Worker& worker) {
  const std::map<std::string, std::string> sorted(worker.labels().begin(), worker.labels().end());
  std::string labels;
  for (const auto& [key, value] : sorted) labels += fmt::format("{}{}={}", labels.empty() ? "" : ",", key, value);
  return labels.empty() ? "-" : labels;
}

class WorkerList final : public Command {
 public:
  void Declare(Arguments& arguments) override {
    arguments.Choices("--state", "STATE", "only workers in this state",
                      {"WORKING", "WAITING", "AWAY", "DRAINING", "DRAINED"}, &states_);
    arguments.Number("--limit", "N", "stop after this many; 0 shows all", {.min = 0}, &limit_);
    DeclarePageToken(arguments, &page_token_);
  }

  absl::Status Run(Session& session) override {
    v1::ListWorkersRequest request;
    request.set_population(session.options().population);
    request.set_page_token(page_token_);
    ASSIGN_OR_RETURN(v1::ListWorkersResponse response, ListAll(session, kListWorkers, request, limit_,
                                                               [](auto& page) { return page.mutable_workers(); }));
    KeepWanted(response);
    if (session.json()) return session.PrintJson(response);
    Print(session, response);
    NoteIfCut(session, response, limit_);
    return absl::OkStatus();
  }

 private:
  void KeepWanted(v1::ListWorkersResponse& response) const {
    if (states_.empty()) return;
    auto* workers = response.mutable_workers();
    workers->erase(std::remove_if(workers->begin(), workers->end(),
                                  [this](const v1::Worker& worker) {
                                    return std::find(states_.begin(), states_.end(), WorkerState(worker).text) ==
                                           states_.end();
                                  }),
                   workers->end());
  }

  static void Print(Session& session, const v1::ListWorkersResponse& response) {
    Table table({{"WORKER"},
                 {"STATE"},
                 {"LEASED", Align::kRight},
                 {"SUCCEEDED", Align::kRight},
                 {"FAILED", Align::kRight},
                 {"LOST", Align::kRight},
                 {"LAST SEEN", Align::kRight},
                 {"VERSION"},
                 {"LABELS"},
                 {"OFFERS"}});
    for (const v1::Worker& worker : response.workers()) {
      table.AddRow({worker.name(), WorkerState(worker), HumanCount(worker.num_leased()),
                    HumanCount(worker.num_succeeded()), HumanCount(worker.num_failed()), HumanCount(worker.num_lost()),
                    AgeOf(worker.last_seen_time(), session.now()), worker.software_version(), LabelsOf(worker),
                    OffersOf(worker)});
    }
    session.PrintTable(table);
  }

  std::vector<std::string> states_;
  int64_t limit_ = kListLimitDefault;
  std::string page_token_;
};

}  // namespace

std::unique_ptr<Command> MakeWorkerList() { return std::make_unique<WorkerList>(); }

}  // namespace sheaf
