#include "server/runtime.h"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "base/cpu_time.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "server/http/http_server.h"
#include "server/metrics/metrics_route.h"
#include "server/metrics/metrics_text.h"
#include "server/net/certificate_watch.h"
#include "server/rpc/grpc_server.h"
#include "server/threads/aggregation_pool.h"
#include "server/threads/call_threads.h"
#include "server/threads/core_thread.h"
#include "server/threads/strand_pool.h"
#include "server/web/dashboard_routes.h"
#include "server/web/join_routes.h"

namespace sheaf {
namespace {

// Beside the core: folds and checkpoints are long, and wait for the disk; receptions are short, and each of them has a
// worker waiting. All of them together leave the operating system to share the machine's cores fairly with the core's
// thread.
constexpr int kFoldThreads = 2;
constexpr int kReceptionThreads = 4;
// The last checkpoints take no longer: with all else a stop has to do this is well within the 30 s that a service
// manager gives it (deploy/systemd). What is not saved then is in the spool, or asked for again.
constexpr absl::Duration kLastCheckpointsMax = absl::Seconds(10);

// Without destructors: they might write.
void EndProcess(const absl::Status& status) {
  if (absl::IsAborted(status)) {
    LogError(
        "stopping at once, because the store is no longer this server's: {}; start it again, and it takes the store "
        "when that is free",
        std::string(status.message()));
  } else {
    LogError("stopping at once, because what is on disk is not known: {}; restart the server when the disk works again",
             status.ToString());
  }
  _exit(1);
}

}  // namespace

struct Runtime::State {
  State(TaskStore& its_store, PayloadStore& payloads, const Clock& its_clock, Random& random, Options& options)
      : clock(its_clock),
        store(its_store),
        stop_grace(options.stop_grace),
        thread(its_clock, EndProcess, options.idle_max),
        calls(static_cast<int>(options.limits.call_threads_max)),
        parts(its_store, payloads, thread, random, its_clock,
              {.limits = options.limits,
               .data_directory = options.data_directory,
               .requires_tokens = options.requires_tokens,
               .parallel = &pool,
               .folds = &folds,
               .receptions = &receptions,
               .watch = MonotonicTime},
              &calls, options.forwarding),
        join(std::move(options.join)) {}

  // What runs knows the parts, which are destroyed before their threads are.
  ~State() {
    receptions.Stop();
    folds.Stop();
    thread.Stop();
    // It tells the transports.
    certificates.reset();
    http.reset();
    peers.reset();
    server.reset();
    calls.Stop();
  }

  // Runs what is left to do beside the core, and what comes of it in the core.
  void FinishFolds(absl::Duration timeout) {
    const absl::Time end = clock.Now() + timeout;
    for (bool is_idle = false; !is_idle && clock.Now() < end;) {
      if (!folds.WaitUntilIdle(clock, end - clock.Now())) return;
      // What it posted may give it more to do.
      if (!thread.RunInBatch([](absl::Time) {}).ok()) return;
      is_idle = folds.WaitUntilIdle(clock, absl::ZeroDuration());
    }
  }

  const Clock& clock;
  // The core's.
  TaskStore& store;
  const absl::Duration stop_grace;
  CoreThread thread;
  AggregationPool pool;
  StrandPool folds{kFoldThreads};
  StrandPool receptions{kReceptionThreads};
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

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Start(TaskStore& store, PayloadStore& payloads, const Clock& clock,
                                                        Random& random, Options options) {
  auto state = std::make_unique<State>(store, payloads, clock, random, options);
  RETURN_IF_ERROR(state->parts.core.Recover(clock.Now()));
  if (options.requires_tokens && !state->parts.core.access().HasOperator(clock.Now())) {
    return absl::FailedPreconditionError(fmt::format(
        "refusing to listen on {} without a token: other machines reach it, and nobody could be let in; make "
        "an operator's with `sheafd --create-operator-token --data-dir {}`, or listen on 127.0.0.1",
        options.listen, options.data_directory));
  }
  state->metrics.emplace(MetricSources{.core = state->parts.core.figures(),
                                       .batches = state->thread.figures(),
                                       .admission = state->parts.admission,
                                       .pipeline = state->parts.pipeline,
                                       .payloads = payloads,
                                       .unfolded = state->parts.core.unfolded(),
                                       .certificate = state->parts.certificate,
                                       .limits = state->parts.core.limits(),
                                       .store = store.GetInfo().engine,
                                       .start_time = state->parts.core.start_time()});
  State& started = *state;
  auto runtime = std::unique_ptr<Runtime>(new Runtime(std::move(state)));
  started.thread.Start(started.parts.runner, started.parts.core);
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
  RETURN_IF_ERROR(state_->thread.RunInBatch([&](absl::Time now) {
    status = ReplaceTokens(state_->store, tokens);
    if (status.ok()) status = state_->parts.core.access().Reload(now);
  }));
  return status;
}

Doors Runtime::TakeDoors() {
  return {.rpc = state_->server->TakeListener(),
          .http = state_->http != nullptr ? state_->http->TakeListener() : nullptr};
}

absl::Status Runtime::Stop() {
  State& state = *state_;
  if (std::exchange(state.is_stopped, true)) return absl::OkStatus();
  if (state.server == nullptr) return absl::OkStatus();  // Its destructor stops the rest.
  state.server->SetServing(false);
  if (state.peers != nullptr) state.peers->SetServing(false);
  if (state.http != nullptr) state.http->SetServing(false);
  absl::Status status = state.thread.RunInBatch([&](absl::Time now) { state.parts.core.BeginDrain(now); });
  state.parts.pipeline.WaitUntilIdle(state.stop_grace);
  // Only when no call is open any more: what is accepted after the checkpoint is lost if its round spools nothing.
  if (state.http != nullptr) state.http->Shutdown(state.stop_grace);
  if (state.peers != nullptr) state.peers->Shutdown(state.stop_grace);
  state.server->Shutdown(state.stop_grace);
  status.Update(state.thread.RunInBatch([&](absl::Time now) { state.parts.core.CheckpointAll(now); }));
  state.FinishFolds(kLastCheckpointsMax);
  state.receptions.Stop();
  state.folds.Stop();
  state.thread.Stop();
  return status;
}

}  // namespace sheaf
