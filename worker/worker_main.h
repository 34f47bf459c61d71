// WorkerMain: all that sheaf-worker is, but for what it can run. For the mains of workers with computations of their
// own.
//
//   int main(int argc, char** argv) {
//     return sheaf::WorkerMain(argc, argv, {sheaf::ComputationOver("station_mean", stations, StationMean)});
//   }
#pragma once

#include "worker/computation_table.h"

namespace sheaf {

// Parses the command line (config.h), works until it is told to stop, and returns the exit code. The first SIGTERM or
// SIGINT drains the worker, the second ends it at once.
int WorkerMain(int argc, char** argv, const ComputationTable& computations);

}  // namespace sheaf
