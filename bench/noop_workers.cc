#include "bench/noop_workers.h"

#include <fmt/format.h>

#include "base/status_macros.h"
#include "bench/rounds.h"

namespace sheaf::bench {

NoopWorkers::NoopWorkers(const std::string& address, int count, std::function<void()> on_lease)
    : on_lease_(std::move(on_lease)), contribution_(AContribution()) {
  for (int i = 0; i < count; ++i) {
    workers_.push_back(std::make_unique<Worker>());
    Worker& worker = *workers_.back();
    worker.name = fmt::format("noop-{}", i);
    worker.transport = std::make_unique<GrpcTransport>(address, ChannelOptions{.own_connection = true});
  }
  for (const auto& worker : workers_) Poll(*worker);
}

void NoopWorkers::Poll(Worker& worker) {
  worker.request = APoll(worker.name, ++worker.num_polls, 1, absl::Seconds(50));
  for (const v1::Lease& lease : worker.response.leases()) AddResult(lease, contribution_, worker.request);
  worker.response.Clear();
  worker.transport->CallMethod(kSync.name, worker.request, &worker.response, {.timeout = absl::Seconds(60)},
                               [this, &worker](const absl::Status& status) {
                                 if (!status.ok()) return;
                                 if (!worker.response.leases().empty()) on_lease_();
                                 Poll(worker);
                               });
}

absl::Status WaitForParkedPolls(Transport& transport, int64_t count) {
  for (int tries = 0; tries < 1'000'000; ++tries) {
    ASSIGN_OR_RETURN(const v1::DescribeQueueResponse queue, BlockingCall(transport, kDescribeQueue, {}));
    if (queue.num_parked_polls() == count) return absl::OkStatus();
  }
  return absl::DeadlineExceededError(fmt::format("{} calls were never parked", count));
}

}  // namespace sheaf::bench
