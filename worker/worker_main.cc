#include "worker/worker_main.h"

#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "sdk/cpp/client/grpc_log.h"
#include "worker/config.h"
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

// The first SIGTERM or SIGINT drains, the second ends the process where it stands: the leases run out.
void ListenForSignals(WorkerRuntime& runtime, const sigset_t& set) {
  for (int received = 0; received < 2;) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (signal == kStopListening) return;
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
    listener.Post([&] { ListenForSignals(runtime, set); });
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
