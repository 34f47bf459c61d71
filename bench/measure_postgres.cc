// A store in PostgreSQL: against the cycle that people write by hand, and against our own on SQLite; and what calls
// cost that come to another server than the owner.
#include <fmt/format.h>
#include <sched.h>

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/delays.h"
#include "bench/rounds.h"
#include "bench/skip_locked.h"
#include "bench/sync_loop.h"
#include "bench/uploads.h"
#include "tests/postgres/postgres_cluster.h"

namespace sheaf::bench {
namespace {

// Servers that share a database of their own; the first owns it.
class Servers {
 public:
  static absl::StatusOr<std::unique_ptr<Servers>> Start(const Setup& setup, PostgresCluster& cluster, int count) {
    std::unique_ptr<Servers> servers(new Servers(cluster));
    for (int i = 0; i < count; ++i) {
      const std::string directory = fmt::format("{}/server-{}", setup.directory, i);
      std::filesystem::remove_all(directory);
      ASSIGN_OR_RETURN(servers->processes_.emplace_back(),
                       ChildProcess::Start({.words = {setup.sheafd, "--listen", "127.0.0.1:0", "--data-dir", directory,
                                                      "--store", servers->database_.conninfo()},
                                            .variables = {},
                                            .cpu = std::nullopt}));
    }
    return servers;
  }
  // The servers end before their database goes.
  ~Servers() { processes_.clear(); }

  const ChildProcess& owner() const { return *processes_.front(); }
  const ChildProcess& other() const { return *processes_.back(); }
  std::vector<const ChildProcess*> all() const {
    std::vector<const ChildProcess*> all;
    for (const auto& process : processes_) all.push_back(process.get());
    return all;
  }

 private:
  explicit Servers(PostgresCluster& cluster) : database_(cluster) {}

