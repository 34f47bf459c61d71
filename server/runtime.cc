#include "server/runtime.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "server/http/http_server.h"
#include "server/metrics/metrics_route.h"
#include "server/metrics/metrics_text.h"
#include "server/net/certificate_watch.h"
#include "server/rpc/grpc_server.h"
#include "server/store_threads.h"
#include "server/threads/call_threads.h"
#include "server/web/dashboard_routes.h"
#include "server/web/join_routes.h"

namespace sheaf {

struct Runtime::State {
  State(TaskStore& its_store, PayloadStore& its_payloads, const Clock& its_clock, Random& random, Options& options)
      : clock(its_clock),
        store(its_store),
        payloads(its_payloads),
        stop_grace(options.stop_grace),
        threads(its_clock, options.idle_max),
        calls(static_cast<int>(options.limits.call_threads_max)),
        parts(its_store, its_payloads, threads.core, random, its_clock,
              threads.CoreOptions({.limits = options.limits,
                                   .data_directory = options.data_directory,
                                   .requires_tokens = options.requires_tokens}),
              &calls, options.forwarder),
        join(std::move(options.join)) {}

  // What runs knows the parts, which are destroyed before their threads are.
  ~State() {
    threads.Stop();
    // It tells the transports.
    certificates.reset();
    http.reset();
    peers.reset();
    server.reset();
    calls.Stop();
  }

  // Of what is served, with the threads that serve it.
  MetricSources Sources(const StoreParts& of, const StoreThreads& by, TaskStore& tasks, PayloadStore& stored) {
    return {.core = of.core.figures(),
            .batches = by.core.figures(),
            .admission = parts.admission,
            .pipeline = parts.pipeline,
            .payloads = stored,
            .unfolded = of.core.unfolded(),
            .certificate = parts.certificate,
            .limits = of.core.limits(),
            .store = tasks.GetInfo().engine,
            .start_time = of.core.start_time()};
  }
  MetricSources OwnSources() { return Sources(parts, threads, store, payloads); }

