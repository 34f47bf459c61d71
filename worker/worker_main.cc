#include "worker/worker_main.h"

#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "sdk/cpp/client/grpc_log.h"
#include "worker/config.h"
#include "worker/processes/descriptor.h"
#include "worker/processes/process_host.h"
#include "worker/runtime.h"
#include "worker/thread_pool.h"

namespace sheaf {
namespace {

// Ends the listening for signals; we send it to ourselves.
constexpr int kStopListening = SIGUSR1;

sigset_t HandledSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGTERM, SIGINT, kStopListening}) sigaddset(&set, signal);
  return set;
}

// Without its host a worker fails each task that needs a new process, for ever. Whoever supervises it starts another.
[[noreturn]] void EndWithoutHost(const ProcessHost& host) {
  LogError("the process that starts executables for this worker was killed: ending, so that it is started anew");
  std::error_code error;
  std::filesystem::remove_all(host.scratch(), error);
  std::_Exit(1);
}

// The first SIGTERM or SIGINT drains, the second ends the process where it stands: the leases run out. `host` may be
// null.
void ListenForSignals(WorkerRuntime& runtime, const sigset_t& set, const ProcessHost* host) {
  const Descriptor signals(signalfd(-1, &set, SFD_CLOEXEC));
  for (int received = 0; received < 2;) {
    pollfd events[] = {{.fd = signals.get(), .events = POLLIN, .revents = 0},
                       {.fd = host != nullptr ? host->ended_descriptor() : -1, .events = POLLIN, .revents = 0}};
    poll(events, 2, -1);
    if (events[1].revents != 0) EndWithoutHost(*host);
    if (events[0].revents == 0) continue;
    signalfd_siginfo signal;
    if (read(signals.get(), &signal, sizeof(signal)) != sizeof(signal)) continue;
    if (signal.ssi_signo == kStopListening) return;
    if (++received == 1) runtime.RequestDrain();
  }
  LogWarning("told to stop a second time: ending at once");
  std::_Exit(1);
}

}  // namespace

int WorkerMain(int argc, char** argv, const ComputationTable& computations) {
  const std::string program = std::filesystem::path(argv[0]).filename();
  // Megabyte buffers come and go with every message: keep them instead of giving each back to the kernel.
  mallopt(M_MMAP_THRESHOLD, 64 << 20);
  mallopt(M_TRIM_THRESHOLD, 128 << 20);

  absl::StatusOr<WorkerInvocation> invocation = ParseWorkerInvocation(
      {.program = program, .computations = computations}, {argv + 1, argv + argc}, ProcessEnvironment());
  if (!invocation.ok()) {
    fmt::print(stderr, "{}: {}\n", program, std::string(invocation.status().message()));
    return 2;
  }
  if (!invocation->output.empty()) {
    fmt::print("{}", invocation->output);
    return 0;
  }
  ConfigureLog(program, invocation->config.log_level);
  if (std::getenv("GRPC_VERBOSITY") == nullptr) RouteGrpcLog();

  SystemClock clock;
  SystemRandom random;
  // Before any thread starts.
  absl::StatusOr<std::unique_ptr<ProcessHost>> host = nullptr;
  if (const ExecutableConfig& programs = invocation->config.programs; !programs.executables.empty()) {
    host = ProcessHost::Start(programs.scratch, clock);
    if (!host.ok()) {
      fmt::print(stderr, "{}: {}\n", program, std::string(host.status().message()));
      return 2;
    }
  }
  // Blocked before any thread starts, so that only the listener sees them.
  const sigset_t set = HandledSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  WorkerRuntime runtime(invocation->config, clock, random, host->get());
  if (absl::Status status = runtime.Start(); !status.ok()) {
    fmt::print(stderr, "{}: {}\n", program, std::string(status.message()));
    return 2;
  }
  absl::Status status;
  {
    ThreadPool listener(1);
    listener.Post([&] { ListenForSignals(runtime, set, host->get()); });
    status = runtime.Run();
    kill(getpid(), kStopListening);
  }

  int code = status.ok() ? 0 : 1;
  if (!status.ok()) fmt::print(stderr, "{}: {}\n", program, std::string(status.message()));
  // A computation that does not heed its cancellation must not keep the process.
  if (runtime.num_stragglers() > 0) {
    std::fflush(nullptr);
    std::_Exit(code);
  }
  return code;
}

}  // namespace sheaf