  PostgresDatabase database_;
  std::vector<std::unique_ptr<ChildProcess>> processes_;
};

// One after the other, so that each run of one is beside a run of the others.
absl::Status MeasureCycles(const Setup& setup, PostgresCluster& cluster, const SyncLoad& load,
                           const std::string& target, Table& table) {
  std::vector<double> rates, by_hand, on_sqlite, of_hand, of_sqlite, of_one, cpu;
  for (int i = 0; i < setup.repeats; ++i) {
    double hand = 0;
    {
      PostgresDatabase database(cluster);
      ASSIGN_OR_RETURN(const LoopResult result, RunSkipLocked(setup, database.conninfo(), load.workers, load.batch));
      hand = result.units_per_second();
    }
    double sqlite = 0;
    {
      ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartSheafd(setup));
      ASSIGN_OR_RETURN(const LoopResult result, RunSyncLoop(setup, {server.get()}, load, {}));
      sqlite = result.units_per_second();
    }
    ASSIGN_OR_RETURN(const auto one, Servers::Start(setup, cluster, 1));
    ASSIGN_OR_RETURN(const LoopResult result, RunSyncLoop(setup, one->all(), load, {}));
    ASSIGN_OR_RETURN(const auto three, Servers::Start(setup, cluster, 3));
    ASSIGN_OR_RETURN(const LoopResult result_of_three, RunSyncLoop(setup, three->all(), load, {}));
    const double rate = result.units_per_second();
    rates.push_back(rate);
    cpu.push_back(result.cpu_micros_per_unit() / 1000);
    by_hand.push_back(hand);
    on_sqlite.push_back(sqlite);
    of_hand.push_back(rate / hand);
    of_sqlite.push_back(rate / sqlite);
    of_one.push_back(result_of_three.units_per_second() / rate);
  }
  table.Add(
      {.what = fmt::format("{} workers, {} per Sync", load.workers, load.batch),
       .figure = fmt::format("{:.0f} tasks/s, {:.3f} ms server CPU per task", Quantile(rates, 0.5), Quantile(cpu, 0.5)),
       .ratio = fmt::format("{:.2f}x of {:.0f} by SKIP LOCKED, {:.2f}x of {:.0f} on SQLite", Quantile(of_hand, 0.5),
                            Quantile(by_hand, 0.5), Quantile(of_sqlite, 0.5), Quantile(on_sqlite, 0.5)),
       .target = target});
  table.Add({.what = fmt::format("the same, workers spread over 3 servers"),
             .figure = "",
             .ratio = fmt::format("{:.2f}x of one server", Quantile(of_one, 0.5)),
             .target = ">= 1x"});
  return absl::OkStatus();
}

absl::Status MeasureDelays(const Setup& setup, PostgresCluster& cluster, Table& table) {
  {
    ASSIGN_OR_RETURN(const auto servers, Servers::Start(setup, cluster, 1));
    ASSIGN_OR_RETURN(std::vector<double> millis, RoundMillis(setup, servers->owner().address(), 50));
    table.Add({.what = "round of 50 workers that computes nothing, created -> aggregate read",
               .figure = fmt::format("p50 {:.1f} ms, p90 {:.1f} ms", Quantile(millis, 0.5), Quantile(millis, 0.9)),
               .ratio = "",
               .target = "<= 60 ms"});
  }
  for (const bool is_forwarded : {false, true}) {
    ASSIGN_OR_RETURN(const auto servers, Servers::Start(setup, cluster, 2));
    const ChildProcess& called = is_forwarded ? servers->other() : servers->owner();
    ASSIGN_OR_RETURN(std::vector<double> millis, DeliveryMillis(setup, called.address(), 64));
    table.Add({.what = fmt::format("create a task -> one of 64 parked workers has it, {}",
                                   is_forwarded ? "through another server" : "at the owner"),
               .figure = fmt::format("p50 {:.2f} ms, p99 {:.2f} ms", Quantile(millis, 0.5), Quantile(millis, 0.99)),
               .ratio = "",
               .target = "p99 <= 10 ms"});
  }
  return absl::OkStatus();
}

// Of each Sync: what the server that forwards it takes, and what the owner takes more than for one that came there.
absl::Status MeasureForwarding(const Setup& setup, PostgresCluster& cluster, Table& table) {
  constexpr SyncLoad kLoad = {.workers = 64, .batch = 1, .num_rounds = 2, .tasks_per_round = 100'000};
  std::vector<double> forwarding, more;
  for (int i = 0; i < setup.repeats; ++i) {
    double direct = 0;
    {
      ASSIGN_OR_RETURN(const auto servers, Servers::Start(setup, cluster, 2));
      ASSIGN_OR_RETURN(const LoopResult result, RunSyncLoop(setup, {&servers->owner()}, kLoad, {}));
      direct = result.cpu_micros_per_unit() / 1000;
    }
    ASSIGN_OR_RETURN(const auto servers, Servers::Start(setup, cluster, 2));
    const absl::Duration owner_before = servers->owner().cpu_time();
    ASSIGN_OR_RETURN(const LoopResult result, RunSyncLoop(setup, {&servers->other()}, kLoad, {}));
    const absl::Duration owner = servers->owner().cpu_time() - owner_before;
    const double each = result.cpu_micros_per_unit() / 1000;
    forwarding.push_back(each);
    // The rounds' making and the warm-up are in the owner's time, as far as they go.
    more.push_back(absl::ToDoubleMilliseconds(owner) / static_cast<double>(result.num_units) - direct);
  }
  table.Add({.what = "a Sync that is forwarded",
             .figure = fmt::format("{:.3f} ms CPU where it comes, {:+.3f} ms at the owner", Quantile(forwarding, 0.5),
                                   Quantile(more, 0.5)),
             .ratio = "",
             .target = "<= 0.1 ms"});
  return absl::OkStatus();
}

absl::Status MeasureContributions(const Setup& setup, PostgresCluster& cluster, Table& table) {
  constexpr int kCount = 100;
  const std::string contribution = AContribution(kUploadElements);
  ASSIGN_OR_RETURN(const auto servers, Servers::Start(setup, cluster, 1));
  const absl::Time start = setup.clock.Now();
  RETURN_IF_ERROR(HandIn(servers->owner().address(), contribution, kUploadElements, kCount));
  const double seconds = absl::ToDoubleSeconds(setup.clock.Now() - start);
  table.Add({.what = fmt::format("{} contributions of 4 MiB, durable, one worker", kCount),
             .figure = fmt::format("{:.0f} MB/s", kCount * static_cast<double>(contribution.size()) / seconds / 1e6),
             .ratio = "",
             .target = ">= 100 MB/s"});
  return absl::OkStatus();
}

}  // namespace

// A cluster of tests saves memory. This one is as PostgreSQL is installed.
void SetUsual(PostgresCluster& cluster) {
  PostgresDatabase database(cluster);
  for (const std::string setting :
       {"max_connections = 100", "shared_buffers = '128MB'", "autovacuum_naptime = '1min'"}) {
    database.Run("ALTER SYSTEM SET " + setting);
  }
  cluster.Stop("fast");
  cluster.Start();
}

// Nothing is pinned: the database's processes would share a CPU with one side or the other.
absl::Status MeasurePostgres(const Setup& pinned, Table& table) {
  Setup setup = pinned;
  setup.server_cpu.reset();
  Unpin();
  absl::Status status = [&] {
    PostgresCluster cluster;
    SetUsual(cluster);
    RETURN_IF_ERROR(MeasureCycles(setup, cluster, {64, 1, 2, 100'000}, ">= 1x, >= 0.3x", table));
    RETURN_IF_ERROR(MeasureCycles(setup, cluster, {64, 16, 3, 100'000}, ">= 1x, >= 0.5x", table));
    RETURN_IF_ERROR(MeasureDelays(setup, cluster, table));
    RETURN_IF_ERROR(MeasureForwarding(setup, cluster, table));
    return MeasureContributions(setup, cluster, table);
  }();
  if (pinned.server_cpu) PinTo(1);
  return status;
}

}  // namespace sheaf::bench
