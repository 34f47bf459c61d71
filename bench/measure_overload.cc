// More than the server can do: ten thousand parked polls, and calls that come ten times as fast as it completes them,
// whatever it answers. What it refuses, how long what it accepts takes, what an operator sees meanwhile, how much
// memory it takes; and afterwards whether every task was counted, once.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "aggregation/wire/safetensors.h"
#include "base/mutex.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/crowd.h"
#include "bench/noop_workers.h"
#include "bench/rounds.h"
#include "proto/time.h"
#include "sdk/cpp/client/grpc_transport.h"
#include "sdk/cpp/client/round_client.h"

namespace sheaf::bench {
namespace {

constexpr int kParked = 10'000;
// Below calls_per_connection_max each.
constexpr int kConnections = 32;
// Connections of the polls and of the crowd, and what the server keeps back.
constexpr rlim_t kFilesNeeded = kParked + kConnections + 5'000;
constexpr int kTasks = 30'000;
// Workers that take part; as many calls may be open.
constexpr int kWorkers = 15'000;
constexpr double kFactor = 10;
constexpr absl::Duration kOverload = absl::Seconds(10);

// Polls that nothing can be given to: what they offer nobody asks for. One that is refused comes back when it is told
// to, as a worker does: on a slow machine their coming alone is more than the server does at once.
class ParkedPolls {
 public:
  ParkedPolls(const std::string& address, int num_polls, int num_connections) {
    for (int i = 0; i < num_connections; ++i) {
      connections_.push_back(std::make_unique<GrpcTransport>(address, ChannelOptions{.own_connection = true}));
    }
    for (int i = 0; i < num_polls; ++i) {
      Poll(i);
      // All at once would be an overload already.
      if (i % 200 == 199) Pause(absl::Milliseconds(50));
    }
  }
  ~ParkedPolls() {
    is_ending_ = true;
    connections_.clear();
    while (num_paused_ > 0) Pause(absl::Milliseconds(1));
  }

  int64_t num_refused() const { return num_refused_; }
  // Of a poll that did not come back.
  absl::Status first_failure() {
    MutexLock lock(mutex_);
    return first_failure_;
  }

 private:
  void Poll(int i) {
    v1::SyncRequest request = APoll(fmt::format("parked-{}", i), ++num_polls_, 1, absl::Seconds(55));
    request.mutable_computations(0)->set_name("nothing-that-is-asked-for");
    auto response = std::make_shared<v1::SyncResponse>();
    connections_[static_cast<size_t>(i) % connections_.size()]->CallMethod(
        kSync.name, request, response.get(), {.timeout = absl::Seconds(70)},
        [this, i, response](const absl::Status& status) {
          if (is_ending_) return;
          if (status.ok()) return Poll(i);
          if (!RetryAfter(status)) {
            MutexLock lock(mutex_);
            first_failure_.Update(status);
            return;
          }
          ++num_refused_;
          ++num_paused_;
          timer_.After(*RetryAfter(status), [this, i] {
            if (!is_ending_) Poll(i);
            --num_paused_;
          });
        });
  }

  std::atomic<int64_t> num_polls_ = 0;
  std::atomic<int64_t> num_refused_ = 0;
  std::atomic<int64_t> num_paused_ = 0;
  std::atomic<bool> is_ending_ = false;
  Mutex mutex_;
  absl::Status first_failure_ GUARDED_BY(mutex_);
  GrpcTimer timer_;
  std::vector<std::unique_ptr<GrpcTransport>> connections_;
};

// An operator who looks every 20 ms.
class Onlooker {
 public:
  Onlooker(const Clock& clock, const std::string& address)
      : clock_(clock), transport_(address, {.own_connection = true}) {
    Look();
  }
  ~Onlooker() {
    is_ending_ = true;
    while (!is_over_) Pause(absl::Milliseconds(1));
  }
  std::vector<double> TakeMillis() {
    MutexLock lock(mutex_);
    return std::exchange(millis_, {});
  }

