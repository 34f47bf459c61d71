// A round that computes nothing: from the call that creates it to the last byte of its aggregate.
#include <fmt/format.h>

#include <utility>

#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/delays.h"
#include "bench/noop_workers.h"
#include "bench/rounds.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {

absl::StatusOr<std::vector<double>> RoundMillis(const Setup& setup, const std::string& address, int num_workers) {
  constexpr int kSamples = 30;
  GrpcTransport submitter(address, {.own_connection = true});
  const NoopWorkers workers(address, num_workers, [] {});
  std::vector<double> millis;
  for (int i = 0; i < kSamples; ++i) {
    RETURN_IF_ERROR(WaitForParkedPolls(submitter, num_workers));
    const absl::Time start = setup.clock.Now();
    RETURN_IF_ERROR(RunRound(submitter, fmt::format("round-{}", i), num_workers));
    millis.push_back(absl::ToDoubleMilliseconds(setup.clock.Now() - start));
  }
  return millis;
}

absl::Status MeasureRound(const Setup& setup, Table& table) {
  for (const auto& [num_workers, target] : {std::pair(50, "<= 20 ms"), std::pair(300, "<= 50 ms")}) {
    ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartSheafd(setup));
    ASSIGN_OR_RETURN(std::vector<double> millis, RoundMillis(setup, server->address(), num_workers));
    table.Add({.what = fmt::format("round of {} workers that computes nothing, created -> aggregate read", num_workers),
               .figure = fmt::format("p50 {:.1f} ms, p90 {:.1f} ms", Quantile(millis, 0.5), Quantile(millis, 0.9)),
               .ratio = "",
               .target = target});
  }
  return absl::OkStatus();
}

}  // namespace sheaf::bench
