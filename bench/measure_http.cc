// HTTP/1.1 beside gRPC, in turns: the CPU of a durable task and of an echo, in the clear and over TLS; as many parked
// polls as there may be, each on a connection of its own, and how soon they are told; large contributions; metrics.
#include "bench/measure_http.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <unordered_map>

#include "base/checksum.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/closed_loop.h"
#include "bench/http_clients.h"
#include "bench/http_served.h"
#include "bench/rounds.h"
#include "bench/self_signed.h"
#include "bench/sync_loop.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {
namespace {

// --- Servers and calls ----------------------------------------------------------------------------------------------

template <typename Response>
absl::StatusOr<Response> Parsed(const absl::StatusOr<std::string>& body) {
  RETURN_IF_ERROR(body.status());
  Response response;
  if (!response.ParseFromString(*body)) return absl::InternalError("the answer is not what it should be");
  return response;
}

// One call, in the caller's thread.
template <typename M>
absl::StatusOr<typename M::Response> Ask(HttpClients& clients, const M& method, const typename M::Request& request) {
  Mutex mutex;
  CondVar answered;
  std::optional<absl::StatusOr<std::string>> answer;
  clients.Post(0, method.name, request.SerializeAsString(), [&](absl::StatusOr<std::string> body) {
    MutexLock lock(mutex);
    answer = std::move(body);
    answered.NotifyAll();
  });
  MutexLock lock(mutex);
  while (!answer) answered.Wait(mutex);
  return Parsed<typename M::Response>(*answer);
}

// --- The CPU of a task ----------------------------------------------------------------------------------------------

// As bench/sync_loop.cc's, over HTTP.
class HttpSyncCaller final : public Caller {
 public:
  HttpSyncCaller(HttpClients& clients, int worker, const std::string& contribution)
      : clients_(clients), worker_(worker), name_(fmt::format("worker-{}", worker)), contribution_(contribution) {}

  void Next(Answered answered) override {
    v1::SyncRequest request = APoll(name_, ++num_polls_, 1, absl::Seconds(5));
    for (const v1::Lease& lease : response_.leases()) AddResult(lease, contribution_, request);
    clients_.Post(
        worker_, kSync.name, request.SerializeAsString(), [this, answered](const absl::StatusOr<std::string>& body) {
          absl::StatusOr<v1::SyncResponse> response = Parsed<v1::SyncResponse>(body);
          if (!response.ok()) return answered(response.status());
          response_ = *std::move(response);
          int64_t num_accepted = 0;
          for (const v1::ResultVerdict& verdict : response_.verdicts()) {
            if (verdict.verdict() != v1::ResultVerdict::ACCEPTED) {
              return answered(absl::InternalError("a result was not accepted: " + verdict.ShortDebugString()));
            }
            ++num_accepted;
          }
          answered(num_accepted);
        });
  }

 private:
  HttpClients& clients_;
  const int worker_;
  const std::string name_;
  const std::string& contribution_;
  v1::SyncResponse response_;
  int64_t num_polls_ = 0;
};

class HttpEchoCaller final : public Caller {
 public:
  HttpEchoCaller(HttpClients& clients, int connection) : clients_(clients), connection_(connection) {}
  void Next(Answered answered) override {
    clients_.Post(connection_, "echo", std::string(1200, 'e'), [answered](const absl::StatusOr<std::string>& body) {
      if (!body.ok()) return answered(body.status());
      answered(1);
    });
  }

