#include "server/http/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/log_quota.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "server/core/limits/population_share.h"
#include "server/http/connect_call.h"
#include "server/http/connection.h"
#include "server/http/event_loop.h"
#include "server/http/file_routes.h"
#include "server/net/batch_scheduling.h"
#include "server/net/listener.h"

namespace sheaf {
namespace {

struct Peer {
  // "192.0.2.1"; of IPv6, the network: whoever has an address of it has them all.
  std::string address;
  // "ipv4:192.0.2.1:4711", as gRPC writes it.
  std::string name;
};

Peer PeerOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size);
  std::array<char, INET6_ADDRSTRLEN> text = {};
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
    return {.address = text.data(), .name = fmt::format("ipv4:{}:{}", text.data(), ntohs(four.sin_port))};
  }
  auto six = reinterpret_cast<const sockaddr_in6&>(address);
  inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
  const std::string name = fmt::format("ipv6:[{}]:{}", text.data(), ntohs(six.sin6_port));
  if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) return {.address = text.data(), .name = name};
  constexpr size_t kNetworkBytes = 8;
  std::fill(std::begin(six.sin6_addr.s6_addr) + kNetworkBytes, std::end(six.sin6_addr.s6_addr), uint8_t{0});
  inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
  return {.address = text.data(), .name = name};
}

// `find_fault` says why not; nothing: it is well.
Route HealthRoute(std::string path, std::function<std::string_view()> find_fault) {
  return {.path = std::move(path),
          .methods = {HttpMethod::kGet},
          .is_public = true,
          .serve = [find_fault = std::move(find_fault)](HttpRequest&, const ExchangePtr& exchange) {
            const std::string_view fault = find_fault();
            exchange->Answer({.status = fault.empty() ? 200 : 503,
                              .content_type = "text/plain",
                              .headers = "cache-control: no-store\r\n",
                              .body = fmt::format("{}\n", fault.empty() ? "ok" : fault)});
          }};
}

}  // namespace

struct HttpServer::State {
  State(CallPipeline& its_pipeline, const Clock& its_clock, const Options& options)
      : pipeline(its_pipeline),
        clock(its_clock),
        is_encrypted(options.certificates != nullptr),
        origins(options.origins),
        routes(AllRoutes(options.routes)) {
    for (int i = 0; i < EventLoop::NumForThisMachine(); ++i) loops.push_back(std::make_unique<EventLoop>(clock));
  }

  std::vector<Route> AllRoutes(std::vector<Route> all) {
    const auto find_stop = [this]() -> std::string_view { return is_serving ? "" : "the server is stopping"; };
    const auto find_owner = [this, find_stop]() -> std::string_view {
      return pipeline.owns_store() ? find_stop() : "this server does not own the store";
    };
    all.push_back(HealthRoute("/healthz", [] { return std::string_view(); }));
    all.push_back(HealthRoute("/readyz", find_stop));
    all.push_back(HealthRoute("/owner", find_owner));
    for (Route& folder : FileRoutes(pipeline)) all.push_back(std::move(folder));
    for (const MethodRow& method : pipeline.methods().rows()) all.push_back(ConnectRoute(pipeline, method));
    return all;
  }

  void Take(int fd) {
    Peer peer = PeerOf(fd);
    if (!Admit(peer.address)) {
      close(fd);
      return;
    }
    EventLoop& loop = *loops[next_loop++ % loops.size()];
    loop.Post(std::make_shared<Connection>(loop, shared, fd, is_encrypted ? tls.NewSession() : nullptr,
                                           std::move(peer.address), std::move(peer.name)));
  }

  bool Admit(const std::string& address) {
    const Limits& limits = pipeline.limits();
    int64_t own = 0;
    int64_t all = 0;
    {
      MutexLock lock(mutex);
      own = connections.Of(address);
      all = connections.total();
      if (own < connections.Max(address, limits.http_connections_max, limits.population_percent_max)) {
        connections.Add(address, 1);
        return true;
      }
    }
    refusals.Info(clock.Now(), "{}",
                  limits.SentenceOfShare(&Limits::http_connections_max,
                                         fmt::format("a connection is closed: there are {}, {} of them from {}, which "
                                                     "may have",
                                                     all, own, address)));
    return false;
  }
  void OnEnd(const std::string& address) {
    MutexLock lock(mutex);
    connections.Add(address, -1);
    if (connections.total() == 0) none_left.NotifyAll();
  }
  // Whether there is no connection any more, within `timeout`.
  bool WaitUntilClosed(absl::Duration timeout) {
    const absl::Time end = clock.Now() + timeout;
    MutexLock lock(mutex);
    for (absl::Duration left = timeout; connections.total() > 0 && left > absl::ZeroDuration();
         left = timeout == absl::InfiniteDuration() ? timeout : end - clock.Now()) {
      none_left.WaitFor(mutex, left);
    }
    return connections.total() == 0;
  }

  CallPipeline& pipeline;
  const Clock& clock;
  std::atomic<bool> is_serving = true;
  const bool is_encrypted;
  TlsContext tls;
  const Origins origins;
  std::atomic<int64_t> arriving_bytes = 0;
  const RouteTable routes;
  const Connection::Shared shared = {.routes = routes,
                                     .limits = pipeline.limits(),
                                     .origins = origins,
                                     .arriving_bytes = arriving_bytes,
                                     .is_open = [this] { return !pipeline.requires_identity(); },
                                     .on_end = [this](const std::string& address) { OnEnd(address); }};
  std::string listen_address;
  // Null: it was given away.
  std::unique_ptr<Listener> listener;
  std::vector<std::unique_ptr<EventLoop>> loops;
  // The listener's.
  size_t next_loop = 0;
  LogQuota refusals;
  Mutex mutex;
  CondVar none_left;
  // By the address that they came from.
  PopulationShare connections GUARDED_BY(mutex);
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(CallPipeline& pipeline, const Clock& clock,
                                                              Options options) {
  auto state = std::make_unique<State>(pipeline, clock, options);
  if (options.certificates != nullptr) {
    RETURN_IF_ERROR(options.certificates->Subscribe(
        [state = state.get()](const LoadedCertificates& loaded) { return state->tls.Use(loaded); }));
  }
  state->listener = std::move(options.listener);
  if (state->listener == nullptr) {
    ASSIGN_OR_RETURN(state->listener, Listener::Open(options.listen));
  }
  state->listen_address = state->listener->address();
  {
    const BatchScheduling scheduling;
    for (const auto& loop : state->loops) loop->Start([&pipeline](absl::Time now) { pipeline.Tick(now); });
  }
  state->listener->Start([state = state.get()](int fd) { state->Take(fd); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() { Shutdown(absl::ZeroDuration()); }

const std::string& HttpServer::address() const { return state_->listen_address; }

void HttpServer::SetServing(bool is_serving) { state_->is_serving = is_serving; }

void HttpServer::Shutdown(absl::Duration grace) {
  state_->listener->Stop();
  for (const bool at_once : {false, true}) {
    for (const auto& loop : state_->loops) loop->StopClients(at_once);
    state_->WaitUntilClosed(at_once ? absl::InfiniteDuration() : grace);
  }
  for (const auto& loop : state_->loops) loop->Stop();
}

}  // namespace sheaf
