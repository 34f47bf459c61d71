// Workers by gRPC while others overload the server by HTTP/1.1: ten times as many calls as it can do by HTTP, under a
// token of another identity, whatever it answers. In turns on one server: the workers alone, and beside the crowd.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <fstream>
#include <thread>

#include "base/mutex.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/crowd.h"
#include "bench/http_clients.h"
#include "bench/http_served.h"
#include "bench/measure_http.h"
#include "bench/rounds.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {
namespace {

constexpr double kFactor = 10;
// Of each turn, which is not measured.
constexpr absl::Duration kWarmUp = absl::Milliseconds(500);
// Of the crowd, and hence as many connections.
constexpr int kCalls = 2'000;
constexpr int kNumWorkers = 32;
// What a worker's computation takes: all of them need a fraction of the server, as workers do.
constexpr absl::Duration kCompute = absl::Milliseconds(20);

// Workers by gRPC, each on a connection of its own, which compute for a while between two calls.
class Workers {
 public:
  Workers(const Clock& clock, const std::string& address, const ChannelSecurity& security)
      : clock_(clock), contribution_(AContribution()) {
    for (int i = 0; i < kNumWorkers; ++i) {
      workers_.push_back(std::make_unique<Worker>());
      workers_.back()->name = fmt::format("worker-{}", i);
      workers_.back()->transport =
          std::make_unique<GrpcTransport>(address, ChannelOptions{.security = security, .own_connection = true});
    }
    num_running_ = kNumWorkers;
    for (const auto& worker : workers_) Sync(*worker);
  }
  ~Workers() {
    is_ending_ = true;
    // A call may be answered before the thread that made it is out of its transport.
    while (num_running_ > 0 || num_calling_ > 0) Pause(absl::Milliseconds(1));
  }

  // How long the calls took since the last time, or the first failure.
  absl::StatusOr<std::vector<double>> TakeMillis() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(failure_);
    if (millis_.empty()) return absl::DeadlineExceededError("no call of the workers ended in all this time");
    return std::exchange(millis_, {});
  }

 private:
  struct Worker {
    std::string name;
    int64_t num_polls = 0;
    v1::SyncResponse response;
    std::unique_ptr<GrpcTransport> transport;
  };

  void Sync(Worker& worker) {
    ++num_calling_;
    v1::SyncRequest request = APoll(worker.name, ++worker.num_polls, 1, absl::Seconds(5));
    for (const v1::Lease& lease : worker.response.leases()) AddResult(lease, contribution_, request);
    worker.response.Clear();
    const absl::Time start = clock_.Now();
    worker.transport->CallMethod(
        kSync.name, request, &worker.response, {.timeout = absl::Seconds(60)},
        [this, &worker, start](const absl::Status& status) { Answered(worker, start, status); });
    --num_calling_;
  }
  void Answered(Worker& worker, absl::Time start, const absl::Status& status) EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      failure_.Update(status);
      if (status.ok() && worker.response.leases().empty()) failure_.Update(absl::InternalError("there is no task"));
      millis_.push_back(absl::ToDoubleMilliseconds(clock_.Now() - start));
    }
    if (is_ending_ || !status.ok()) {
      --num_running_;
      return;
    }
    timer_.After(kCompute, [this, &worker] { Sync(worker); });
  }

  const Clock& clock_;
  const std::string contribution_;
  std::atomic<bool> is_ending_ = false;
  std::atomic<int> num_running_ = 0;
  std::atomic<int> num_calling_ = 0;
  GrpcTimer timer_;
  Mutex mutex_;
  std::vector<double> millis_ GUARDED_BY(mutex_);
  absl::Status failure_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Worker>> workers_;
};

// Calls by HTTP, each on a connection that has no other open. libcurl would take more of the one CPU that offers them
// all.
class HttpCalls final : public Transport {
 public:
  HttpCalls(const std::string& address, const HttpClients::Options& options) : clients_(address, options) {}

  // As many calls as may be open.
  absl::Status Open(int count) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    for (int i = 0; i < count; ++i) idle_.push_back(i);
    return clients_.Open(count);
  }
  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& /*options*/, Done done) override
      EXCLUDES(mutex_) {
    int connection = 0;
    {
      MutexLock lock(mutex_);
      connection = idle_.front();
      idle_.pop_front();
    }
    clients_.Post(connection, method, request.SerializeAsString(),
                  [this, connection, response, done = std::move(done)](const absl::StatusOr<std::string>& body) {
                    {
                      MutexLock lock(mutex_);
                      idle_.push_back(connection);
                    }
                    if (!body.ok()) return done(body.status());
                    done(response->ParseFromString(*body) ? absl::OkStatus() : absl::InternalError("no answer"));
                  });
  }

 private:
  Mutex mutex_;
  // In turns: the server hangs up on those that never asked anything.
  std::deque<int> idle_ GUARDED_BY(mutex_);
  HttpClients clients_;
};

// The crowd's threads get this process's CPU after the workers': what is measured is the server, and not who waits
// here.
void RunLater() { setpriority(PRIO_PROCESS, 0, 5); }

struct Figures {
  // Of the workers, one of each turn.
  std::vector<double> alone_rates, alone_p50, alone_p99, beside_rates, beside_p50, beside_p99, ratios;
  // Of the crowd.
  double capacity = 0;
  std::vector<double> factors, accepted, refused;
  int64_t without_hint = 0;
  int64_t failed = 0;
};