 private:
  HttpClients& clients_;
  const int connection_;
};

const SyncLoad kLoad = {.workers = 64, .batch = 1, .num_rounds = 2, .tasks_per_round = 100'000};

absl::StatusOr<double> GrpcTaskMicros(const Setup& setup, const SelfSigned* tls) {
  ASSIGN_OR_RETURN(const HttpServed served, StartHttp(setup, tls));
  ASSIGN_OR_RETURN(const LoopResult result, RunSyncLoop(setup, {served.server.get()}, kLoad, SecurityOf(tls)));
  return result.cpu_micros_per_unit();
}

absl::StatusOr<LoopResult> RunHttpTasks(const Setup& setup, const SelfSigned* tls) {
  ASSIGN_OR_RETURN(const HttpServed served, StartHttp(setup, tls));
  {
    GrpcTransport submitter(served.server->address(), {.security = SecurityOf(tls), .own_connection = true});
    for (int i = 0; i < kLoad.num_rounds; ++i) {
      RETURN_IF_ERROR(CreateRound(submitter, fmt::format("round-{}", i), kLoad.tasks_per_round).status());
    }
  }
  const std::string contribution = AContribution();
  HttpClients clients(served.address, {.authority = AuthorityOf(tls)});
  RETURN_IF_ERROR(clients.Open(kLoad.workers));
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < kLoad.workers; ++i) callers.push_back(std::make_unique<HttpSyncCaller>(clients, i, contribution));
  return RunClosedLoop(setup.clock, callers, {.duration = setup.duration}, [&] { return served.server->cpu_time(); });
}

absl::StatusOr<double> HttpEchoMicros(const Setup& setup, const SelfSigned* tls) {
  std::vector<std::string> words = {setup.self, "--http-echo-server"};
  if (tls != nullptr) words.insert(words.end(), {"--tls-cert", tls->certificate, "--tls-key", tls->key});
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server,
                   ChildProcess::Start({.words = words, .variables = {}, .cpu = setup.server_cpu}));
  HttpClients clients(server->address(), {.authority = AuthorityOf(tls)});
  RETURN_IF_ERROR(clients.Open(kLoad.workers));
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < kLoad.workers; ++i) callers.push_back(std::make_unique<HttpEchoCaller>(clients, i));
  ASSIGN_OR_RETURN(const LoopResult result, RunClosedLoop(setup.clock, callers, {.duration = setup.duration},
                                                          [&] { return server->cpu_time(); }));
  return result.cpu_micros_per_unit();
}

absl::Status MeasureTasks(const Setup& setup, const SelfSigned* tls, const char* target, Table& table) {
  std::vector<double> rates, http, grpc, ratios, echo;
  for (int i = 0; i < setup.repeats; ++i) {
    ASSIGN_OR_RETURN(const double of_grpc, GrpcTaskMicros(setup, tls));
    ASSIGN_OR_RETURN(const LoopResult of_http, RunHttpTasks(setup, tls));
    ASSIGN_OR_RETURN(const double of_echo, HttpEchoMicros(setup, tls));
    rates.push_back(of_http.units_per_second());
    http.push_back(of_http.cpu_micros_per_unit());
    grpc.push_back(of_grpc);
    ratios.push_back(of_http.cpu_micros_per_unit() / of_grpc);
    echo.push_back(of_echo);
  }
  table.Add({.what = fmt::format("{} workers, 1 per Sync{}", kLoad.workers, tls == nullptr ? "" : ", TLS"),
             .figure = fmt::format("{:.0f} tasks/s, {:.3f} ms server CPU per task", Quantile(rates, 0.5),
                                   Quantile(http, 0.5) / 1000),
             .ratio = fmt::format("{:.2f}x of gRPC's {:.3f} ms; Beast echoes at {:.3f} ms", Quantile(ratios, 0.5),
                                  Quantile(grpc, 0.5) / 1000, Quantile(echo, 0.5) / 1000),
             .target = target});
  return absl::OkStatus();
}

// --- Parked polls ---------------------------------------------------------------------------------------------------

// Workers that wait, each on its connection, and hand in what they are given.
class ParkedWorkers {
 public:
  ParkedWorkers(const Clock& clock, HttpClients& clients)
      : clock_(clock), clients_(clients), contribution_(AContribution()) {}

  // Workers `begin` to `end`.
  void Park(int begin, int end) {
    for (int i = begin; i < end; ++i) Poll(i, nullptr);
  }
  // What they are given from now on they keep.
  void StopWorking() { works_ = false; }

