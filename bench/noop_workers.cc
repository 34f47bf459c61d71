#include "bench/noop_workers.h"

#include <fmt/format.h>

#include "base/status_macros.h"
#include "bench/rounds.h"

namespace sheaf::bench {
namespace {

constexpr int kRetriesMax = 100;

}  // namespace

NoopWorkers::NoopWorkers(const std::string& address, int count, std::function<void()> on_lease, bool prepares)
    : on_lease_(std::move(on_lease)), prepares_(prepares), contribution_(AContribution()) {
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
  TakeAnswer(worker);
  worker.num_retries = 0;
  Send(worker);
}

void NoopWorkers::Send(Worker& worker) {
  worker.transport->CallMethod(kSync.name, worker.request, &worker.response, {.timeout = absl::Seconds(60)},
                               [this, &worker](const absl::Status& status) {
                                 // A server under load puts calls off. A worker that went away for that would keep what
                                 // it holds until its lease ends.
                                 const bool is_put_off =
                                     absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
                                 if (is_put_off && ++worker.num_retries <= kRetriesMax) return Send(worker);
                                 if (!status.ok()) return;
                                 if (!worker.response.leases().empty()) on_lease_();
                                 Poll(worker);
                               });
}

void NoopWorkers::TakeAnswer(Worker& worker) {
  for (const v1::LeaseUpdate& update : worker.response.held()) {
    if (!worker.held || update.lease_token() != worker.held->lease_token()) continue;
    if (update.verdict() == v1::LeaseUpdate::HELD) continue;
    if (update.verdict() == v1::LeaseUpdate::OPENED) {
      v1::Lease opened;
      opened.set_task(update.task());
      opened.set_lease_token(update.lease_token());
      AddResult(opened, contribution_, worker.request);
    }
    worker.held.reset();
  }
  for (const v1::Lease& lease : worker.response.leases()) {
    if (lease.announced()) {
      v1::HeldLease& held = worker.held.emplace();
      held.set_task(lease.task());
      held.set_lease_token(lease.lease_token());
      held.set_announced(true);
    } else {
      AddResult(lease, contribution_, worker.request);
    }
  }
  worker.response.Clear();
  if (!prepares_) return;
  worker.request.set_protocol_version(2);
  if (worker.held) {
    // Waiting is progress.
    worker.held->set_progress(worker.num_polls);
    *worker.request.add_held() = *worker.held;
  } else {
    worker.request.set_want_announced(1);
  }
}

absl::Status WaitForParkedPolls(Transport& transport, int64_t count) {
  for (int tries = 0; tries < 1'000'000; ++tries) {
    ASSIGN_OR_RETURN(const v1::DescribeQueueResponse queue, BlockingCall(transport, kDescribeQueue, {}));
    if (queue.num_parked_polls() == count) return absl::OkStatus();
  }
  return absl::DeadlineExceededError(fmt::format("{} calls were never parked", count));
}

}  // namespace sheaf::bench