 private:
  void Look() {
    const absl::Time start = clock_.Now();
    transport_.CallMethod(
        kDescribeQueue.name, v1::DescribeQueueRequest(), &response_, {.timeout = absl::Seconds(60)},
        [this, start](const absl::Status& status) {
          {
            MutexLock lock(mutex_);
            // A failure is as bad as an answer that never comes.
            millis_.push_back(status.ok() ? absl::ToDoubleMilliseconds(clock_.Now() - start) : 60'000);
          }
          if (is_ending_) {
            is_over_ = true;
            return;
          }
          timer_.After(absl::Milliseconds(20), [this] { Look(); });
        });
  }

  const Clock& clock_;
  std::atomic<bool> is_ending_ = false;
  std::atomic<bool> is_over_ = false;
  GrpcTimer timer_;
  v1::DescribeQueueResponse response_;
  Mutex mutex_;
  std::vector<double> millis_ GUARDED_BY(mutex_);
  GrpcTransport transport_;
};

// Every task was counted, once, in every output.
absl::Status Verify(Transport& transport, const Clock& clock, const std::string& id) {
  ASSIGN_OR_RETURN(const v1::Round round, WaitForRound(transport, clock, id, {.timeout = absl::Minutes(2)}));
  ASSIGN_OR_RETURN(const std::string file, ReadAggregate(transport, id));
  ASSIGN_OR_RETURN(const SafetensorsView view, SafetensorsView::Parse(file));
  for (int i = 0; i < Crowd::kOutputs; ++i) {
    ASSIGN_OR_RETURN(const TensorView* tensor, view.Find(fmt::format("x{}", i)));
    int64_t sum = 0;
    std::memcpy(&sum, tensor->data.data(), sizeof sum);
    if (sum != kTasks) return absl::InternalError(fmt::format("output {} sums {} of {} tasks", i, sum, kTasks));
  }
  if (round.aggregate().num_contributions() == kTasks) return absl::OkStatus();
  return absl::InternalError(
      fmt::format("{} contributions of {} tasks", round.aggregate().num_contributions(), kTasks));
}

std::string MiB(int64_t bytes) { return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / (1 << 20)); }

absl::Status MeasureWith(const Setup& setup, int parked_connections, Table& table) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartSheafd(setup));
  const std::string& address = server->address();
  GrpcTransport operator_transport(address, {.own_connection = true});
  RETURN_IF_ERROR(BlockingCall(operator_transport, kGetServerInfo, {}).status());
  const int64_t idle = server->rss_bytes();
  ASSIGN_OR_RETURN(const std::string round, Crowd::CreateRound(operator_transport, "overload", kTasks));

