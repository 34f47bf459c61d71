// A worker with a computation of our own: the mean of a station's readings. The readings never leave the worker.
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "sdk/cpp/computation/computation_row.h"
#include "sdk/cpp/computation/contribution.h"
#include "worker/worker_main.h"

using namespace sheaf;

// The readings of each station.
using Stations = std::vector<std::vector<float>>;

absl::StatusOr<Stations> ReadStations(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError("cannot read " + path);
  Stations stations;
  for (std::string line; std::getline(file, line);) {
    std::istringstream numbers(line);
    stations.emplace_back(std::istream_iterator<float>(numbers), std::istream_iterator<float>());
  }
  return stations;
}

// Called for each task, by several threads at once. A task names its station; more readings weigh more.
absl::StatusOr<v1::Contribution> StationMean(const v1::Lease& task, const Stations& stations, RunControl&) {
  const std::vector<float>& readings = stations.at(std::stoul(task.data_selector()));
  const float sum = std::accumulate(readings.begin(), readings.end(), 0.0f);
  v1::Contribution contribution;
  AddDense("mean", {1}, {sum / static_cast<float>(readings.size())}, contribution);
  contribution.set_weight(static_cast<float>(readings.size()));
  return contribution;
}

int main(int argc, char** argv) {
  const DataSource<Stations> stations = {.name = "stations",
                                         .example = "stations.txt",
                                         .locations = "the path of a file with a line of readings for each station",
                                         .load = ReadStations};
  return WorkerMain(argc, argv, {ComputationOver("station_mean", stations, StationMean)});
}
