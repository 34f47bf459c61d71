// Ten thousand small rounds: what the server's memory and its store grow to, in a directory and in PostgreSQL.
#include <fmt/format.h>
#include <poll.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/noop_workers.h"
#include "bench/postgres_servers.h"
#include "bench/rounds.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {
namespace {

constexpr int kWorkers = 4;
// Rounds that are kept: reached well before the first look.
constexpr int kKept = 500;

double Mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

int64_t BytesBelow(const std::string& directory) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    std::error_code error;
    const auto size = entry.is_regular_file(error) ? entry.file_size(error) : 0;
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

class Rounds {
 public:
  Rounds(const Clock& clock, const ChildProcess& server)
      : clock_(clock),
        submitter_(server.address(), {.own_connection = true}),
        workers_(server.address(), kWorkers, [] {}) {}
  // One begins `pace` after the other, or when that has ended.
  absl::Status Run(int count, absl::Duration pace = absl::ZeroDuration()) {
    for (int i = 0; i < count; ++i) {
      const absl::Time start = clock_.Now();
      RETURN_IF_ERROR(RunRound(submitter_, fmt::format("round-{}", ++num_rounds_), kWorkers));
      const absl::Duration left = start + pace - clock_.Now();
      if (left > absl::ZeroDuration()) ::poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(left)));
    }
    return absl::OkStatus();
  }
  int count() const { return num_rounds_; }

 private:
  const Clock& clock_;
  GrpcTransport submitter_;
  const NoopWorkers workers_;
  int num_rounds_ = 0;
};

std::vector<std::string> Keeping() { return {"--ended-rounds-max", fmt::format("{}", kKept)}; }

absl::Status MeasureDirectory(const Setup& setup, Table& table) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartSheafd(setup, Keeping()));
  Rounds rounds(setup.clock, *server);
  for (const int until : {setup.rounds / 10, setup.rounds / 2, setup.rounds}) {
    RETURN_IF_ERROR(rounds.Run(until - rounds.count()));
    table.Add({.what = fmt::format("after {} rounds of {} tasks, of which {} are kept", until, kWorkers, kKept),
               .figure = fmt::format("RSS {:.1f} MiB, store {:.1f} MiB", Mebibytes(server->rss_bytes()),
                                     Mebibytes(BytesBelow(setup.directory))),
               .ratio = "",
               .target = "flat +-5 %"});
  }
  return absl::OkStatus();
}

// Of the server and its database at one moment, in bytes: "RSS", each table, and each table's indexes together.
using Sizes = std::map<std::string, double>;

Sizes SizesOf(PostgresServers& servers) {
  std::istringstream lines(servers.database().Run(R"(
      SELECT string_agg(format('%s %s %s.indexes %s', relname, pg_table_size(oid), relname, pg_indexes_size(oid)), ' ')
        FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace)"));
  Sizes sizes = {{"RSS", static_cast<double>(servers.owner().rss_bytes())}};
  std::string name;
  for (double bytes = 0; lines >> name >> bytes;) {
    sizes[name] = bytes;
    sizes["all"] += bytes;
  }
  return sizes;
}

Sizes Medians(const std::vector<Sizes>& samples) {
  Sizes medians;
  for (const auto& [name, bytes] : samples.back()) {
    std::vector<double> values;
    for (const Sizes& sample : samples) values.push_back(sample.contains(name) ? sample.at(name) : 0);
    medians[name] = Quantile(values, 0.5);
  }
  return medians;
}

// Once a minute PostgreSQL looks for what to vacuum. Until it has done so a few times, tables grow by what was deleted
// since they were made; from then on what they have depends on how long ago it was, and each figure is the median over
// some of these times. It also depends on how many rounds a minute has, so that all have as many.
constexpr int kVacuums = 3;
constexpr int kRoundsPerLook = 50;
constexpr absl::Duration kPace = absl::Milliseconds(100);

absl::Status MeasureDatabase(const Setup& setup, Table& table) {
  PostgresCluster cluster;
  SetUsual(cluster);
  ASSIGN_OR_RETURN(const auto servers, PostgresServers::Start(setup, cluster, 1, Keeping()));
  Rounds rounds(setup.clock, servers->owner());
  const auto num_vacuums = [&] {
    return std::stoll(
        servers->database().Run("SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = 'tasks'"));
  };
  const int fifth = setup.rounds / 5;
  while (rounds.count() < fifth || num_vacuums() < kVacuums) RETURN_IF_ERROR(rounds.Run(kRoundsPerLook, kPace));
  std::optional<Sizes> before;
  std::string larger;
  for (int i = 0; i < 4; ++i) {
    const int first = rounds.count();
    const int64_t vacuums_before = num_vacuums();
    std::vector<Sizes> samples;
    while (rounds.count() < first + fifth) {
      RETURN_IF_ERROR(rounds.Run(kRoundsPerLook, kPace));
      samples.push_back(SizesOf(*servers));
    }
    Sizes now = Medians(samples);
    if (!before) before = now;
    const auto percent = [&](const std::string& name) { return 100 * now.at(name) / before->at(name) - 100; };
    table.Add({.what = fmt::format("in PostgreSQL, rounds {} to {}, {} vacuums", first, rounds.count(),
                                   num_vacuums() - vacuums_before),
               .figure = fmt::format("RSS {:.1f} MiB, tables and indexes {:.2f} MiB",
                                     Mebibytes(static_cast<int64_t>(now.at("RSS"))),
                                     Mebibytes(static_cast<int64_t>(now.at("all")))),
               .ratio = fmt::format("{:+.1f} %, {:+.1f} %", percent("RSS"), percent("all")),
               .target = "flat +-5 %"});
    larger.clear();
    for (const auto& [name, bytes] : now) {
      if (name == "RSS" || name == "all" || bytes <= 1.05 * (*before)[name]) continue;
      larger += fmt::format("{}{} {:.0f} -> {:.0f} KiB", larger.empty() ? "" : ", ", name, (*before)[name] / 1024,
                            bytes / 1024);
    }
  }
  table.Add({.what = "of these, what has grown by more than 5 %",
             .figure = larger.empty() ? "nothing" : larger,
             .ratio = "",
             .target = "nothing"});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureEndurance(const Setup& setup, Table& table) {
  const auto is_wanted = [&](std::string_view part) { return part.find(setup.row) != std::string_view::npos; };
  if (is_wanted("directory")) RETURN_IF_ERROR(MeasureDirectory(setup, table));
  if (!is_wanted("postgres")) return absl::OkStatus();
  // As in measure_postgres.cc: nobody has a CPU to itself.
  Unpin();
  absl::Status status = MeasureDatabase(setup, table);
  if (setup.server_cpu) PinTo(1);
  return status;
}

}  // namespace sheaf::bench
