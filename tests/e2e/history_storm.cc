#include "tests/e2e/history_storm.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "proto/methods.h"
#include "proto/time.h"
#include "sdk/cpp/client/round_client.h"
#include "tests/e2e/rounds.h"

namespace sheaf {

// --- TakeoverTransport ---

void TakeoverTransport::CallMethod(std::string_view method, const google::protobuf::Message& request,
                                   google::protobuf::Message* response, const CallOptions& options, Done done) {
  if (method != kSync.name) return inner_.CallMethod(method, request, response, options, std::move(done));
  inner_.CallMethod(method, request, response, options,
                    [this, response, worker = static_cast<const v1::SyncRequest&>(request).worker(),
                     done = std::move(done)](absl::Status status) {
                      if (status.ok()) OnAnswer(worker, static_cast<const v1::SyncResponse&>(*response));
                      done(std::move(status));
                    });
}

void TakeoverTransport::OnAnswer(const std::string& worker, const v1::SyncResponse& response) {
  const absl::Time now = clock_.Now();
  MutexLock lock(mutex_);
  for (const v1::Lease& lease : response.leases()) {
    Holder& holder = holders_[lease.task()];
    if (holder.lease_token == lease.lease_token()) continue;
    if (holder.abandoned < now) takeovers_.push_back(now - holder.abandoned);
    holder = {.worker = worker, .lease_token = lease.lease_token()};
  }
  for (const v1::ResultVerdict& verdict : response.verdicts()) {
    const auto holder = holders_.find(verdict.task());
    if (holder != holders_.end() && holder->second.lease_token == verdict.lease_token()) holders_.erase(holder);
  }
}

void TakeoverTransport::OnKilled(const std::string& worker) {
  const absl::Time now = clock_.Now();
  MutexLock lock(mutex_);
  for (auto& [task, holder] : holders_) {
    if (holder.worker == worker) holder.abandoned = std::min(holder.abandoned, now);
  }
}

std::vector<absl::Duration> TakeoverTransport::takeovers() const {
  MutexLock lock(mutex_);
  return takeovers_;
}

// --- SteppedClock ---

SteppedClock::SteppedClock(std::string path) : path_(std::move(path)) {
  Set(absl::ZeroDuration());
  Suspend(absl::ZeroDuration());
}

std::vector<std::string> SteppedClock::Wrapper() const {
#ifdef SHEAF_STEPPED_CLOCK
  return {"/usr/bin/env", "LD_PRELOAD=" SHEAF_STEPPED_CLOCK, "SHEAF_TEST_CLOCK=" + path_};
#else
  return {};
#endif
}

void SteppedClock::Set(absl::Duration offset) { Write(0, offset); }

void SteppedClock::Suspend(absl::Duration duration) { Write(1, slept_ += duration); }

void SteppedClock::Write(int place, absl::Duration duration) {
  const int64_t seconds = absl::ToInt64Seconds(duration);
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(::pwrite(fd, &seconds, sizeof seconds, place * static_cast<off_t>(sizeof seconds)) == sizeof seconds);
  ::close(fd);
}

// --- StormRound ---

v1::RoundSpec StormRound(Random& random, absl::Duration lease, int num_tasks, absl::Duration work) {
  v1::RoundSpec spec = OneHotRound({.num_tasks = num_tasks, .lease = lease});
  for (int i = 0; i < num_tasks; ++i) {
    const absl::Duration duration = absl::Floor(random.Between(absl::ZeroDuration(), work), absl::Milliseconds(1));
    spec.mutable_listed()->mutable_tasks(i)->set_payload(fmt::format("{} {}", absl::FormatDuration(duration), i));
  }
  if (random.Chance(0.5)) spec.set_goal(num_tasks * 3 / 4);
  // Beyond what the clock is stepped by: the deadline is a promise in wall time.
  *spec.mutable_deadline() = ToProto(absl::Hours(5));
  spec.mutable_retry()->set_lost_max(1000);
  spec.mutable_retry()->set_failed_max(1000);
  return spec;
}

// --- HistoryStorm ---

HistoryStorm::HistoryStorm(const StormOptions& options)
    : options_(options),
      random_(options.seed),
      federation_(ServerOptions()),
      wire_(OpenTransport(federation_.address(), {.security = federation_.security(),
                                                  .reconnect_backoff_max = absl::Milliseconds(100),
                                                  .own_connection = true})),
      calls_(takeover_, timer_, random_.Bits(), {.late_by = 3 * options.lease}),
      relay_(calls_, uses_http() ? RpcRelay::Protocol::kHttp : RpcRelay::Protocol::kGrpc) {
  auto network = FaultyNetwork::Start(relay_.target(), federation_.clock(), random_.Bits());
  REQUIRE(network.ok());
  network_ = *std::move(network);
  for (int i = 0; i < options.num_workers; ++i) {
    const std::vector<std::string>& programs = options.worker_programs;
    seats_.push_back(
        {.program = programs.empty() ? options.programs.worker : programs[static_cast<size_t>(i) % programs.size()],
         .clock = SteppedClock(fmt::format("{}/clock-{}", directory_.path(), i))});
    StartWorker(seats_.back());
  }
}

FederationOptions HistoryStorm::ServerOptions() {
  FederationOptions server = {
      .server_wrapper = server_clock_.Wrapper(), .protocol = options_.protocol, .programs = options_.programs};
  if (options_.protocol != ServerAddress::Protocol::kHttps) return server;
  certificates_ = std::make_unique<Certificates>(directory_.path());
  const CertificateFiles files = certificates_->Issue("server", "IP:127.0.0.1");
  server.server_arguments = {"--tls-cert", files.certificate, "--tls-key", files.key};
  server.security = {.tls_ca = certificates_->authority()};
  return server;
}

HistoryStorm::~HistoryStorm() {
  Continue(absl::InfiniteFuture());
  // Else the relay would wait for the calls that are parked there.
  ::kill(federation_.server().pid(), SIGKILL);
}

int64_t HistoryStorm::num_network_faults() const {
  int64_t sum = 0;
  for (const int64_t count : network_->counts()) sum += count;
  return sum;
}

void HistoryStorm::StartWorker(Seat& seat) {
  seat.worker = fmt::format("w{}", ++num_workers_);
  std::vector<std::string> arguments = {"--concurrency", "2"};
  arguments.insert(arguments.end(), options_.worker_arguments.begin(), options_.worker_arguments.end());
  federation_.programs().worker = seat.program;
  // Not to the server itself, and without what it is to be believed by.
  seat.pid = federation_
                 .StartWorker(seat.worker, arguments, (uses_http() ? "http://" : "") + network_->address(),
                              seat.clock.Wrapper())
                 .pid();
}

void HistoryStorm::KillWorker() {
  Seat& seat = seats_[random_.Below(seats_.size())];
  stopped_.erase(seat.pid);
  federation_.KillWorker(seat.worker);
  takeover_.OnKilled(seat.worker);
  ++counts_.worker_kills;
  StartWorker(seat);
}

void HistoryStorm::ReplaceServer(const std::string& sheafd) {
  federation_.programs().sheafd = sheafd;
  RestartServer();
}

void HistoryStorm::SetFaults(bool are_on) {
  network_->SetFaults(are_on ? NetworkFaults{.calm_max = 2 * options_.lease, .outage_max = options_.lease}
                             : NetworkFaults());
  calls_.SetFaults(are_on ? CallFaults{.twice = 0.05, .repeated_late = 0.05, .late = 0.03, .answer_lost = 0.05}
                          : CallFaults());
}

void HistoryStorm::Rage(const std::string& round, absl::Duration longest) {
  const Clock& clock = federation_.clock();
  const absl::Time end = clock.Now() + longest;
  v1::GetRoundRequest look;
  look.set_round(round);
  SetFaults(true);
  absl::Time next = clock.Now();
  for (absl::Time now = next; now < end; now = clock.Now()) {
    Continue(now);
    if (now >= next) {
      Disturb(now);
      next = clock.Now() + random_.Between(absl::Milliseconds(50), absl::Milliseconds(400));
    }
    const auto seen =
        BlockingCall(federation_.impatient_transport(), kGetRound, look, {.timeout = absl::Milliseconds(200)});
    if (seen.ok() && IsFinal(seen->round().state())) break;
    ::poll(nullptr, 0, 20);
  }
  Continue(absl::InfiniteFuture());
  SetFaults(false);
}

void HistoryStorm::Disturb(absl::Time now) {
  const double kind = random_.Fraction();
  Seat& seat = seats_[random_.Below(seats_.size())];
  if (kind < 0.2) return RestartServer();
  if (kind < 0.45) return KillWorker();
  if (kind < 0.7) return Stop(seat.pid, now);
  if (kind < 0.75) return Stop(federation_.server().pid(), now);
  ++counts_.clock_steps;
  (kind < 0.88 ? server_clock_ : seat.clock).Set(DrawOffset());
}

void HistoryStorm::RestartServer() {
  stopped_.erase(federation_.server().pid());
  federation_.KillServer();
  ++counts_.server_kills;
  const absl::Time start = federation_.clock().Now();
  federation_.StartServer();
  const auto fresh = OpenTransport(federation_.address(), {.security = federation_.security(), .own_connection = true});
  WaitUntil("the new server answers", absl::Seconds(10), [&] {
    return BlockingCall(*fresh, kGetServerInfo, v1::GetServerInfoRequest(), {.timeout = absl::Seconds(1)}).ok();
  });
  recoveries_.push_back(federation_.clock().Now() - start);
}

void HistoryStorm::Stop(pid_t pid, absl::Time now) {
  if (stopped_.contains(pid)) return;
  REQUIRE(::kill(pid, SIGSTOP) == 0);
  ++counts_.stops;
  stopped_[pid] = now + 2 * options_.lease;
}

void HistoryStorm::Continue(absl::Time now) {
  std::erase_if(stopped_, [&](const auto& entry) {
    if (entry.second > now) return false;
    ::kill(entry.first, SIGCONT);
    return true;
  });
}

absl::Duration HistoryStorm::DrawOffset() { return absl::Hours(static_cast<int64_t>(random_.Below(3)) - 1); }

}  // namespace sheaf
