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
#include <string_view>
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
#include "server/net/listener.h"
#include "server/rpc/forwarded_metadata.h"
#include "server/runtime.h"
#include "server/shard_keeper.h"
#include "server/shared_server.h"
#include "server/threads/strand_pool.h"
#include "storage/directory/open.h"
#include "storage/memory/memory_payload_store.h"
#include "storage/memory/memory_task_store.h"
#include "storage/postgres/open.h"
#include "storage/postgres/postgres_heartbeat.h"
#include "storage/postgres/postgres_token_watch.h"
#include "tls/self_signed.h"

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

// Before any thread is made: all inherit it, so that only TakeStopSignal sees the signals.
void BlockStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

// Takes the signal that says so, if it comes within `patience`. The next one then ends the process at once.
std::optional<int> TakeStopSignal(absl::Duration patience) {
  const sigset_t signals = StopSignals();
  const timespec timeout = absl::ToTimespec(patience);
  const int received = sigtimedwait(&signals, nullptr, &timeout);
  if (received <= 0) return std::nullopt;
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  return received;
}

int WaitForStop() {
  for (;;) {
    if (const std::optional<int> signal = TakeStopSignal(absl::Hours(1))) return *signal;
  }
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

void RemovePortFiles(const Config& config) {
  if (!config.port_file.empty()) std::filesystem::remove(config.port_file);
  if (!config.http_port_file.empty()) std::filesystem::remove(config.http_port_file);
}

// 160 bits of chance.
constexpr int kPeerSecretCharacters = 32;
// A database hears from its owner so many times before another may take over.
constexpr int kBeats = 5;
// Between two looks at its tokens.
constexpr absl::Duration kTokenLook = absl::Seconds(1);
// Before what others have deleted is looked for.
constexpr int kLooksPerDrop = 60;
// Between two looks whether another server is to have the store.
constexpr absl::Duration kDrainLook = absl::Milliseconds(50);
// Of a server whose turn has come or ended while the database is away.
constexpr absl::Duration kReopenAfter = absl::Milliseconds(500);
// Of calls that are open then, before a signal is looked for.
constexpr absl::Duration kDrainGrace = absl::Seconds(1);

absl::StatusOr<Runtime::Options> RuntimeOptions(const Config& config) {
  Runtime::Options options = {
      .listen = config.listen,
      .http = config.http,
      .http_origins = config.http_origins,
      .tls = config.tls,
      .requires_tokens = !config.is_loopback,
      .data_directory = config.data_dir,
      .idle_max = config.is_in_postgres() ? config.takeover_after / kBeats : absl::InfiniteDuration(),
      .stop_grace = config.stop_grace,
      .limits = config.limits};
  if (!config.join.empty()) {
    ASSIGN_OR_RETURN(options.join, JoinFiles::Read(config.join));
  }
  return options;
}

// The ports of a server that shares its database with others: they are there before it is known whose turn it is.
absl::Status OpenPorts(const Config& config, const Clock& clock, Random& random, Runtime::Options& options) {
  ASSIGN_OR_RETURN(options.doors.rpc, Listener::Open(config.listen));
  if (!config.http.empty()) {
    ASSIGN_OR_RETURN(options.doors.http, Listener::Open(config.http));
  }
  ASSIGN_OR_RETURN(options.peers, Listener::Open(config.peer_listen));
  ASSIGN_OR_RETURN(options.for_peers.shown, MakeSelfSigned(kPeerName, clock.Now()));
  options.for_peers.secret = random.Token(kPeerSecretCharacters);
  return absl::OkStatus();
}

// `server`, a Runtime, a SharedServer or a Turn, can be called.
template <typename Server>
absl::Status Announce(const Config& config, const Server& server, std::string_view what) {
  if (!config.http_port_file.empty()) {
    RETURN_IF_ERROR(WritePortFile(config.http_port_file, server.http_address()));
  }
  if (!config.port_file.empty()) RETURN_IF_ERROR(WritePortFile(config.port_file, server.address()));
  LogInfo("sheafd {} listening on {}{}{}, {}", kVersion, server.address(),
          config.http.empty() ? "" : fmt::format(", HTTP on {}", server.http_address()),
          config.tls.empty()               ? ""
          : config.tls.authorities.empty() ? " with TLS"
                                           : " with mutual TLS",
          what);
  return absl::OkStatus();
}

// The server's turns at a database: it waits for one, and it ends with the process, or when the server is taken out of
// service. Callers are let in meanwhile, as soon as the tokens are known, and their calls go on to the server whose
// turn it is.
class Turn {
 public:
  Turn(const Config& config, const Clock& clock, Runtime::Options options)
      : config_(config),
        clock_(clock),
        address_(options.doors.rpc->address()),
        peer_({.address = options.peers->address(),
               .certificate = options.for_peers.shown.certificate,
               .secret = options.for_peers.secret}),
        options_(std::move(options)) {}

  ~Turn() {
    if (keeper_ != nullptr) keeper_->Stop();
    server_.reset();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // As PostgresStoreOptions.
  const std::string& address() const { return address_; }
  const PeerAddress& peer() const { return peer_; }

  // As PostgresOwner::Options::wait.
  bool Wait(const PostgresOwner::Waiting& waiting) {
    if (!has_said_why_) LogInfo("waiting for the store: {}", std::string(waiting.why.message()));
    has_said_why_ = true;
    if (clock_.Now() >= next_token_look_) {
      next_token_look_ = clock_.Now() + kTokenLook;
      status_ = LookAtTokens();
    }
    if (server_ != nullptr && waiting.owner) {
      const auto& [server, peer] = *waiting.owner;
      server_->store(kHomeShard)
          .SetOwner(
              {{.name = server, .address = peer.address, .certificate = peer.certificate, .secret = peer.secret}});
    }
    was_stopped_ = status_.ok() && TakeStopSignal(absl::ZeroDuration());
    return status_.ok() && !was_stopped_;
  }
  // As PostgresOwner::Options::may_take.
  bool MayTake() const { return keeper_ == nullptr || !keeper_->leaves_first_to_others(); }
  bool was_stopped() const { return was_stopped_; }
  // Callers come already.
  bool has_begun() const { return server_ != nullptr; }
  // Why it cannot wait.
  const absl::Status& status() const { return status_; }

  // The turn has come: nothing is forwarded any more. Returns at once.
  void Take() {
    has_said_why_ = false;
    if (server_ != nullptr) server_->store(kHomeShard).Hold();
    if (payloads_ == nullptr) return;
    // There may be many gigabytes of them.
    ending_.Run("fetched", [payloads = payloads_] { payloads->DropAll(); });
  }
  // What callers come to. Of a server that never waited it begins here.
  absl::StatusOr<SharedServer*> Server() {
    if (server_ == nullptr) {
      ASSIGN_OR_RETURN(watch_, PostgresTokenWatch::Open({.conninfo = config_.store}));
      ASSIGN_OR_RETURN(const auto tokens, watch_->Look());
      RETURN_IF_ERROR(StartServer(*tokens));
      server_->store(kHomeShard).Hold();
    }
    watch_.reset();
    return server_.get();
  }
  // While it serves: the signal that told the process to stop. None: the server was taken out of service, and nothing
  // of the store is used here any more.
  std::optional<int> AwaitEnd() {
    for (bool is_giving = false;;) {
      if (const auto signal = TakeStopSignal(is_giving ? absl::ZeroDuration() : kDrainLook)) return signal;
      is_giving = is_giving || !MayTake();
      if (!is_giving) continue;
      const absl::Status given = server_->store(kHomeShard).HandOver(kDrainGrace);
      if (absl::IsDeadlineExceeded(given)) continue;
      if (!given.ok()) LogWarning("the store is to be given away: {}", std::string(given.message()));
      return std::nullopt;
    }
  }
  // The shards that the server has are others' first.
  absl::Status Stop() {
    keeper_->Stop();
    return server_->Stop();
  }
  const std::string& http_address() const { return server_->http_address(); }

 private:
  // The error of a server that cannot be one. While the database does not serve, the tokens are what they were.
  absl::Status LookAtTokens() {
    if (watch_ == nullptr) {
      auto watch = PostgresTokenWatch::Open({.conninfo = config_.store});
      if (!watch.ok()) return absl::OkStatus();
      watch_ = *std::move(watch);
    }
    const auto tokens = watch_->Look();
    if (!tokens.ok()) return absl::OkStatus();
    if (payloads_ != nullptr) LookAtPayloads();
    if (!*tokens) return absl::OkStatus();
    if (server_ != nullptr) return server_->SetTokens(**tokens);
    const absl::Status started = StartServer(**tokens);
    // At the next look.
    if (absl::IsUnavailable(started) && server_ == nullptr) return Forget();
    RETURN_IF_ERROR(started);
    return Announce(config_, *server_, "forwarding calls to the server that owns the store");
  }

  // What was read of the database is read again.
  absl::Status Forget() {
    watch_.reset();
    payloads_.reset();
    return absl::OkStatus();
  }

  absl::Status StartServer(const std::vector<TokenRecord>& tokens) {
    if (watch_->has_own_schema()) {
      ASSIGN_OR_RETURN(payloads_, OpenWaitingPayloads({.conninfo = config_.store}, config_.data_dir));
    }
    ASSIGN_OR_RETURN(const std::string name, NameOfServer(config_.data_dir, random_));
    ASSIGN_OR_RETURN(shards_, PostgresShards::Open({.conninfo = config_.store}, name, config_.takeover_after));
    // Before the first call that asks for a population: what is placed is known.
    ASSIGN_OR_RETURN(const PostgresShards::View view, shards_->Look());
    ASSIGN_OR_RETURN(server_,
                     SharedServer::Start(tokens, payloads_, shards_.get(), clock_, random_, std::move(options_)));
    keeper_ = std::make_unique<ShardKeeper>(
        *server_, *shards_, view, clock_,
        ShardKeeper::Options{.database = {.conninfo = config_.store},
                             .directory = config_.data_dir,
                             .name = name,
                             .address = address_,
                             .peer = peer_,
                             .takeover_after = config_.takeover_after,
                             .beat_interval = config_.takeover_after / kBeats,
                             .make_random = [] { return std::make_unique<SystemRandom>(); }});
    return absl::OkStatus();
  }

  void LookAtPayloads() {
    // Another version has migrated the store. Its calls go on to the owner.
    if (!watch_->has_own_schema()) payloads_->Stop();
    if (++num_payload_looks_ % kLooksPerDrop == 0) payloads_->DropDeleted().IgnoreError();
  }

  const Config& config_;
  const Clock& clock_;
  const std::string address_;
  const PeerAddress peer_;
  // The server's, once it begins.
  Runtime::Options options_;
  SystemRandom random_;
  bool has_said_why_ = false;
  bool was_stopped_ = false;
  absl::Status status_;
  absl::Time next_token_look_ = absl::InfinitePast();
  std::unique_ptr<PostgresTokenWatch> watch_;
  // Null where the store had another schema than this build when the server began.
  std::shared_ptr<PostgresPayloadStore> payloads_;
  int64_t num_payload_looks_ = 0;
  std::unique_ptr<PostgresShards> shards_;
  // It has what the server serves.
  std::unique_ptr<ShardKeeper> keeper_;
  std::unique_ptr<SharedServer> server_;
  // Beside the store's opening.
  StrandPool ending_{1};
};

struct ChosenStore {
  // What `tasks` and `payloads` are of.
  std::variant<Store, PostgresStore> parts;
  TaskStore* tasks = nullptr;
  PayloadStore* payloads = nullptr;
};

// `as` says who this server is to others of the same database, and how it waits for its turn.
absl::StatusOr<ChosenStore> ChooseStore(const Config& config, Random& random, PostgresStoreOptions as = {}) {
  ChosenStore chosen;
  if (config.is_in_postgres()) {
    as.conninfo = config.store;
    as.directory = config.data_dir;
    as.takeover_after = config.takeover_after;
    ASSIGN_OR_RETURN(PostgresStore database, OpenPostgresStore(as, random));
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
  GiveBack(store);
  fmt::print("{}\n", secret);
  fmt::print(stderr,
             "sheafd: this token of the role operator is shown once; keep it in a file of mode 0600 for "
             "`sheaf --token-file`\n");
  return absl::OkStatus();
}

// `server` as for Announce.
template <typename Server>
absl::Status StopOn(int signal, const Config& config, const ChosenStore& store, Server& server) {
  LogInfo("stopping on {}; another signal ends it at once", signal == SIGINT ? "SIGINT" : "SIGTERM");
  absl::Status status = server.Stop();
  if (status.ok()) GiveBack(store);
  RemovePortFiles(config);
  LogInfo("stopped");
  return status;
}

// In a store that is this server's alone.
absl::Status Serve(const Config& config) {
  const SystemClock clock;
  SystemRandom random;
  ASSIGN_OR_RETURN(Runtime::Options options, RuntimeOptions(config));
  ASSIGN_OR_RETURN(const ChosenStore store, ChooseStore(config, random));
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime,
                   Runtime::Start(*store.tasks, *store.payloads, clock, random, std::move(options)));
  RETURN_IF_ERROR(Announce(config, *runtime, WhereDataLie(config)));
  return StopOn(WaitForStop(), config, store, *runtime);
}

// In a database that several servers share.
absl::Status ServeShared(const Config& config) {
  const SystemClock clock;
  const absl::Time start_time = clock.Now();
  SystemRandom random;
  ASSIGN_OR_RETURN(Runtime::Options options, RuntimeOptions(config));
  RETURN_IF_ERROR(OpenPorts(config, clock, random, options));
  // What the turn's server serves outlives it.
  std::optional<ChosenStore> store;
  Turn turn(config, clock, std::move(options));
  for (;;) {
    PostgresStoreOptions as = {.address = turn.address(), .peer = turn.peer()};
    as.up_for = clock.Now() - start_time;
    // While what lives is read.
    std::optional<PostgresHeartbeat> recovery;
    as.wait = [&turn](const PostgresOwner::Waiting& waiting) { return turn.Wait(waiting); };
    as.may_take = [&turn] { return turn.MayTake(); };
    as.taken = [&](const PostgresOwner::Tenure& tenure) {
      turn.Take();
      recovery.emplace(
          PostgresConnection::Options{
              .conninfo = config.store, .timeout = config.takeover_after, .lock_timeout = config.takeover_after / 2},
          tenure, config.takeover_after / kBeats);
    };
    absl::StatusOr<ChosenStore> chosen = ChooseStore(config, random, std::move(as));
    if (turn.was_stopped()) {
      RemovePortFiles(config);
      LogInfo("stopped before its turn");
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(turn.status());
    absl::Status served = chosen.status();
    if (chosen.ok()) {
      store = *std::move(chosen);
      ASSIGN_OR_RETURN(SharedServer* const server, turn.Server());
      served = server->store(kHomeShard).Serve(*store->tasks, *store->payloads, random);
    }
    recovery.reset();
    if (absl::IsUnavailable(served) && turn.has_begun()) {
      // Whoever is connected waits meanwhile, or is answered by other shards.
      LogWarning("the store waits for its database: {}", std::string(served.message()));
      store.reset();
      if (!TakeStopSignal(kReopenAfter)) continue;
      RemovePortFiles(config);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(served);
    RETURN_IF_ERROR(Announce(config, turn, WhereDataLie(config)));
    if (const std::optional<int> signal = turn.AwaitEnd()) return StopOn(*signal, config, *store, turn);
    GiveBack(*store);
    store.reset();
    LogInfo("the store is given away");
  }
}

absl::Status Run(const Config& config) { return config.is_in_postgres() ? ServeShared(config) : Serve(config); }

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
          invocation->create_operator_token ? PrintOperatorToken(invocation->config) : Run(invocation->config);
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