  int64_t num_leases() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return num_leases_;
  }
  // When so many leases had come; the first failure, or DEADLINE_EXCEEDED after a minute.
  absl::StatusOr<absl::Time> WaitForLeases(int64_t count) EXCLUDES(mutex_) {
    const absl::Time end = clock_.Now() + absl::Minutes(1);
    MutexLock lock(mutex_);
    while (num_leases_ < count && failure_.ok()) {
      if (clock_.Now() > end) return absl::DeadlineExceededError(fmt::format("{} leases came", num_leases_));
      came_.WaitFor(mutex_, absl::Seconds(1));
    }
    RETURN_IF_ERROR(failure_);
    return last_;
  }

 private:
  void Poll(int worker, const v1::SyncResponse* last) {
    v1::SyncRequest request = APoll(fmt::format("parked-{}", worker), ++num_polls_, 1, absl::Seconds(60));
    if (last != nullptr) {
      for (const v1::Lease& lease : last->leases()) AddResult(lease, contribution_, request);
    }
    clients_.Post(worker, kSync.name, request.SerializeAsString(),
                  [this, worker](const absl::StatusOr<std::string>& body) {
                    const absl::StatusOr<v1::SyncResponse> response = Parsed<v1::SyncResponse>(body);
                    MutexLock lock(mutex_);
                    failure_.Update(response.status());
                    if (!response.ok()) return came_.NotifyAll();
                    if (!response->leases().empty()) {
                      ++num_leases_;
                      last_ = clock_.Now();
                      came_.NotifyAll();
                    }
                    if (works_ || response->leases().empty()) Poll(worker, &*response);
                  });
  }

  const Clock& clock_;
  HttpClients& clients_;
  const std::string contribution_;
  std::atomic<int64_t> num_polls_ = 0;
  std::atomic<bool> works_ = true;
  Mutex mutex_;
  CondVar came_;
  int64_t num_leases_ GUARDED_BY(mutex_) = 0;
  absl::Time last_ GUARDED_BY(mutex_);
  absl::Status failure_ GUARDED_BY(mutex_);
};

// As many as are asked for, or as the system lets a process have files.
int NumParked() {
  constexpr int kWanted = 50'000;
  // What the server keeps back for its stores (server/net/listener.cc).
  constexpr rlim_t kOtherFiles = 5'000;
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  return static_cast<int>(std::min<rlim_t>(kWanted, files.rlim_cur - kOtherFiles));
}

