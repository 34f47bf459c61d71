// A round that computes nothing: from the call that creates it to the last byte of its aggregate.
#include <fmt/format.h>

#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/noop_workers.h"
#include "bench/rounds.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {
namespace {

constexpr int kSamples = 30;

absl::Status MeasureWith(const Setup& setup, int num_workers, const std::string& target, Table& table) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartSheafd(setup));
  GrpcTransport submitter(server->address(), {.own_connection = true});
  const NoopWorkers workers(server->address(), num_workers, [] {});
  std::vector<double> millis;
  for (int i = 0; i < kSamples; ++i) {
    RETURN_IF_ERROR(WaitForParkedPolls(submitter, num_workers));
    const absl::Time start = setup.clock.Now();
    RETURN_IF_ERROR(RunRound(submitter, fmt::format("round-{}", i), num_workers));
    millis.push_back(absl::ToDoubleMilliseconds(setup.clock.Now() - start));
  }
  table.Add({.what = fmt::format("round of {} workers that computes nothing, created -> aggregate read", num_workers),
             .figure = fmt::format("p50 {:.1f} ms, p90 {:.1f} ms", Quantile(millis, 0.5), Quantile(millis, 0.9)),
             .ratio = "",
             .target = target});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureRound(const Setup& setup, Table& table) {
  RETURN_IF_ERROR(MeasureWith(setup, 50, "<= 20 ms", table));
  return MeasureWith(setup, 300, "<= 50 ms", table);
}

}  // namespace sheaf::bench
