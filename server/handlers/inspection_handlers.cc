#include "server/handlers/inspection_handlers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/version.h"
#include "proto/time.h"
#include "server/calls/admission.h"
#include "server/core/access/identity.h"
#include "server/core/core.h"
#include "server/core/inspection/explain.h"
#include "server/core/inspection/views.h"
#include "server/core/requests/names.h"
#include "server/core/requests/paging.h"
#include "server/core/rounds/round_spec.h"

namespace sheaf {
namespace {

absl::StatusOr<TaskId> ParseTask(const std::string& text) {
  if (const std::optional<TaskId> id = TaskId::Parse(text)) return *id;
  return absl::InvalidArgumentError(fmt::format("\"{}\" is not a task, such as r-7k2m9q4x/17", text.substr(0, 128)));
}

absl::StatusOr<v1::GetTaskResponse> Get(Core& core, const v1::GetTaskRequest& request) {
  ASSIGN_OR_RETURN(const TaskId id, ParseTask(request.task()));
  ASSIGN_OR_RETURN(const TaskRecord record, core.queries().GetTask(id));
  ASSIGN_OR_RETURN(const std::vector<AttemptRecord> attempts, core.queries().ListAttempts(id));
  v1::GetTaskResponse response;
  *response.mutable_task() = ToProto(record);
  absl::Time others_until = absl::InfinitePast();
  for (const AttemptRecord& attempt : attempts) {
    v1::Attempt& proto = *response.mutable_task()->add_attempts();
    ASSIGN_OR_RETURN(proto, ToProto(id, attempt));
    proto.set_is_speculative(attempt.lease_time < others_until);
    others_until = std::max(others_until, attempt.end_time);
    if (attempt.outcome != AttemptOutcome::kRunning) continue;
    const bool is_second = record.second_lease && record.second_lease->attempt == attempt.number;
    *proto.mutable_expire_time() = ToProto(is_second ? record.second_lease->expire_time : record.expire_time);
  }
  return response;
}

absl::StatusOr<v1::RequeueTaskResponse> Requeue(Core& core, const v1::RequeueTaskRequest& request, absl::Time now) {
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  ASSIGN_OR_RETURN(const TaskId id, ParseTask(request.task()));
  ASSIGN_OR_RETURN(const TaskRecord record, core.attempts().Requeue(id, now));
  v1::RequeueTaskResponse response;
  *response.mutable_task() = ToProto(record);
  return response;
}

absl::StatusOr<v1::DescribeQueueResponse> Describe(Core& core, const std::string& population,
                                                   const UnmetRequirements::Found& unmet, absl::Time now) {
  ASSIGN_OR_RETURN(const TaskQueries::QueueRecord record, core.queries().DescribeQueue(population, now));
  v1::DescribeQueueResponse response;
  response.set_population(population);
  *response.mutable_tasks() = ToProto(record.tasks);
  response.set_num_live_rounds(record.num_live_rounds);
  if (record.oldest_available_time != absl::InfiniteFuture()) {
    *response.mutable_oldest_age() = ToProto(now - record.oldest_available_time);
  }
  response.set_num_delayed(record.num_delayed);
  response.set_num_unschedulable(unmet.num_tasks);
  response.set_num_unschedulable_is_partial(unmet.is_partial);
  response.set_num_parked_polls(core.polls().Num(population));
  response.set_leases_per_second(core.rates().LeasesPerSecond(population, now));
  response.set_completions_per_second(core.rates().CompletionsPerSecond(population, now));
  return response;
}

absl::StatusOr<v1::Worker> ViewOf(Core& core, const WorkerRecord& record) {
  ASSIGN_OR_RETURN(const std::vector<TaskRecord> held, core.context().store.ListLeases(record.population, record.name));
  ASSIGN_OR_RETURN(v1::Worker worker, ToProto(record, core.workers().Find(record.population, record.name),
                                              core.polls().IsParked(record.population, record.name)));
  worker.set_num_leased(static_cast<int64_t>(held.size()));
  return worker;
}

absl::StatusOr<v1::ListWorkersResponse> List(Core& core, const v1::ListWorkersRequest& request) {
  ASSIGN_OR_RETURN(const int page_size, PageSize(request.page_size(), core.limits().page_size_max));
  TaskQueries::ListWorkersParams params{.population = PopulationOrDefault(request.population()),
                                        .after = WorkerName(request.page_token())};
  v1::ListWorkersResponse response;
  PageRoom room(core.limits().page_bytes_max);
  const auto read = [&](int limit) {
    params.limit = limit;
    return core.queries().ListWorkers(params);
  };
  ASSIGN_OR_RETURN(const bool has_more,
                   FillPage(page_size, read, [&](const WorkerRecord& record) -> absl::StatusOr<bool> {
                     ASSIGN_OR_RETURN(v1::Worker worker, ViewOf(core, record));
                     if (!room.Take(worker)) return false;
                     params.after = record.name;
                     *response.add_workers() = std::move(worker);
                     return true;
                   }));
  if (has_more) response.set_next_page_token(response.workers().rbegin()->name());
  return response;
}

absl::StatusOr<v1::DrainWorkerResponse> Drain(Core& core, const v1::DrainWorkerRequest& request) {
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  const std::string population = PopulationOrDefault(request.population());
  const WorkerName name(request.worker());
  ASSIGN_OR_RETURN(const WorkerRecord record, core.workers().SetDraining(population, name, !request.undo()));
  core.polls().OnDrainChanged(population, name);
  v1::DrainWorkerResponse response;
  ASSIGN_OR_RETURN(*response.mutable_worker(), ViewOf(core, record));
  return response;
}

v1::Caller ViewOf(const Identity& caller) {
  v1::Caller view;
  view.set_name(caller.name);
  for (const v1::Role role : {v1::SUBMITTER, v1::WORKER, v1::OPERATOR, v1::VIEWER}) {
    if (caller.roles.has(role)) view.add_roles(role);
  }
  for (const std::string& population : caller.populations) view.add_populations(population);
  return view;
}

v1::Server ViewOf(const ServerRecord& record) {
  v1::Server server;
  server.set_name(record.name);
  server.set_address(record.address);
  server.set_version(record.version);
  *server.mutable_up_for() = ToProto(record.up_for);
  server.set_is_owner(record.is_owner);
  if (record.is_owner) *server.mutable_owner_for() = ToProto(record.owner_for);
  *server.mutable_silent_for() = ToProto(record.silent_for);
  server.set_num_shards(record.num_shards);
  server.set_is_draining(record.is_draining);
  for (const std::string& population : record.populations) {
    const bool is_cut = server.populations_size() == ServerRecord::kPopulationsMax;
    server.set_has_more_populations(is_cut);
    if (!is_cut) server.add_populations(population);
  }
  return server;
}

absl::StatusOr<v1::ListServersResponse> Servers(Core& core, const v1::ListServersRequest& request, absl::Time now) {
  ASSIGN_OR_RETURN(const int page_size, PageSize(request.page_size(), core.limits().page_size_max));
  TaskQueries::ListServersParams params{.after = request.page_token()};
  v1::ListServersResponse response;
  const auto read = [&](int limit) {
    params.limit = limit;
    return core.queries().ListServers(params);
  };
  ASSIGN_OR_RETURN(const bool has_more,
                   FillPage(page_size, read, [&](const ServerRecord& server) -> absl::StatusOr<bool> {
                     params.after = server.name;
                     *response.add_servers() = ViewOf(server);
                     return true;
                   }));
  if (has_more) response.set_next_page_token(params.after);
  if (response.servers().empty() && request.page_token().empty()) {
    const absl::Duration up_for = now - core.start_time();
    *response.add_servers() = ViewOf({.version = kVersion, .up_for = up_for, .is_owner = true, .owner_for = up_for});
  }
  return response;
}

absl::StatusOr<v1::DrainServerResponse> Drain(Core& core, const v1::DrainServerRequest& request,
                                              const Identity& caller) {
  RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  RETURN_IF_ERROR(caller.CheckEverywhere());
  if (!core.queries().GetInfo().is_shared) {
    return absl::FailedPreconditionError(
        "this server shares its store with no other, which could take it over; to end it, send it SIGTERM");
  }
  ASSIGN_OR_RETURN(const ServerRecord record, core.context().store.SetServerDraining(
                                                  {.server = request.server(), .is_draining = !request.undo()}));
  v1::DrainServerResponse response;
  *response.mutable_server() = ViewOf(record);
  return response;
}

absl::StatusOr<v1::GetServerInfoResponse> Info(Core& core, const Admission& admission,
                                               const ServingCertificate* certificate, const Identity& caller) {
  const TaskQueries::Info store = core.queries().GetInfo();
  v1::GetServerInfoResponse response;
  response.set_version(kVersion);
  response.set_protocol_version_min(kProtocolVersionMin);
  response.set_protocol_version_max(kProtocolVersionMax);
  *response.mutable_start_time() = ToProto(core.start_time());
  response.set_store(store.engine);
  response.set_schema_version(store.schema_version);
  response.set_data_directory(core.data_directory());
  for (const std::string& symbol : KnownOperators()) response.add_operators(symbol);
  for (const auto& [name, value] : core.limits().ByName()) (*response.mutable_limits())[name] = value;
  response.set_num_live_rounds(static_cast<int64_t>(core.rounds().all().size()));
  response.set_num_workers(static_cast<int64_t>(core.workers().size()));
  response.set_is_draining(core.is_draining());
  response.set_num_refused_calls(admission.num_refused());
  if (certificate != nullptr) {
    const ServingCertificate::Facts facts = certificate->Get();
    if (facts.expire_time != absl::InfiniteFuture()) {
      *response.mutable_certificate_expire_time() = ToProto(facts.expire_time);
    }
    response.set_certificate_problem(facts.problem);
  }
  *response.mutable_caller() = ViewOf(caller);
  return response;
}

}  // namespace

void InspectionHandlers::ListTasks(const v1::ListTasksRequest& request, const CallContext& /*call*/,
                                   Reply<v1::ListTasksResponse> reply) {
  core_.task_listing().List(request, std::move(reply));
}

void InspectionHandlers::GetTask(const v1::GetTaskRequest& request, const CallContext& /*call*/,
                                 Reply<v1::GetTaskResponse> reply) {
  reply(Get(core_, request));
}

void InspectionHandlers::RequeueTask(const v1::RequeueTaskRequest& request, const CallContext& call,
                                     Reply<v1::RequeueTaskResponse> reply) {
  reply(Requeue(core_, request, call.now));
}

void InspectionHandlers::DescribeQueue(const v1::DescribeQueueRequest& request, const CallContext& call,
                                       Reply<v1::DescribeQueueResponse> reply) {
  const std::string population = PopulationOrDefault(request.population());
  core_.unmet().OfPopulation(
      population, call.now,
      [this, population, now = call.now, reply](const absl::StatusOr<UnmetRequirements::Found>& unmet) {
        if (!unmet.ok()) return reply(unmet.status());
        reply(Describe(core_, population, *unmet, now));
      });
}

void InspectionHandlers::ListWorkers(const v1::ListWorkersRequest& request, const CallContext& /*call*/,
                                     Reply<v1::ListWorkersResponse> reply) {
  reply(List(core_, request));
}

void InspectionHandlers::DrainWorker(const v1::DrainWorkerRequest& request, const CallContext& /*call*/,
                                     Reply<v1::DrainWorkerResponse> reply) {
  reply(Drain(core_, request));
}

void InspectionHandlers::ExplainRound(const v1::ExplainRoundRequest& request, const CallContext& call,
                                      Reply<v1::ExplainRoundResponse> reply) {
  const RoundId round(request.round());
  core_.unmet().OfRound(round, call.now,
                        [this, round, now = call.now, reply](const absl::StatusOr<UnmetRequirements::Found>& unmet) {
                          if (!unmet.ok()) return reply(unmet.status());
                          const WhoIsThere who{.unmet = *unmet, .workers = core_.workers(), .polls = core_.polls()};
                          reply(sheaf::ExplainRound(round, core_.context(), core_.rounds(), who, now));
                        });
}

void InspectionHandlers::ListServers(const v1::ListServersRequest& request, const CallContext& call,
                                     Reply<v1::ListServersResponse> reply) {
  reply(Servers(core_, request, call.now));
}

void InspectionHandlers::DrainServer(const v1::DrainServerRequest& request, const CallContext& call,
                                     Reply<v1::DrainServerResponse> reply) {
  reply(Drain(core_, request, *call.caller));
}

void InspectionHandlers::GetServerInfo(const v1::GetServerInfoRequest& /*request*/, const CallContext& call,
                                       Reply<v1::GetServerInfoResponse> reply) {
  reply(Info(core_, admission_, certificate_, *call.caller));
}

}  // namespace sheaf
