#include "bench/listening_workers.h"

#include <fmt/format.h>

#include <utility>

#include "base/status_macros.h"
#include "bench/rounds.h"
#include "proto/methods.h"

namespace sheaf::bench {

absl::Status ListeningWorkers::Open(int count) {
  RETURN_IF_ERROR(clients_.Open(count));
  for (int i = 0; i < count; ++i) {
    workers_.push_back(std::make_unique<Worker>());
    workers_.back()->number = i;
  }
  for (const auto& worker : workers_) Poll(*worker);
  return absl::OkStatus();
}

void ListeningWorkers::Poll(Worker& worker) {
  v1::SyncRequest request = APoll(fmt::format("listening-{}", worker.number), ++worker.num_polls, 0, absl::Seconds(50));
  request.set_protocol_version(2);
  if (worker.held.lease_token().empty()) {
    request.set_want_announced(1);
  } else {
    worker.held.set_progress(worker.num_polls);
    *request.add_held() = worker.held;
    // It hears of rounds only in a call that wants something.
    request.set_want(1);
  }
  clients_.Post(worker.number, kSync.name, request.SerializeAsString(),
                [this, &worker](const absl::StatusOr<std::string>& body) {
                  v1::SyncResponse answer;
                  if (body.ok() && answer.ParseFromString(*body)) return OnAnswer(worker, answer);
                  MutexLock lock(mutex_);
                  failure_.Update(body.ok() ? absl::InternalError("an answer that is none") : body.status());
                  changed_.NotifyAll();
                });
}

void ListeningWorkers::OnAnswer(Worker& worker, const v1::SyncResponse& answer) {
  const absl::Time now = clock_.Now();
  bool has_heard = false;
  bool holds = !worker.held.lease_token().empty();
  const bool held_before = holds;
  for (const v1::LeaseUpdate& update : answer.held()) {
    if (update.lease_token() != worker.held.lease_token() || update.verdict() == v1::LeaseUpdate::HELD) continue;
    if (update.verdict() == v1::LeaseUpdate::OPENED) {
      has_heard = worker.held.announced();
      worker.held.set_announced(false);
    } else {
      worker.held.Clear();
      holds = false;
    }
  }
  for (const v1::Lease& lease : answer.leases()) {
    if (!lease.announced()) continue;
    worker.held.set_task(lease.task());
    worker.held.set_lease_token(lease.lease_token());
    worker.held.set_announced(true);
    holds = true;
  }
  {
    MutexLock lock(mutex_);
    num_holding_ += static_cast<int>(holds) - static_cast<int>(held_before);
    if (has_heard) heard_.push_back(now);
    changed_.NotifyAll();
  }
  Poll(worker);
}

absl::Status ListeningWorkers::WaitUntilAllHold() {
  MutexLock lock(mutex_);
  while (failure_.ok() && num_holding_ < static_cast<int>(workers_.size())) changed_.Wait(mutex_);
  return failure_;
}

std::vector<absl::Time> ListeningWorkers::WaitUntilAllHeard() {
  MutexLock lock(mutex_);
  while (failure_.ok() && heard_.size() < workers_.size()) changed_.Wait(mutex_);
  return std::exchange(heard_, {});
}

}  // namespace sheaf::bench
