// A store in PostgreSQL: against the cycle that people write by hand, and against our own on SQLite; what calls cost
// that come to another server than the owner; and what it costs that somebody keeps old versions of rows from being
// removed.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/delays.h"
#include "bench/postgres_servers.h"
#include "bench/process_stat.h"
#include "bench/rounds.h"
#include "bench/skip_locked.h"
#include "bench/sync_loop.h"
#include "bench/uploads.h"
#include "sdk/cpp/client/blob_client.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {
namespace {

// One after the other, so that each run of one is beside a run of the others.
absl::Status MeasureCycles(const Setup& setup, PostgresCluster& cluster, SyncLoad load, const std::string& target,
                           Table& table) {
  load.other_cpu_time = [postmaster = PostmasterOf(cluster)] { return CpuTimeOfChildren(postmaster); };
  std::vector<double> rates, by_hand, on_sqlite, of_hand, of_sqlite, of_one, sent_of_one, cpu, database_cpu;
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
    ASSIGN_OR_RETURN(const auto one, PostgresServers::Start(setup, cluster, 1));
    ASSIGN_OR_RETURN(const LoopResult result, RunSyncLoop(setup, one->all(), load, {}));
    // Spread over three servers, and all sent to the one that owns the store, as a balancer can.
    ASSIGN_OR_RETURN(const auto three, PostgresServers::Start(setup, cluster, 3));
    ASSIGN_OR_RETURN(const LoopResult result_of_three, RunSyncLoop(setup, three->all(), load, {}));
    ASSIGN_OR_RETURN(const auto sent, PostgresServers::Start(setup, cluster, 3));
    ASSIGN_OR_RETURN(const LoopResult result_of_sent, RunSyncLoop(setup, {&sent->owner()}, load, {}));
    const double rate = result.units_per_second();
    rates.push_back(rate);
    cpu.push_back(result.cpu_micros_per_unit() / 1000);
    database_cpu.push_back(result.other_cpu_micros_per_unit() / 1000);
    by_hand.push_back(hand);
    on_sqlite.push_back(sqlite);
    of_hand.push_back(rate / hand);
    of_sqlite.push_back(rate / sqlite);
    of_one.push_back(result_of_three.units_per_second() / rate);
    sent_of_one.push_back(result_of_sent.units_per_second() / rate);
  }
  table.Add(
      {.what = fmt::format("{} workers, {} per Sync", load.workers, load.batch),
       .figure = fmt::format("{:.0f} tasks/s, {:.3f} ms server CPU per task, {:.3f} ms the database's",
                             Quantile(rates, 0.5), Quantile(cpu, 0.5), Quantile(database_cpu, 0.5)),
       .ratio = fmt::format("{:.2f}x of {:.0f} by SKIP LOCKED, {:.2f}x of {:.0f} on SQLite", Quantile(of_hand, 0.5),
                            Quantile(by_hand, 0.5), Quantile(of_sqlite, 0.5), Quantile(on_sqlite, 0.5)),
       .target = target});
  table.Add({.what = "the same, 3 servers, workers sent to the owner",
             .figure = "",
             .ratio = fmt::format("{:.2f}x of one server", Quantile(sent_of_one, 0.5)),
             .target = ">= 1x"});
  table.Add({.what = "the same, 3 servers, workers spread over all",
             .figure = "",
             .ratio = fmt::format("{:.2f}x of one server", Quantile(of_one, 0.5)),
             .target = ">= 1x"});
  return absl::OkStatus();
}

