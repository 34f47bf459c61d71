#include "worker/runtime.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "sdk/cpp/client/open_transport.h"
#include "worker/blob_cache.h"
#include "worker/computation_runner.h"
#include "worker/relay_runner.h"
#include "worker/runners/broadcast_files.h"
#include "worker/runners/executable_computation.h"
#include "worker/thread_pool.h"

namespace sheaf {
namespace {

// Sleeps for real.
class SleepingWaiter final : public Waiter {
 public:
  explicit SleepingWaiter(const Clock& clock) : clock_(clock) {}
  void Wait(absl::Duration duration) override {
    absl::Time end = clock_.Now() + duration;
    Mutex mutex;
    CondVar never;
    MutexLock lock(mutex);
    for (absl::Duration left = duration; left > absl::ZeroDuration(); left = end - clock_.Now()) {
      never.WaitFor(mutex, left);
    }
  }

 private:
  const Clock& clock_;
};

// Lets the loop's thread sleep until it is woken or a time has come.
class Alarm {
 public:
  void Ring() EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      is_ringing_ = true;
    }
    changed_.NotifyOne();
  }

  void WaitUntil(absl::Time time, const Clock& clock) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!is_ringing_) {
      absl::Duration left = time - clock.Now();
      if (left <= absl::ZeroDuration()) break;
      changed_.WaitFor(mutex_, left);
    }
    is_ringing_ = false;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool is_ringing_ GUARDED_BY(mutex_) = false;
};

// Has a relay look, every few seconds, what it can offer. Has a thread of its own.
class OfferWatch {
 public:
  // Both outlive this.
  OfferWatch(RelayRunner& relay, const Clock& clock) {
    thread_.Post([this, &relay, &clock] {
      for (;;) {
        alarm_.WaitUntil(clock.Now() + RelayRunner::kLookEvery, clock);
        if (is_ending_) return;
        relay.LookBelow();
      }
    });
  }
  ~OfferWatch() {
    is_ending_ = true;
    alarm_.Ring();
  }

 private:
  Alarm alarm_;
  std::atomic<bool> is_ending_ = false;
  // Goes first: its end is waited for.
  ThreadPool thread_{1};
};

// How often to look whether a pause can be cut short, and of which: a short one ends soon enough by itself. To look
// connects, and where connections do not live long a call had better come right after its connection.
constexpr absl::Duration kLookEvery = absl::Milliseconds(250);
constexpr absl::Duration kLongPause = absl::Seconds(1);

// Notices what makes a pause pointless: another token in the file, or a connection where there was none.
class RecoveryWatch {
 public:
  explicit RecoveryWatch(ServerTransport& transport)
      : transport_(transport), token_version_(transport.token_version()) {}

  // Since it was asked last.
  bool HasRecovered() {
    const bool is_connected = transport_.IsConnected();
    const int64_t version = transport_.token_version();
    const bool has_recovered = (is_connected && !was_connected_) || version != token_version_;
    was_connected_ = is_connected;
    token_version_ = version;
    return has_recovered;
  }

 private:
  ServerTransport& transport_;
  int64_t token_version_;
  bool was_connected_ = true;
};

std::string HostName() {
  char host[65] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) return "worker";
  std::string name(host);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c) && c != '.' && c != '-'; }, '_');
  return name;
}

}  // namespace

struct WorkerRuntime::Impl {
  Impl(WorkerConfig worker_config, const Clock& the_clock, Random& the_random, ProcessHost* the_host)
      : config(std::move(worker_config)),
        clock(the_clock),
        random(the_random),
        host(the_host),
        cache(config.cache_bytes) {}

  // What runs the tasks, and what it needs.
  absl::StatusOr<std::unique_ptr<Runner>> MakeRunner();
  absl::StatusOr<std::unique_ptr<Runner>> MakeRelay(const RelayRunner::Spawn& spawn);
  // Those that are compiled in, and the programs.
  std::vector<std::unique_ptr<Computation>> MakeComputations();

  // What computations and callbacks use comes first: it goes last.
  WorkerConfig config;
  const Clock& clock;
  Random& random;
  ProcessHost* const host;
  Alarm alarm;
  DataSources data{config.computations.data_sources()};
  SleepingWaiter waiter{clock};
  BlobCache cache;
  std::unique_ptr<BroadcastFiles> broadcasts;
  std::unique_ptr<ServerTransport> below;
  SeededRandom random_below{random.Bits()};
  std::unique_ptr<Runner> runner;
  std::unique_ptr<OfferWatch> offer_watch;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<ServerTransport> transport;
  std::unique_ptr<WorkerLoop> loop;
};

