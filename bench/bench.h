// What the measurements share: how to start a server, and where the figures go.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "bench/child_process.h"
#include "bench/table.h"

namespace sheaf::bench {

struct Setup {
  const Clock& clock;
  // Path of the sheafd binary.
  std::string sheafd;
  // Path of this binary, which is also the echo server.
  std::string self;
  // Path of the library that slows flushes; empty: those rows are left out.
  std::string slow_flush;
  // Folder of the Python package; empty: rows of programs in Python are left out. The program that sleeps.
  std::string python_package;
  std::string python_sleeper;
  // Stores are made and deleted in here.
  std::string directory;
  absl::Duration duration = absl::Seconds(2);
  int repeats = 3;
  // Of "sync": only the rows whose names contain this; of "http", "pipeline", "postgres" and "endurance" only such parts.
  std::string row;
  // Of "postgres": how long a snapshot is held.
  absl::Duration snapshot = absl::Minutes(1);
  // Of "endurance".
  int rounds = 10'000;
  // The server's CPU; the client takes the other.
  std::optional<int> server_cpu;
};

// A sheafd on an empty SQLite store of its own, with more `options`. `flush_delay` is added to every flush.
absl::StatusOr<std::unique_ptr<ChildProcess>> StartSheafd(const Setup& setup,
                                                          const std::vector<std::string>& options = {},
                                                          absl::Duration flush_delay = absl::ZeroDuration());
absl::StatusOr<std::unique_ptr<ChildProcess>> StartEcho(const Setup& setup);

// Each adds its rows.
absl::Status MeasureSync(const Setup& setup, Table& table);
absl::Status MeasureDelivery(const Setup& setup, Table& table);
absl::Status MeasureRound(const Setup& setup, Table& table);
absl::Status MeasureIdle(const Setup& setup, Table& table);
absl::Status MeasureUploads(const Setup& setup, Table& table);
absl::Status MeasureSecurity(const Setup& setup, Table& table);
absl::Status MeasureEndurance(const Setup& setup, Table& table);
absl::Status MeasureHttp(const Setup& setup, Table& table);
absl::Status MeasureOverload(const Setup& setup, Table& table);
absl::Status MeasurePipeline(const Setup& setup, Table& table);
absl::Status MeasurePostgres(const Setup& setup, Table& table);

// Of a list that is not empty; sorts it.
double Quantile(std::vector<double>& values, double q);

}  // namespace sheaf::bench