absl::Status MeasureParked(const Setup& setup, const SelfSigned* tls, const char* target, Table& table) {
  const int count = NumParked();
  const std::string what = fmt::format("{} parked polls, a connection each{}", count, tls == nullptr ? "" : ", TLS");
  ASSIGN_OR_RETURN(const HttpServed served, StartHttp(setup, tls, {"--population-percent-max", "100"}));
  GrpcTransport submitter(served.server->address(), {.security = SecurityOf(tls), .own_connection = true});
  RETURN_IF_ERROR(BlockingCall(submitter, kGetServerInfo, {}).status());
  const int64_t idle = served.server->rss_bytes();
  HttpClients clients(served.address, {.authority = AuthorityOf(tls)});
  ParkedWorkers workers(setup.clock, clients);
  const auto wait_until_parked = [&](int num_parked) -> absl::Status {
    const absl::Time end = setup.clock.Now() + absl::Minutes(1);
    while (setup.clock.Now() < end) {
      ASSIGN_OR_RETURN(const v1::DescribeQueueResponse queue, BlockingCall(submitter, kDescribeQueue, {}));
      if (queue.num_parked_polls() == num_parked) return absl::OkStatus();
      RETURN_IF_ERROR(workers.WaitForLeases(0).status());
    }
    return absl::DeadlineExceededError("not all were parked");
  };
  // More at once would be an overload.
  constexpr int kAtOnce = 1'000;
  for (int begin = 0; begin < count; begin += kAtOnce) {
    const int end = std::min(begin + kAtOnce, count);
    RETURN_IF_ERROR(clients.Open(end - begin));
    workers.Park(begin, end);
    RETURN_IF_ERROR(wait_until_parked(end));
  }
  const int64_t parked = served.server->rss_bytes();
  table.Add({.what = what,
             .figure = fmt::format("{:.1f} KiB each", static_cast<double>(parked - idle) / count / 1024),
             .ratio = "",
             .target = target});

  std::vector<double> millis;
  for (int i = 0; i < 300; ++i) {
    // What came before is handed in.
    RETURN_IF_ERROR(wait_until_parked(count));
    const int64_t before = workers.num_leases();
    const absl::Time start = setup.clock.Now();
    RETURN_IF_ERROR(CreateRound(submitter, fmt::format("wake-{}", i), 1).status());
    ASSIGN_OR_RETURN(const absl::Time came, workers.WaitForLeases(before + 1));
    millis.push_back(absl::ToDoubleMilliseconds(came - start));
  }
  table.Add({.what = "a task that is enqueued reaches one of them",
             .figure = fmt::format("p50 {:.2f} ms, p99 {:.2f} ms", Quantile(millis, 0.5), Quantile(millis, 0.99)),
             .ratio = "",
             .target = "p99 <= 5 ms"});

  RETURN_IF_ERROR(wait_until_parked(count));
  workers.StopWorking();
  const int64_t before = workers.num_leases();
  const absl::Time start = setup.clock.Now();
  RETURN_IF_ERROR(CreateRound(submitter, "all", count).status());
  ASSIGN_OR_RETURN(const absl::Time came, workers.WaitForLeases(before + count));
  table.Add({.what = "a task each reaches all of them",
             .figure = fmt::format("{:.2f} s", absl::ToDoubleSeconds(came - start)),
             .ratio = "",
             .target = "<= 2 s for 50,000"});
  return absl::OkStatus();
}

// --- Large contributions, and metrics -------------------------------------------------------------------------------

absl::Status MeasureUpload(const Setup& setup, Table& table) {
  constexpr int64_t kElements = 1 << 20;
  constexpr int64_t kChunkBytes = 1 << 20;
  constexpr int kCount = 200;
  ASSIGN_OR_RETURN(const HttpServed served, StartHttp(setup, nullptr));
  HttpClients clients(served.address, {});
  RETURN_IF_ERROR(clients.Open(1));
  RETURN_IF_ERROR(Ask(clients, kCreateRound, ARound("round", kCount, kElements)).status());
  std::string contribution = AContribution(kElements);
  v1::SyncRequest poll = APoll("worker", 0, 1, absl::Seconds(5));
  const absl::Duration cpu_before = served.server->cpu_time();
  for (int i = 0; i < kCount; ++i) {
    ASSIGN_OR_RETURN(const v1::SyncResponse response, Ask(clients, kSync, poll));
    if (response.leases().empty()) return absl::InternalError("there is no task");
    const v1::Lease& lease = response.leases(0);
    // Another sign somewhere in the values, so that no two have the same digest.
    contribution[contribution.size() / 2 + static_cast<size_t>(i) * 4] ^= 1;
    v1::StartUploadRequest start;
    start.set_request_id(fmt::format("upload-{}", i));
    start.set_size_bytes(static_cast<int64_t>(contribution.size()));
    start.set_digest(Sha256Hex(contribution));
    start.mutable_contribution()->set_task(lease.task());
    start.mutable_contribution()->set_lease_token(lease.lease_token());
    ASSIGN_OR_RETURN(const v1::StartUploadResponse started, Ask(clients, kStartUpload, start));
    for (size_t offset = 0; offset < contribution.size(); offset += kChunkBytes) {
      v1::WriteChunkRequest chunk;
      chunk.set_upload_id(started.upload_id());
      chunk.set_offset(static_cast<int64_t>(offset));
      chunk.set_data(contribution.substr(offset, kChunkBytes));
      RETURN_IF_ERROR(Ask(clients, kWriteChunk, chunk).status());
    }
    v1::FinishUploadRequest finish;
    finish.set_upload_id(started.upload_id());
    RETURN_IF_ERROR(Ask(clients, kFinishUpload, finish).status());
    poll = APoll("worker", i + 1, i + 1 < kCount ? 1 : 0, absl::ZeroDuration());
    v1::TaskResult& result = *poll.add_results();
    result.set_task(lease.task());
    result.set_lease_token(lease.lease_token());
    result.set_upload_id(started.upload_id());
  }
  ASSIGN_OR_RETURN(const v1::SyncResponse last, Ask(clients, kSync, poll));
  if (last.verdicts().empty() || last.verdicts(0).verdict() != v1::ResultVerdict::ACCEPTED) {
    return absl::InternalError("the last contribution was not accepted: " + last.ShortDebugString());
  }
  const absl::Duration cpu = served.server->cpu_time() - cpu_before;
  table.Add({.what = "contributions of 4 MiB to a dense sum (float32, EXACT)",
             .figure = fmt::format("{:.2f} ms server CPU each", absl::ToDoubleMilliseconds(cpu) / kCount),
             .ratio = "",
             .target = "<= 5 ms"});
  return absl::OkStatus();
}