absl::Status MeasureDelays(const Setup& setup, PostgresCluster& cluster, Table& table) {
  {
    ASSIGN_OR_RETURN(const auto servers, PostgresServers::Start(setup, cluster, 1));
    ASSIGN_OR_RETURN(std::vector<double> millis, RoundMillis(setup, servers->owner().address(), 50));
    table.Add({.what = "round of 50 workers that computes nothing, created -> aggregate read",
               .figure = fmt::format("p50 {:.1f} ms, p90 {:.1f} ms", Quantile(millis, 0.5), Quantile(millis, 0.9)),
               .ratio = "",
               .target = "<= 60 ms"});
  }
  for (const bool is_forwarded : {false, true}) {
    ASSIGN_OR_RETURN(const auto servers, PostgresServers::Start(setup, cluster, 2));
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
  const SyncLoad kLoad = {.workers = 64, .batch = 1, .num_rounds = 2, .tasks_per_round = 100'000};
  std::vector<double> forwarding, more;
  for (int i = 0; i < setup.repeats; ++i) {
    double direct = 0;
    {
      ASSIGN_OR_RETURN(const auto servers, PostgresServers::Start(setup, cluster, 2));
      ASSIGN_OR_RETURN(const LoopResult result, RunSyncLoop(setup, {&servers->owner()}, kLoad, {}));
      direct = result.cpu_micros_per_unit() / 1000;
    }
    ASSIGN_OR_RETURN(const auto servers, PostgresServers::Start(setup, cluster, 2));
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

// Contributions of 4 MiB and a broadcast of 64 MiB, to and from the owner and to and from another server: what travels,
// and what the owner has to do for it.
absl::Status MeasureTransfers(const Setup& setup, PostgresCluster& cluster, Table& table) {
  constexpr int kContributions = 100;
  constexpr int kReads = 8;
  const std::string contribution = AContribution(kUploadElements);
  const std::string broadcast(64 << 20, 'b');
  for (const bool is_forwarded : {false, true}) {
    ASSIGN_OR_RETURN(const auto servers, PostgresServers::Start(setup, cluster, 2));
    const ChildProcess& called = is_forwarded ? servers->other() : servers->owner();
    const std::string_view where = is_forwarded ? "through another server" : "at the owner";
    // MB/s, and the owner's CPU.
    const auto figure = [&](double bytes, int count, absl::Time start, absl::Duration cpu_before) {
      const double seconds = absl::ToDoubleSeconds(setup.clock.Now() - start);
      return fmt::format("{:.0f} MB/s, {:.1f} ms CPU of the owner each", bytes * count / seconds / 1e6,
                         absl::ToDoubleMilliseconds(servers->owner().cpu_time() - cpu_before) / count);
    };
    absl::Duration cpu_before = servers->owner().cpu_time();
    absl::Time start = setup.clock.Now();
    RETURN_IF_ERROR(HandIn(called.address(), contribution, kUploadElements, kContributions));
    table.Add({.what = fmt::format("{} contributions of 4 MiB, durable, one worker, {}", kContributions, where),
               .figure = figure(static_cast<double>(contribution.size()), kContributions, start, cpu_before),
               .ratio = "",
               .target = ">= 100 MB/s"});
    GrpcTransport transport(called.address(), {.own_connection = true});
    SystemRandom random;
    ASSIGN_OR_RETURN(const std::string digest, UploadBlob(transport, random, broadcast));
    // Once before: whoever is asked first fetches the file.
    RETURN_IF_ERROR(ReadBlob(transport, digest).status());
    cpu_before = servers->owner().cpu_time();
    start = setup.clock.Now();
    for (int i = 0; i < kReads; ++i) RETURN_IF_ERROR(ReadBlob(transport, digest).status());
    table.Add({.what = fmt::format("a broadcast of 64 MiB is read, {}", where),
               .figure = figure(static_cast<double>(broadcast.size()), kReads, start, cpu_before),
               .ratio = "",
               .target = ""});
  }
  return absl::OkStatus();
}

// With and without a session that somebody has forgotten in turns, each on a new database.
absl::Status MeasureSnapshot(const Setup& setup, PostgresCluster& cluster, Table& table) {
  constexpr int kParts = 6;
  constexpr int kTasksPerRound = 100'000;
  // No server of this machine completes more.
  constexpr double kTasksPerSecondMax = 25'000;
  Setup whole = setup;
  whole.duration = setup.snapshot;
  const int num_rounds =
      1 + static_cast<int>(absl::ToDoubleSeconds(setup.snapshot) * kTasksPerSecondMax / kTasksPerRound);
  const SyncLoad load = {
      .workers = 64, .batch = 1, .num_rounds = num_rounds, .tasks_per_round = kTasksPerRound, .parts = kParts};
  std::vector<double> rates, held_rates, ratios, last_ratios;
  // With and without, of the last turn.
  std::string sizes[2];
  for (int i = 0; i < setup.repeats; ++i) {
    LoopResult results[2];
    for (const bool is_held : {false, true}) {
      ASSIGN_OR_RETURN(const auto servers, PostgresServers::Start(setup, cluster, 1));
      std::optional<PostgresSnapshot> snapshot;
      if (is_held) snapshot.emplace(servers->database());
      ASSIGN_OR_RETURN(results[is_held], RunSyncLoop(whole, servers->all(), load, {}));
      sizes[is_held] = servers->database().Run(R"(
          SELECT string_agg(format('%s %s + %s KiB', relname, pg_table_size(oid) / 1024, pg_indexes_size(oid) / 1024),
                            ', ' ORDER BY relname)
            FROM pg_class WHERE relname IN ('owners', 'rounds', 'workers'))");
    }
    const auto& [without, with] = results;
    rates.push_back(without.units_per_second());
    held_rates.push_back(with.units_per_second());
    ratios.push_back(held_rates.back() / rates.back());
    last_ratios.push_back(static_cast<double>(with.units_of_parts.back()) /
                          static_cast<double>(without.units_of_parts.back()));
  }
  table.Add({.what = fmt::format("{} workers, {} per Sync, while somebody holds a snapshot for {}", load.workers,
                                 load.batch, absl::FormatDuration(setup.snapshot)),
             .figure = fmt::format("{:.0f} tasks/s", Quantile(held_rates, 0.5)),
             .ratio = fmt::format("{:.2f}x of {:.0f} without, {:.2f}x in the last {} of it", Quantile(ratios, 0.5),
                                  Quantile(rates, 0.5), Quantile(last_ratios, 0.5),
                                  absl::FormatDuration(setup.snapshot / kParts)),
             .target = ">= 0.65x"});
  for (const bool is_held : {false, true}) {
    table.Add({.what = fmt::format("tables and their indexes then, {} it", is_held ? "with" : "without"),
               .figure = sizes[is_held],
               .ratio = "",
               .target = ""});
  }
  return absl::OkStatus();
}

}  // namespace

// Nothing is pinned: the database's processes would share a CPU with one side or the other.
absl::Status MeasurePostgres(const Setup& pinned, Table& table) {
  Setup setup = pinned;
  setup.server_cpu.reset();
  Unpin();
  absl::Status status = [&] {
    PostgresCluster cluster;
    SetUsual(cluster);
    const auto is_wanted = [&](std::string_view part) { return part.find(setup.row) != std::string_view::npos; };
    if (is_wanted("cycles")) {
      RETURN_IF_ERROR(MeasureCycles(setup, cluster, {64, 1, 2, 100'000}, ">= 1x, >= 0.3x", table));
      RETURN_IF_ERROR(MeasureCycles(setup, cluster, {64, 16, 3, 100'000}, ">= 1x, >= 0.5x", table));
    }
    if (is_wanted("delays")) RETURN_IF_ERROR(MeasureDelays(setup, cluster, table));
    if (is_wanted("forwarding")) RETURN_IF_ERROR(MeasureForwarding(setup, cluster, table));
    if (is_wanted("transfers")) RETURN_IF_ERROR(MeasureTransfers(setup, cluster, table));
    if (is_wanted("snapshot")) RETURN_IF_ERROR(MeasureSnapshot(setup, cluster, table));
    return absl::OkStatus();
  }();
  if (pinned.server_cpu) PinTo(1);
  return status;
}

}  // namespace sheaf::bench
