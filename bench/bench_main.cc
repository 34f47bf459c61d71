// sheaf_bench: measures a real sheafd, durable on SQLite, in a process and on a CPU of its own. bench/run.sh builds and
// runs it.
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/echo_server.h"
#include "bench/http_echo_server.h"

namespace sheaf::bench {
namespace {

struct Measurement {
  const char* name;
  absl::Status (*run)(const Setup& setup, Table& table);
};
constexpr Measurement kMeasurements[] = {
    {"sync", MeasureSync},           {"delivery", MeasureDelivery}, {"round", MeasureRound},
    {"idle", MeasureIdle},           {"uploads", MeasureUploads},   {"security", MeasureSecurity},
    {"endurance", MeasureEndurance}, {"http", MeasureHttp},         {"overload", MeasureOverload},
    {"postgres", MeasurePostgres},   {"pipeline", MeasurePipeline}};

std::string LoadAverage() {
  std::ifstream file("/proc/loadavg");
  std::string one, five, fifteen;
  file >> one >> five >> fifteen;
  return fmt::format("{} {} {}", one, five, fifteen);
}

}  // namespace

double Quantile(std::vector<double>& values, double q) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
  return values[rank == 0 ? 0 : rank - 1];
}

absl::StatusOr<std::unique_ptr<ChildProcess>> StartSheafd(const Setup& setup, const std::vector<std::string>& more,
                                                          absl::Duration flush_delay) {
  const std::string directory = setup.directory + "/store";
  std::filesystem::remove_all(directory);
  ChildProcess::Options options = {.words = {setup.sheafd, "--listen", "127.0.0.1:0", "--data-dir", directory},
                                   .variables = {},
                                   .cpu = setup.server_cpu};
  options.words.insert(options.words.end(), more.begin(), more.end());
  if (flush_delay > absl::ZeroDuration()) {
    options.variables = {{"LD_PRELOAD", setup.slow_flush},
                         {"SHEAF_FLUSH_MICROSECONDS", fmt::format("{}", absl::ToInt64Microseconds(flush_delay))}};
  }
  return ChildProcess::Start(options);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> StartEcho(const Setup& setup) {
  return ChildProcess::Start({.words = {setup.self, "--echo-server"}, .variables = {}, .cpu = setup.server_cpu});
}

// One part after the other: each prints what it measured when it is done, also if it failed on the way, and none keeps
// the next from its turn. The first failure.
absl::Status Run(const Setup& setup, const std::vector<std::string>& only) {
  absl::Status status;
  std::vector<std::string> failed;
  const std::string load = LoadAverage();
  for (const Measurement& measurement : kMeasurements) {
    if (!only.empty() && std::find(only.begin(), only.end(), measurement.name) == only.end()) continue;
    fmt::print(stderr, "measuring {} ...\n", measurement.name);
    Table table;
    const absl::Status part = measurement.run(setup, table);
    fmt::print("## {}\n\n", measurement.name);
    if (!table.is_empty()) fmt::print("{}\n", table.Markdown());
    if (!part.ok()) {
      fmt::print("FAILED: {}\n\n", part.ToString());
      failed.emplace_back(measurement.name);
      status.Update(part);
    }
    // Whoever waits for the last part has the others.
    std::fflush(stdout);
  }
  fmt::print("Median of {} runs of {} each, echo and server in turns; server {}; load before {}, after {}.\n",
             setup.repeats, absl::FormatDuration(setup.duration),
             setup.server_cpu ? "and clients pinned to a CPU each" : "not pinned", load, LoadAverage());
  if (!failed.empty()) fmt::print("Failed: {}.\n", fmt::join(failed, ", "));
  return status;
}

// A connection each for ten thousand workers.
void RaiseFileLimit() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

int Main(int argc, char** argv) {
  RaiseFileLimit();
  // As sheafd does: the echo shall be no slower than it must be.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const SystemClock clock;
  Setup setup = {.clock = clock};
  setup.self = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<std::string> only;
  double seconds = 2;
  double snapshot_seconds = 60;
  bool is_echo = false;
  bool is_http_echo = false;
  std::string echo_certificate;
  std::string echo_key;
  bool is_pinned = sysconf(_SC_NPROCESSORS_ONLN) >= 2;
  std::string parent = std::filesystem::temp_directory_path();
  CLI::App app("Measures sheafd.");
  app.add_option("--sheafd", setup.sheafd, "The server's binary.");
  app.add_option("--slow-flush", setup.slow_flush, "Library that slows flushes; without it those rows are left out.");
  app.add_option("--python-package", setup.python_package,
                 "Folder of the Python package; without it those rows are left out.");
  app.add_option("--python-sleeper", setup.python_sleeper, "The program that sleeps, bench/pipeline_sleeper.py.");
  app.add_option("--directory", parent, "Where to put the stores: their disk is measured too.");
  app.add_option("--seconds", seconds, "Length of one run.");
  app.add_option("--repeats", setup.repeats, "Runs of each.");
  app.add_option("--only", only,
                 "sync, delivery, round, idle, uploads, security, endurance, http, overload, postgres, pipeline.");
  app.add_option(
      "--row", setup.row,
      "Of sync: only rows whose name contains this, such as \"64 workers, 1 per\"; of http only such parts: cycles, "
      "contributions, metrics, overload, parked; of pipeline: "
      "sleeping, opening, back to back, memory, tags; of postgres: cycles, delays, forwarding, "
      "transfers, snapshot; of endurance: directory, postgres.");
  app.add_option("--snapshot-seconds", snapshot_seconds, "Of postgres: how long somebody holds a snapshot.");
  app.add_option("--rounds", setup.rounds, "Of endurance: how many.");
  app.add_flag("--pin,!--no-pin", is_pinned, "Server and clients on a CPU each.");
  app.add_flag("--echo-server", is_echo, "Be the yardstick.");
  app.add_flag("--http-echo-server", is_http_echo, "Be the yardstick of HTTP.");
  app.add_option("--tls-cert", echo_certificate, "Of the yardstick of HTTP: it speaks TLS.");
  app.add_option("--tls-key", echo_key, "Of that certificate.");
  CLI11_PARSE(app, argc, argv);
  if (is_echo) {
    ServeEcho();
    return 0;
  }
  if (is_http_echo) {
    ServeHttpEcho(echo_certificate, echo_key);
    return 0;
  }
  for (const std::string& name : only) {
    if (std::none_of(std::begin(kMeasurements), std::end(kMeasurements),
                     [&](const Measurement& measurement) { return name == measurement.name; })) {
      fmt::print(stderr, "sheaf_bench: there is no part {}; see --help\n", name);
      return 1;
    }
  }
  setup.duration = absl::Seconds(seconds);
  setup.snapshot = absl::Seconds(snapshot_seconds);
  if (is_pinned) {
    setup.server_cpu = 0;
    PinTo(1);
  }
  std::string directory = parent + "/sheaf-bench-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    fmt::print(stderr, "sheaf_bench: cannot create {}; choose another place with --directory\n", directory);
    return 1;
  }
  setup.directory = directory;
  const absl::Status status = Run(setup, only);
  std::filesystem::remove_all(directory);
  if (status.ok()) return 0;
  fmt::print(stderr, "sheaf_bench: {}\n", status.ToString());
  return 1;
}

}  // namespace sheaf::bench

int main(int argc, char** argv) { return sheaf::bench::Main(argc, argv); }
