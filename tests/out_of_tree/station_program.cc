// A program of our own: asks for the mean of the readings of three stations, and prints it.
#include <cstdio>

#include "sdk/cpp/client/server_connection.h"
#include "sdk/cpp/program/program.h"
#include "sdk/cpp/program/released_rows.h"

using namespace sheaf;

class StationMean final : public Program {
 public:
  // What a round shall do.
  absl::StatusOr<v1::RoundSpec> Plan(int /*number*/) override {
    v1::RoundSpec spec;
    spec.mutable_computation()->set_name("station_mean");
    v1::OutputSpec& mean = *spec.mutable_aggregate()->add_outputs();
    mean.set_name("mean");
    mean.set_operator_("weighted_mean");
    mean.set_dtype(v1::FLOAT32);
    mean.add_dense_shape(1);
    for (const char* station : {"0", "1", "2"}) spec.mutable_listed()->add_tasks()->set_data_selector(station);
    return spec;
  }

  // What to do with what it released.
  absl::Status Apply(int /*number*/, const SafetensorsView& aggregate, const v1::Round& /*round*/) override {
    const absl::StatusOr<std::vector<float>> mean = ReadReleasedVector(aggregate, "mean", 1);
    if (mean.ok()) std::printf("the mean of all readings is %g\n", mean->front());
    return mean.status();
  }
};

int main(int /*argc*/, char** argv) {
  ServerConnection server(argv[1]);  // HOST:PORT
  StationMean program;
  const absl::Status status = RunProgram(server, program, {.rounds = 1}).status();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
