// How long a parked worker waits for a task that was just created: from the submitter's call to the worker's answer.
#include <fmt/format.h>

#include <optional>

#include "base/mutex.h"
#include "base/status_macros.h"
#include "bench/bench.h"
#include "bench/delays.h"
#include "bench/noop_workers.h"
#include "bench/rounds.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf::bench {
namespace {

// Remembers when something happened first.
class Moment {
 public:
  explicit Moment(const Clock& clock) : clock_(clock) {}
  void Reset() {
    MutexLock lock(mutex_);
    time_.reset();
  }
  void Happen() {
    MutexLock lock(mutex_);
    if (!time_) time_ = clock_.Now();
    happened_.NotifyAll();
  }
  absl::Time Wait() {
    MutexLock lock(mutex_);
    while (!time_) happened_.Wait(mutex_);
    return *time_;
  }

 private:
  const Clock& clock_;
  Mutex mutex_;
  CondVar happened_;
  std::optional<absl::Time> time_ GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::vector<double>> DeliveryMillis(const Setup& setup, const std::string& address, int num_workers) {
  GrpcTransport submitter(address, {.own_connection = true});
  Moment delivered(setup.clock);
  const NoopWorkers workers(address, num_workers, [&] { delivered.Happen(); });
  std::vector<double> millis;
  for (int i = 0; i < kDeliverySamples; ++i) {
    RETURN_IF_ERROR(WaitForParkedPolls(submitter, num_workers));
    delivered.Reset();
    const absl::Time start = setup.clock.Now();
    RETURN_IF_ERROR(CreateRound(submitter, fmt::format("delivery-{}", i), 1).status());
    millis.push_back(absl::ToDoubleMilliseconds(delivered.Wait() - start));
  }
  return millis;
}

absl::Status MeasureDelivery(const Setup& setup, Table& table) {
  for (const int num_workers : {1, 64}) {
    ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> server, StartSheafd(setup));
    ASSIGN_OR_RETURN(std::vector<double> millis, DeliveryMillis(setup, server->address(), num_workers));
    table.Add({.what = fmt::format("create a task -> one of {} parked workers has it, {} samples", num_workers,
                                   kDeliverySamples),
               .figure = fmt::format("p50 {:.2f} ms, p99 {:.2f} ms", Quantile(millis, 0.5), Quantile(millis, 0.99)),
               .ratio = "",
               .target = "p99 <= 5 ms"});
  }
  return absl::OkStatus();
}

}  // namespace sheaf::bench