absl::Status MeasureMetrics(const Setup& setup, Table& table) {
  ASSIGN_OR_RETURN(const HttpServed served, StartHttp(setup, nullptr));
  GrpcTransport submitter(served.server->address(), {.own_connection = true});
  RETURN_IF_ERROR(CreateRound(submitter, "round", 100'000).status());
  HttpClients clients(served.address, {});
  RETURN_IF_ERROR(clients.Open(1));
  std::vector<double> millis;
  for (int i = 0; i < 100; ++i) {
    Mutex mutex;
    CondVar answered;
    std::optional<absl::Status> status;
    const absl::Time start = setup.clock.Now();
    clients.Get(0, "/metrics", [&](const absl::StatusOr<std::string>& body) {
      MutexLock lock(mutex);
      status = body.status();
      answered.NotifyAll();
    });
    MutexLock lock(mutex);
    while (!status) answered.Wait(mutex);
    RETURN_IF_ERROR(*status);
    millis.push_back(absl::ToDoubleMilliseconds(setup.clock.Now() - start));
  }
  table.Add({.what = "GET /metrics with 100,000 tasks",
             .figure = fmt::format("p50 {:.2f} ms, p99 {:.2f} ms", Quantile(millis, 0.5), Quantile(millis, 0.99)),
             .ratio = "",
             .target = "<= 5 ms"});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureHttp(const Setup& setup, Table& table) {
  ASSIGN_OR_RETURN(const SelfSigned tls, MakeSelfSigned(setup));
  const auto is_wanted = [&](std::string_view part) { return part.find(setup.row) != std::string_view::npos; };
  if (is_wanted("cycles")) {
    RETURN_IF_ERROR(MeasureTasks(setup, nullptr, "<= 0.85x", table));
    RETURN_IF_ERROR(MeasureTasks(setup, &tls, "<= 0.7x", table));
  }
  if (is_wanted("contributions")) RETURN_IF_ERROR(MeasureUpload(setup, table));
  if (is_wanted("metrics")) RETURN_IF_ERROR(MeasureMetrics(setup, table));
  if (is_wanted("overload")) {
    RETURN_IF_ERROR(MeasureHttpOverload(setup, nullptr, table));
    RETURN_IF_ERROR(MeasureHttpOverload(setup, &tls, table));
  }
  if (is_wanted("parked")) {
    RETURN_IF_ERROR(MeasureParked(setup, nullptr, "<= 6 KiB", table));
    RETURN_IF_ERROR(MeasureParked(setup, &tls, "<= 30 KiB", table));
  }
  return absl::OkStatus();
}

}  // namespace sheaf::bench