absl::StatusOr<Figures> MeasureInTurns(const Setup& setup, const HttpServed& served,
                                       const HttpClients::Options& options, Workers& workers) {
  auto calls = std::make_unique<HttpCalls>(served.address, options);
  RETURN_IF_ERROR(calls->Open(kCalls));
  std::vector<std::unique_ptr<Transport>> connections;
  connections.push_back(std::move(calls));
  Crowd crowd(setup.clock, std::move(connections), kCalls);
  const double seconds = absl::ToDoubleSeconds(setup.duration);
  Figures f;
  crowd.CallClosed(64, setup.clock.Now() + absl::Seconds(1));
  crowd.TakeCounts();
  crowd.CallClosed(64, setup.clock.Now() + setup.duration);
  f.capacity = static_cast<double>(crowd.TakeCounts().answered) / seconds;
  for (int i = 0; i < setup.repeats; ++i) {
    Pause(kWarmUp);
    RETURN_IF_ERROR(workers.TakeMillis().status());
    Pause(setup.duration);
    ASSIGN_OR_RETURN(std::vector<double> alone, workers.TakeMillis());
    crowd.CallOpen(kFactor * f.capacity, kWarmUp);
    RETURN_IF_ERROR(workers.TakeMillis().status());
    crowd.TakeCounts();
    crowd.CallOpen(kFactor * f.capacity, setup.duration);
    const Crowd::Counts counts = crowd.TakeCounts();
    ASSIGN_OR_RETURN(std::vector<double> beside, workers.TakeMillis());
    crowd.WaitUntilIdle();
    f.alone_rates.push_back(static_cast<double>(alone.size()) / seconds);
    f.alone_p50.push_back(Quantile(alone, 0.5));
    f.alone_p99.push_back(Quantile(alone, 0.99));
    f.beside_rates.push_back(static_cast<double>(beside.size()) / seconds);
    f.beside_p50.push_back(Quantile(beside, 0.5));
    f.beside_p99.push_back(Quantile(beside, 0.99));
    f.ratios.push_back(f.beside_p99.back() / f.alone_p99.back());
    f.factors.push_back(static_cast<double>(counts.offered) / seconds / f.capacity);
    f.accepted.push_back(static_cast<double>(counts.answered) / seconds);
    f.refused.push_back(static_cast<double>(counts.refused) / seconds);
    f.without_hint += counts.without_hint;
    f.failed += counts.failed;
  }
  if (f.failed > 0) fmt::print(stderr, "the first failure: {}\n", crowd.first_failure().ToString());
  return f;
}

}  // namespace

absl::Status MeasureHttpOverload(const Setup& setup, const SelfSigned* tls, Table& table) {
  ASSIGN_OR_RETURN(const HttpServed served, StartHttp(setup, tls));
  ChannelSecurity of_operator = SecurityOf(tls);
  ChannelSecurity of_workers = of_operator;
  ChannelSecurity of_crowd = of_operator;
  ASSIGN_OR_RETURN(of_operator.token_file,
                   MakeToken(setup, *served.server, of_operator, "operator", {v1::OPERATOR, v1::SUBMITTER}));
  ASSIGN_OR_RETURN(of_workers.token_file, MakeToken(setup, *served.server, of_operator, "fleet", {v1::WORKER}));
  ASSIGN_OR_RETURN(of_crowd.token_file, MakeToken(setup, *served.server, of_operator, "crowd", {v1::WORKER}));
  GrpcTransport submitter(served.server->address(), {.security = of_operator, .own_connection = true});
  for (int i = 0; i < 2; ++i) {
    RETURN_IF_ERROR(CreateRound(submitter, fmt::format("round-{}", i), 100'000).status());
    RETURN_IF_ERROR(Crowd::CreateRound(submitter, fmt::format("crowd-{}", i), 100'000).status());
  }

  std::string token;
  std::ifstream(of_crowd.token_file) >> token;
  Workers workers(setup.clock, served.server->address(), of_workers);
  absl::StatusOr<Figures> figures = absl::UnknownError("not measured");
  // A thread of its own, whose priority its threads inherit.
  std::thread([&] {
    RunLater();
    figures = MeasureInTurns(setup, served, {.authority = AuthorityOf(tls), .token = token}, workers);
  }).join();
  RETURN_IF_ERROR(figures.status());
  Figures& f = *figures;
  table.Add({.what = fmt::format("{} workers by gRPC, 20 ms of computing between calls{}", kNumWorkers,
                                 tls == nullptr ? "" : ", TLS"),
             .figure = fmt::format("alone: {:.0f} calls/s, p50 {:.1f} ms, p99 {:.1f} ms", Quantile(f.alone_rates, 0.5),
                                   Quantile(f.alone_p50, 0.5), Quantile(f.alone_p99, 0.5)),
             .ratio = "",
             .target = ""});
  table.Add({.what = fmt::format("beside {:.1f}x of the {:.0f} calls/s that the server takes by HTTP",
                                 Quantile(f.factors, 0.5), f.capacity),
             .figure = fmt::format(
                 "{:.0f} calls/s, p50 {:.1f} ms, p99 {:.1f} ms; by HTTP {:.0f}/s accepted, {:.0f}/s refused, "
                 "{} of them without a hint, {} failed",
                 Quantile(f.beside_rates, 0.5), Quantile(f.beside_p50, 0.5), Quantile(f.beside_p99, 0.5),
                 Quantile(f.accepted, 0.5), Quantile(f.refused, 0.5), f.without_hint, f.failed),
             .ratio = fmt::format("p99 {:.1f}x", Quantile(f.ratios, 0.5)),
             .target = "<= 2x"});
  return absl::OkStatus();
}

}  // namespace sheaf::bench
