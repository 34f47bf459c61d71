#include "worker/runtime.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "sdk/cpp/grpc_transport.h"
#include "worker/blob_cache.h"
#include "worker/computations.h"
#include "worker/runners/builtin.h"

namespace sheaf {
namespace {

// Runs work in threads of its own, in the order it came. The destructor waits for what was posted.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads) {
    for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~ThreadPool() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.NotifyAll();
    for (std::thread& thread : threads_) thread.join();
  }

  void Post(std::function<void()> work) EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.NotifyOne();
  }

 private:
  void Work() {
    while (std::function<void()> work = Next()) work();
  }

  // Empty when there will be no more.
  std::function<void()> Next() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
    if (queue_.empty()) return nullptr;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    return work;
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

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
  explicit Impl(WorkerConfig worker_config)
      : config(std::move(worker_config)), cache(config.cache_bytes), transport(config.server, {}) {}

  // What computations and callbacks use comes first: it goes last.
  WorkerConfig config;
  SystemClock clock;
  SystemRandom random;
  Alarm alarm;
  DataSources data;
  SleepingWaiter waiter{clock};
  BlobCache cache;
  std::unique_ptr<BuiltinRunner> runner;
  std::unique_ptr<ThreadPool> pool;
  GrpcTransport transport;
  std::unique_ptr<WorkerLoop> loop;
};

WorkerRuntime::WorkerRuntime(WorkerConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}

WorkerRuntime::~WorkerRuntime() = default;

absl::Status WorkerRuntime::Start() {
  Impl& impl = *impl_;
  for (const auto& [name, location] : impl.config.data) RETURN_IF_ERROR(impl.data.Configure(name, location));
  WorkerOptions& options = impl.config.options;
  options.software_version = kVersion;
  if (options.worker.empty()) options.worker = fmt::format("{}-{}", HostName(), impl.random.Token(6));
  impl.pool = std::make_unique<ThreadPool>(options.concurrency);
  impl.runner =
      std::make_unique<BuiltinRunner>(BuiltinComputations({impl.data, impl.waiter}, impl.config.allow),
                                      [&impl](std::function<void()> work) { impl.pool->Post(std::move(work)); });
  impl.loop = std::make_unique<WorkerLoop>(options, WorkerLoop::Parts{impl.transport, *impl.runner, impl.cache,
                                                                      impl.random, [&impl] { impl.alarm.Ring(); }});

  std::string offers;
  for (const v1::OfferedComputation& offer : impl.runner->Offers()) {
    offers += fmt::format("{}{}", offers.empty() ? "" : ", ", offer.name());
  }
  LogInfo("worker {} calls {} and offers {}", options.worker, impl.config.server, offers.empty() ? "nothing" : offers);
  if (impl.config.allow.empty()) {
    for (const std::string& hint : MissingDataHints(impl.data)) LogInfo("{}", hint);
  }
  return absl::OkStatus();
}

absl::Status WorkerRuntime::Run() {
  Impl& impl = *impl_;
  while (!impl.loop->is_done()) {
    absl::Time next = impl.loop->Step(impl.clock.Now());
    if (!impl.loop->is_done()) impl.alarm.WaitUntil(next, impl.clock);
  }
  return impl.loop->exit_status();
}

void WorkerRuntime::RequestDrain() { impl_->loop->RequestDrain(); }

int WorkerRuntime::num_stragglers() const { return impl_->loop->num_busy(); }

}  // namespace sheaf
