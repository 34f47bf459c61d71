// sheafd: the server. Says what to do in config.h, does it in runtime.h; here are only the process's own affairs.
#include <fmt/format.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "server/config.h"
#include "server/core/access/access_control.h"
#include "server/runtime.h"
#include "storage/directory/open.h"
#include "storage/memory/memory_payload_store.h"
#include "storage/memory/memory_task_store.h"
#include "storage/postgres/open.h"

namespace sheaf {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// Large messages come and go all the time: without this glibc maps and unmaps each of them, which was measured to cost
// more than everything else about receiving 4 MiB.
void TuneMalloc() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

// Each connection and each upload is an open file; the soft limit of many systems is 1024.
void RaiseFileLimit() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Before any thread is made: all inherit it, so that only WaitForStop sees the signals.
void BlockStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

// Takes one that comes within `duration`.
bool IsToldToStopWithin(absl::Duration duration) {
  const sigset_t signals = StopSignals();
  const timespec timeout = absl::ToTimespec(duration);
  return sigtimedwait(&signals, nullptr, &timeout) > 0;
}

// The second signal then ends the process at once.
int WaitForStop() {
  const sigset_t signals = StopSignals();
  int received = 0;
  sigwait(&signals, &received);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  return received;
}

// Whoever waits for the file never sees half of it.
absl::Status WritePortFile(const std::string& path, const std::string& address) {
  const std::string unfinished = path + ".new";
  std::ofstream file(unfinished, std::ios::trunc);
  file << address << "\n";
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(unfinished, path, error);
  if (file && !error) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("cannot write the port file {}; check its directory", path));
}

// A database hears from its owner so many times before another may take over.
constexpr int kBeats = 5;
// Between two looks at who owns a database.
constexpr absl::Duration kLook = absl::Milliseconds(100);

// Waits for the server's turn at a database, as PostgresOwner::Options::wait.
class Turn {
 public:
  bool Wait(const absl::Status& why) {
    if (!has_said_why_) LogInfo("waiting for the store: {}", std::string(why.message()));
    has_said_why_ = true;
    was_stopped_ = IsToldToStopWithin(kLook);
    return !was_stopped_;
  }
  bool was_stopped() const { return was_stopped_; }

 private:
  bool has_said_why_ = false;
  bool was_stopped_ = false;
};

struct ChosenStore {
  // What `tasks` and `payloads` are of.
  std::variant<Store, PostgresStore> parts;
  TaskStore* tasks = nullptr;
  PayloadStore* payloads = nullptr;
};

// Who gives no `turn` does not wait for one.
absl::StatusOr<ChosenStore> ChooseStore(const Config& config, Random& random, Turn* turn = nullptr) {
  ChosenStore chosen;
  if (config.is_in_postgres()) {
    PostgresStoreOptions options = {.conninfo = config.store,
                                    .directory = config.data_dir,
                                    .address = config.listen,
                                    .takeover_after = config.takeover_after};
    if (turn != nullptr) options.wait = [turn](const absl::Status& why) { return turn->Wait(why); };
    ASSIGN_OR_RETURN(PostgresStore database, OpenPostgresStore(options, random));
    chosen.tasks = &database.tasks->tasks();
    chosen.payloads = database.payloads.get();
    chosen.parts = std::move(database);
    return chosen;
  }
  Store store;
  if (config.store == "memory") {
    store.tasks = std::make_unique<MemoryTaskStore>();
    store.payloads = std::make_unique<MemoryPayloadStore>();
  } else {
    ASSIGN_OR_RETURN(store, OpenStore(config.data_dir));
  }
  chosen.tasks = store.tasks.get();
  chosen.payloads = store.payloads.get();
  chosen.parts = std::move(store);
  return chosen;
}

// Whoever waits for its turn at the database has it now.
void GiveBack(const ChosenStore& store) {
  const auto* database = std::get_if<PostgresStore>(&store.parts);
  if (database == nullptr) return;
  if (const absl::Status status = database->tasks->Release(); !status.ok()) {
    LogWarning("the store was not given back, and is taken over later: {}", std::string(status.message()));
  }
}