  auto parked = std::make_unique<ParkedPolls>(address, kParked, parked_connections);
  const auto are_parked = [&]() -> absl::Status {
    const absl::Time give_up = setup.clock.Now() + absl::Seconds(60);
    for (int64_t seen = 0; seen != kParked; Pause(absl::Milliseconds(10))) {
      ASSIGN_OR_RETURN(const v1::DescribeQueueResponse queue, BlockingCall(operator_transport, kDescribeQueue, {}));
      seen = queue.num_parked_polls();
      if (setup.clock.Now() > give_up) {
        return absl::DeadlineExceededError(fmt::format(
            "only {} of {} polls on {} connections are parked after a minute; {} were refused and came back; "
            "the first that failed: {}",
            seen, kParked, parked_connections, parked->num_refused(), parked->first_failure().ToString()));
      }
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(are_parked());
  const int64_t with_parked = server->rss_bytes();
  table.Add({.what = fmt::format("memory: idle; with {} parked polls on {} connections", kParked, parked_connections),
             .figure = fmt::format("{}; {} ({:.1f} KiB each)", MiB(idle), MiB(with_parked),
                                   static_cast<double>(with_parked - idle) / kParked / 1024),
             .ratio = "",
             .target = parked_connections == kParked ? "<= 20 KiB each" : ""});

  std::vector<std::unique_ptr<Transport>> connections;
  for (int i = 0; i < kConnections; ++i) {
    connections.push_back(std::make_unique<GrpcTransport>(address, ChannelOptions{.own_connection = true}));
  }
  Crowd crowd(setup.clock, std::move(connections), kWorkers);
  Onlooker onlooker(setup.clock, address);
  crowd.CallClosed(64, setup.clock.Now() + absl::Seconds(1));
  crowd.TakeCounts();
  onlooker.TakeMillis();
  const absl::Duration cpu_before = server->cpu_time();
  crowd.CallClosed(64, setup.clock.Now() + setup.duration);
  Crowd::Counts usual = crowd.TakeCounts();
  const absl::Duration cpu_per_call = (server->cpu_time() - cpu_before) / std::max<int64_t>(usual.answered, 1);
  std::vector<double> usual_looks = onlooker.TakeMillis();
  const double capacity = static_cast<double>(usual.answered) / absl::ToDoubleSeconds(setup.duration);
  table.Add({.what = fmt::format("capacity: 64 calls open, {} tasks each", Crowd::kTasksPerCall),
             .figure = fmt::format(
                 "{:.0f} calls/s, {:.2f} ms of server CPU each, p99 {:.0f} ms, inspection p99 {:.0f} ms", capacity,
                 absl::ToDoubleMilliseconds(cpu_per_call), Quantile(usual.millis, 0.99), Quantile(usual_looks, 0.99)),
             .ratio = "",
             .target = ""});

  const absl::Duration cpu_before_overload = server->cpu_time();
  crowd.CallOpen(kFactor * capacity, kOverload);
  Crowd::Counts overload = crowd.TakeCounts();
  const absl::Duration cpu_of_refusals =
      server->cpu_time() - cpu_before_overload - cpu_per_call * static_cast<double>(overload.answered);
  std::vector<double> looks = onlooker.TakeMillis();
  const int64_t peak = server->peak_rss_bytes();
  const double seconds = absl::ToDoubleSeconds(kOverload);
  table.Add(
      {.what =
           fmt::format("{:.0f} times as many, for {}, whatever is answered", kFactor, absl::FormatDuration(kOverload)),
       .figure = fmt::format("offered {:.0f}/s ({:.1f}x), accepted {:.0f}/s, refused {:.0f}/s ({} without a hint), "
                             "failed {}",
                             static_cast<double>(overload.offered) / seconds,
                             static_cast<double>(overload.offered) / seconds / capacity,
                             static_cast<double>(overload.answered) / seconds,
                             static_cast<double>(overload.refused) / seconds, overload.without_hint, overload.failed),
       .ratio = "",
       .target = "failed 0"});
  table.Add({.what = "what a refusal takes of the server's CPU, if what it accepts takes as much as before",
             .figure = fmt::format("{:.3f} ms", absl::ToDoubleMilliseconds(cpu_of_refusals) /
                                                    static_cast<double>(std::max<int64_t>(overload.refused, 1))),
             .ratio = "",
             .target = ""});
  if (overload.failed > 0) fmt::print(stderr, "the first failure: {}\n", crowd.first_failure().ToString());
  table.Add({.what = "meanwhile: what is accepted; inspection; memory at most",
             .figure = fmt::format("p50 {:.0f} ms, p99 {:.0f} ms; p50 {:.0f} ms, p99 {:.0f} ms; {}",
                                   Quantile(overload.millis, 0.5), Quantile(overload.millis, 0.99),
                                   Quantile(looks, 0.5), Quantile(looks, 0.99), MiB(peak)),
             .ratio = "",
             .target = ""});

  const absl::Time drain_start = setup.clock.Now();
  crowd.WaitUntilIdle();
  for (bool is_over = false; !is_over;) {
    crowd.CallClosed(64, setup.clock.Now() + absl::Milliseconds(500));
    v1::GetRoundRequest request;
    request.set_round(round);
    ASSIGN_OR_RETURN(const v1::GetRoundResponse response, BlockingCall(operator_transport, kGetRound, request));
    is_over = response.round().state() == v1::SUCCEEDED;
    if (setup.clock.Now() > drain_start + absl::Minutes(5)) {
      return absl::DeadlineExceededError("the tasks were not all done: " + response.round().ShortDebugString());
    }
  }
  RETURN_IF_ERROR(Verify(operator_transport, setup.clock, round));
  RETURN_IF_ERROR(are_parked());
  parked.reset();
  for (int64_t seen = 1; seen != 0;) {
    ASSIGN_OR_RETURN(const v1::DescribeQueueResponse queue, BlockingCall(operator_transport, kDescribeQueue, {}));
    seen = queue.num_parked_polls() + queue.tasks().queued() + queue.tasks().leased();
  }
  std::string verdicts;
  for (const auto& [name, count] : crowd.verdicts()) verdicts += fmt::format(" {} {}", count, name);
  table.Add({.what = fmt::format("afterwards: {} tasks, each counted once; nothing queued, leased or parked", kTasks),
             .figure = fmt::format("verdicts:{}; {}", verdicts, MiB(server->rss_bytes())),
             .ratio = "",
             .target = fmt::format("{} ACCEPTED", kTasks)});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureOverload(const Setup& setup, Table& table) {
  absl::Status status = MeasureWith(setup, kConnections, table);
  // The server keeps files back for its stores; see server/net/listener.cc.
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < kFilesNeeded) {
    status.Update(absl::FailedPreconditionError(
        fmt::format("a connection for each of {} polls needs {} open files, and the limit is {}: raise it with "
                    "`ulimit -Hn {}` as root",
                    kParked, kFilesNeeded, files.rlim_cur, kFilesNeeded)));
    return status;
  }
  status.Update(MeasureWith(setup, kParked, table));
  return status;
}

}  // namespace sheaf::bench