std::vector<std::unique_ptr<Computation>> WorkerRuntime::Impl::MakeComputations() {
  const std::vector<Executable>& executables = config.programs.executables;
  const auto is_allowed = [this](const std::string& name) {
    return config.allow.empty() || std::find(config.allow.begin(), config.allow.end(), name) != config.allow.end();
  };
  std::vector<std::unique_ptr<Computation>> computations;
  if (executables.empty() || !config.allow.empty()) {
    computations = config.computations.Make({data, waiter}, config.allow);
  }
  if (executables.empty()) return computations;
  SHEAF_CHECK(host != nullptr, "programs need somebody who starts them");
  broadcasts = std::make_unique<BroadcastFiles>(host->scratch() + "/broadcasts", config.cache_bytes);
  for (const Executable& executable : executables) {
    // A program goes before what is compiled in.
    std::erase_if(computations, [&](const auto& computation) { return computation->name() == executable.name; });
    if (!is_allowed(executable.name)) continue;
    computations.push_back(std::make_unique<ExecutableComputation>(
        executable,
        ExecutableComputation::Parts{
            .host = *host, .broadcasts = *broadcasts, .surroundings = config.programs.surroundings, .clock = clock}));
  }
  return computations;
}

absl::StatusOr<std::unique_ptr<Runner>> WorkerRuntime::Impl::MakeRunner() {
  // Each runs one, or prepares one.
  pool = std::make_unique<ThreadPool>(config.options.concurrency + config.options.prepare_ahead);
  const auto spawn = [this](std::function<void()> work) { pool->Post(std::move(work)); };
  if (config.relay.is_wanted()) return MakeRelay(spawn);
  return std::make_unique<ComputationRunner>(MakeComputations(), spawn);
}

absl::StatusOr<std::unique_ptr<Runner>> WorkerRuntime::Impl::MakeRelay(const RelayRunner::Spawn& spawn) {
  const RelayConfig& relay = config.relay;
  if (const absl::Status secure = CheckChannelSecurity(relay.server, relay.security); !secure.ok()) {
    return absl::Status(secure.code(), fmt::format("of --relay: {}", std::string(secure.message())));
  }
  below = OpenTransport(relay.server, {.security = relay.security});
  auto made =
      std::make_unique<RelayRunner>(RelayRunner::Parts{.below = *below,
                                                       .waiter = waiter,
                                                       .random = random_below,
                                                       .spawn = spawn,
                                                       .contribution_bytes_max = config.options.contribution_bytes_max},
                                    relay.options, config.allow);
  // The first call has something to offer.
  made->LookBelow();
  offer_watch = std::make_unique<OfferWatch>(*made, clock);
  LogInfo("this worker is a relay: it passes tasks on to {}, population {}", relay.server, relay.options.population);
  return made;
}

WorkerRuntime::WorkerRuntime(WorkerConfig config, const Clock& clock, Random& random, ProcessHost* host)
    : impl_(std::make_unique<Impl>(std::move(config), clock, random, host)) {}

WorkerRuntime::~WorkerRuntime() = default;

absl::Status WorkerRuntime::Start() {
  Impl& impl = *impl_;
  for (const auto& [name, location] : impl.config.data) RETURN_IF_ERROR(impl.data.Configure(name, location));
  RETURN_IF_ERROR(CheckChannelSecurity(impl.config.server, impl.config.security));
  impl.transport = OpenTransport(impl.config.server, {.security = impl.config.security});
  WorkerOptions& options = impl.config.options;
  options.software_version = kVersion;
  if (options.worker.empty()) options.worker = fmt::format("{}-{}", HostName(), impl.random.Token(6));
  ASSIGN_OR_RETURN(impl.runner, impl.MakeRunner());
  impl.loop = std::make_unique<WorkerLoop>(options, WorkerLoop::Parts{*impl.transport, *impl.runner, impl.cache,
                                                                      impl.random, [&impl] { impl.alarm.Ring(); }});

  std::string offers;
  for (const v1::OfferedComputation& offer : impl.runner->Offers()) {
    offers += fmt::format("{}{}", offers.empty() ? "" : ", ", offer.name());
  }
  LogInfo("worker {} calls {} and offers {}", options.worker, impl.config.server, offers.empty() ? "nothing" : offers);
  if (impl.config.allow.empty() && impl.config.programs.executables.empty() && !impl.config.relay.is_wanted()) {
    for (const std::string& hint : impl.config.computations.MissingDataHints(impl.data)) LogInfo("{}", hint);
  }
  return absl::OkStatus();
}

absl::Status WorkerRuntime::Run() {
  Impl& impl = *impl_;
  RecoveryWatch watch(*impl.transport);
  while (!impl.loop->is_done()) {
    absl::Time next = impl.loop->Step(impl.clock.Now());
    if (impl.loop->is_done()) break;
    if (const absl::Time now = impl.clock.Now(); impl.loop->is_pausing(now) && next - now > kLongPause) {
      if (watch.HasRecovered()) impl.loop->EndPause();
      next = std::min(next, now + kLookEvery);
    }
    impl.alarm.WaitUntil(next, impl.clock);
  }
  return impl.loop->exit_status();
}

void WorkerRuntime::RequestDrain() { impl_->loop->RequestDrain(); }

int WorkerRuntime::num_stragglers() const { return impl_->loop->num_busy(); }

}  // namespace sheaf