  const Clock& clock;
  // The core's.
  TaskStore& store;
  PayloadStore& payloads;
  const absl::Duration stop_grace;
  StoreThreads threads;
  CallThreads calls;
  ServerParts parts;
  std::optional<MetricsText> metrics;
  const std::optional<JoinFiles> join;
  // Null: nothing is encrypted.
  std::unique_ptr<CertificateWatch> certificates;
  std::unique_ptr<GrpcServer> server;
  // Null: no other server forwards calls to this one.
  std::unique_ptr<GrpcServer> peers;
  // Null: it was not asked for.
  std::unique_ptr<HttpServer> http;
  const std::string no_address;
  bool is_stopped = false;
};

namespace {

absl::Status CheckLetsSomebodyIn(const AccessControl& access, absl::Time now, const std::string& listen,
                                 const std::string& data_directory) {
  if (access.HasOperator(now)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("refusing to listen on {} without a token: other machines reach it, and nobody could be let in; make "
                  "an operator's with `sheafd --create-operator-token --data-dir {}`, or listen on 127.0.0.1",
                  listen, data_directory));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Start(TaskStore& store, PayloadStore& payloads, const Clock& clock,
                                                        Random& random, Options options) {
  auto state = std::make_unique<State>(store, payloads, clock, random, options);
  RETURN_IF_ERROR(state->parts.core.Recover(clock.Now()));
  if (options.requires_tokens) {
    RETURN_IF_ERROR(
        CheckLetsSomebodyIn(state->parts.core.access(), clock.Now(), options.listen, options.data_directory));
  }
  state->metrics.emplace(state->OwnSources());
  State& started = *state;
  auto runtime = std::unique_ptr<Runtime>(new Runtime(std::move(state)));
  started.threads.core.Start(started.parts.runner, started.parts.core);
  options.before_calls(*runtime);
  if (!options.tls.empty()) {
    ASSIGN_OR_RETURN(started.certificates, CertificateWatch::Open(options.tls, clock.Now(), started.parts.certificate));
  }
  ASSIGN_OR_RETURN(started.server, GrpcServer::Start(started.parts.pipeline, clock,
                                                     {.listen = options.listen,
                                                      .listener = std::move(options.doors.rpc),
                                                      .certificates = started.certificates.get()}));
  if (options.peers != nullptr) {
    ASSIGN_OR_RETURN(started.peers, GrpcServer::Start(started.parts.pipeline, clock,
                                                      {.listener = std::move(options.peers),
                                                       .for_peers = std::move(options.for_peers)}));
  }
  if (!options.http.empty()) {
    std::vector<Route> routes = DashboardRoutes();
    for (Route& route : JoinRoutes(started.join ? &*started.join : nullptr)) routes.push_back(std::move(route));
    routes.push_back(MetricsRoute(*started.metrics, started.parts.pipeline));
    ASSIGN_OR_RETURN(started.http, HttpServer::Start(started.parts.pipeline, clock,
                                                     {.listen = options.http,
                                                      .listener = std::move(options.doors.http),
                                                      .certificates = started.certificates.get(),
                                                      .origins = options.http_origins,
                                                      .routes = std::move(routes)}));
  }
  if (started.certificates != nullptr) started.certificates->Start(clock);
  return runtime;
}

Runtime::Runtime(std::unique_ptr<State> state) : state_(std::move(state)) {}

Runtime::~Runtime() {
  if (absl::Status status = Stop(); !status.ok()) LogWarning("the last checkpoint failed: {}", status.ToString());
}

const std::string& Runtime::address() const { return state_->server->address(); }

const std::string& Runtime::http_address() const {
  return state_->http != nullptr ? state_->http->address() : state_->no_address;
}
std::string Runtime::Metrics() const { return state_->metrics->At(state_->clock.Now()); }

absl::Status Runtime::SetTokens(const std::vector<TokenRecord>& tokens) {
  absl::Status status;
  RETURN_IF_ERROR(state_->threads.core.RunInBatch([&](absl::Time now) {
    status = ReplaceTokens(state_->store, tokens);
    if (status.ok()) status = state_->parts.core.access().Reload(now);
  }));
  return status;
}

ServerParts& Runtime::parts() { return state_->parts; }

CallPool& Runtime::pool() { return state_->calls; }

void Runtime::ShowStore(const StoreParts& parts, const StoreThreads& threads, TaskStore& store,
                        PayloadStore& payloads) {
  MetricSources sources = state_->Sources(parts, threads, store, payloads);
  const Shard shard = parts.core.shard();
  shard == kHomeShard ? state_->metrics->LookAt(std::move(sources))
                      : state_->metrics->LookAt(shard, std::move(sources));
}

void Runtime::HideStore(Shard shard) {
  shard == kHomeShard ? state_->metrics->LookAt(state_->OwnSources()) : state_->metrics->StopLooking(shard);
}

absl::Status Runtime::Stop(const std::function<void()>& drain) {
  State& state = *state_;
  if (std::exchange(state.is_stopped, true)) return absl::OkStatus();
  if (state.server == nullptr) return absl::OkStatus();  // Its destructor stops the rest.
  state.server->SetServing(false);
  if (state.peers != nullptr) state.peers->SetServing(false);
  if (state.http != nullptr) state.http->SetServing(false);
  absl::Status status = state.threads.BeginDrain(state.parts.core);
  drain();
  state.parts.pipeline.WaitUntilIdle(state.stop_grace);
  // Only when no call is open any more: what is accepted after the checkpoint is lost if its round spools nothing.
  if (state.http != nullptr) state.http->Shutdown(state.stop_grace);
  if (state.peers != nullptr) state.peers->Shutdown(state.stop_grace);
  state.server->Shutdown(state.stop_grace);
  status.Update(state.threads.Finish(state.parts.core));
  return status;
}

}  // namespace sheaf
