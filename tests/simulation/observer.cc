#include "tests/simulation/observer.h"

#include <map>
#include <utility>

namespace sheaf::simulation {
namespace {

// In calm, a second apart: longer than any message lies about.
constexpr int kTimesTakenBack = 25;

}  // namespace

Observer::Observer(Weather& weather, SimServers& server, const std::string& authorization, Seats& seats)
    : weather_(weather),
      seats_(seats),
      transport_(weather, server, authorization),
      requeues_(weather.chance.Fraction() * 0.2) {}

template <typename M>
void Observer::Ask(const M& method, const typename M::Request& request) {
  Call(transport_, method, request, {.timeout = absl::Seconds(5)},
       [this](const absl::StatusOr<typename M::Response>& response) {
         if (absl::IsInternal(response.status()) || absl::IsDataLoss(response.status()) ||
             absl::IsInvalidArgument(response.status())) {
           weather_.journal.Break("looking works", "{}", response.status().ToString());
         }
       });
}

void Observer::Act(const std::vector<std::string>& rounds) {
  if (weather_.is_stormy && weather_.chance.Chance(weather_.plan.worker_drained)) Drain();
  if (!drained_.empty() && (!weather_.is_stormy || weather_.chance.Chance(0.1))) TakeBack();
  if (weather_.plan.uses_tokens && weather_.chance.Chance(0.05)) MakeToken();
  if (rounds.empty()) return;
  const std::string& round = rounds[weather_.chance.Below(rounds.size())];
  if (weather_.chance.Chance(0.1)) Look(round);
  if (weather_.is_stormy && weather_.chance.Chance(requeues_)) Requeue(round);
}

void Observer::Look(const std::string& round) {
  v1::DescribeQueueRequest queue;
  queue.set_population("red");
  v1::ListWorkersRequest workers;
  workers.set_population("red");
  workers.set_page_size(2);
  v1::ExplainRoundRequest explain;
  explain.set_round(round);
  v1::GetTaskRequest task;
  task.set_task(round + "/0");
  v1::ListTasksRequest tasks;
  tasks.set_round(round);
  tasks.set_population("blue");
  v1::ListRoundsRequest list;
  list.set_population("blue");
  switch (weather_.chance.Below(7)) {
    case 0:
      return Ask(kDescribeQueue, queue);
    case 1:
      return Ask(kListWorkers, workers);
    case 2:
      return Ask(kExplainRound, explain);
    case 3:
      return Ask(kGetTask, task);
    case 4:
      if (weather_.chance.Chance(0.5)) tasks.add_states(v1::LEASED);
      return Ask(kListTasks, tasks);
    case 5:
      return Ask(kListRounds, list);
    default:
      // Asked together: the draws of older seeds stay as they are.
      Ask(kListServers, v1::ListServersRequest());
      return Ask(kGetServerInfo, v1::GetServerInfoRequest());
  }
}

void Observer::Requeue(const std::string& round) {
  v1::RequeueTaskRequest request;
  request.set_request_id(fmt::format("requeue-{}", ++num_requests_));
  // Of ten tasks at the most; where there is none, the answer says so.
  request.set_task(fmt::format("{}/{}", round, weather_.chance.Below(10)));
  ++weather_.statistics.faults["tasks requeued"];
  weather_.journal.Note("task {} is to be requeued", request.task());
  Ask(kRequeueTask, request);
}

void Observer::MakeToken() {
  if (token_.empty()) {
    v1::CreateTokenRequest request;
    request.set_request_id(fmt::format("token-{}", ++num_requests_));
    request.set_name("guest");
    request.add_roles(v1::VIEWER);
    Call(transport_, kCreateToken, request, {.timeout = absl::Seconds(5)},
         [this](const absl::StatusOr<v1::CreateTokenResponse>& response) {
           if (response.ok()) token_ = response->token().id();
         });
    return;
  }
  v1::RevokeTokenRequest request;
  request.set_request_id(fmt::format("revoke-{}", ++num_requests_));
  request.set_token(std::exchange(token_, ""));
  Ask(kRevokeToken, request);
}

void Observer::Drain() {
  int seat = static_cast<int>(weather_.chance.Below(seats_.count()));
  v1::DrainWorkerRequest request;
  request.set_request_id(fmt::format("drain-{}", ++num_requests_));
  request.set_worker(seats_.worker(seat));
  request.set_population(seats_.population(seat));
  ++weather_.statistics.faults["workers drained"];
  weather_.journal.Note("worker {} is to be drained", request.worker());
  drained_[{request.population(), request.worker()}] = 0;
  Ask(kDrainWorker, request);
}

void Observer::TakeBack() {
  // A copy: an answer may come at once.
  for (const auto& [worker, times] : std::map(drained_)) {
    v1::DrainWorkerRequest request;
    request.set_request_id(fmt::format("drain-{}", ++num_requests_));
    request.set_population(worker.first);
    request.set_worker(worker.second);
    request.set_undo(true);
    weather_.journal.Note("worker {} is to be taken back into service", request.worker());
    Call(transport_, kDrainWorker, request, {.timeout = absl::Seconds(5)},
         [this, worker = worker](const absl::StatusOr<v1::DrainWorkerResponse>& response) {
           if (weather_.is_stormy || (!response.ok() && !absl::IsNotFound(response.status()))) return;
           // The call that drained it may be under way still, or come a second time; and the worker, which was not
           // known a moment ago, may call first.
           if (++drained_[worker] == kTimesTakenBack) drained_.erase(worker);
         });
  }
}

}  // namespace sheaf::simulation