std::string WhereDataLie(const Config& config) {
  if (config.store == "memory") return "data in memory only";
  if (config.is_in_postgres()) return fmt::format("data in {}", config.store);
  return fmt::format("data in {}", config.data_dir);
}

// The secret is all that goes to stdout, so that it can be sent to a file.
absl::Status PrintOperatorToken(const Config& config) {
  if (config.store == "memory") {
    return absl::InvalidArgumentError("a store in memory keeps no tokens; choose --store sqlite");
  }
  const SystemClock clock;
  SystemRandom random;
  ASSIGN_OR_RETURN(const ChosenStore store, ChooseStore(config, random));
  ASSIGN_OR_RETURN(const std::string secret, CreateOperatorToken(*store.tasks, random, clock.Now()));
  fmt::print("{}\n", secret);
  fmt::print(stderr,
             "sheafd: this token of the role operator is shown once; keep it in a file of mode 0600 for "
             "`sheaf --token-file`\n");
  return absl::OkStatus();
}

absl::Status Serve(const Config& config) {
  const SystemClock clock;
  SystemRandom random;
  std::optional<JoinFiles> join;
  if (!config.join.empty()) {
    ASSIGN_OR_RETURN(join, JoinFiles::Read(config.join));
  }
  Turn turn;
  const absl::StatusOr<ChosenStore> chosen = ChooseStore(config, random, &turn);
  if (turn.was_stopped()) {
    LogInfo("stopped before its turn");
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(chosen.status());
  const ChosenStore& store = *chosen;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Runtime> runtime,
      Runtime::Start(*store.tasks, *store.payloads, clock, random,
                     {.listen = config.listen,
                      .http = config.http,
                      .http_origins = config.http_origins,
                      .join = std::move(join),
                      .tls = config.tls,
                      .requires_tokens = !config.is_loopback,
                      .data_directory = config.data_dir,
                      .idle_max = config.is_in_postgres() ? config.takeover_after / kBeats : absl::InfiniteDuration(),
                      .stop_grace = config.stop_grace,
                      .limits = config.limits}));
  if (!config.http_port_file.empty()) {
    RETURN_IF_ERROR(WritePortFile(config.http_port_file, runtime->http_address()));
  }
  if (!config.port_file.empty()) RETURN_IF_ERROR(WritePortFile(config.port_file, runtime->address()));
  LogInfo("sheafd {} listening on {}{}{}, {}", kVersion, runtime->address(),
          config.http.empty() ? "" : fmt::format(", HTTP on {}", runtime->http_address()),
          config.tls.empty()               ? ""
          : config.tls.authorities.empty() ? " with TLS"
                                           : " with mutual TLS",
          WhereDataLie(config));
  LogInfo("stopping on {}; another signal ends it at once", WaitForStop() == SIGINT ? "SIGINT" : "SIGTERM");
  absl::Status status = runtime->Stop();
  if (status.ok()) GiveBack(store);
  if (!config.port_file.empty()) std::filesystem::remove(config.port_file);
  if (!config.http_port_file.empty()) std::filesystem::remove(config.http_port_file);
  LogInfo("stopped");
  return status;
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Invocation> invocation = ParseInvocation(arguments, ProcessEnvironment());
  if (!invocation.ok()) {
    fmt::print(stderr, "sheafd: {}\n", std::string(invocation.status().message()));
    return kExitUsage;
  }
  if (!invocation->output.empty()) {
    fmt::print("{}", invocation->output);
    return 0;
  }
  ConfigureLog("sheafd", invocation->config.log_level);
  BlockStopSignals();
  if (const absl::Status status =
          invocation->create_operator_token ? PrintOperatorToken(invocation->config) : Serve(invocation->config);
      !status.ok()) {
    fmt::print(stderr, "sheafd: {}\n", std::string(status.message()));
    return kExitFailed;
  }
  return 0;
}

}  // namespace
}  // namespace sheaf

int main(int argc, char** argv) {
  sheaf::TuneMalloc();
  sheaf::RaiseFileLimit();
  return sheaf::Main(std::vector<std::string>(argv + 1, argv + argc));
}
