#include "bench/crowd.h"

#include <fmt/format.h>

#include <utility>

#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "bench/rounds.h"

namespace sheaf::bench {
namespace {

constexpr char kComputation[] = "crowd";

}  // namespace

void Pause(absl::Duration duration) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  never.WaitFor(mutex, duration);
}

absl::StatusOr<std::string> Crowd::CreateRound(Transport& transport, const std::string& request_id, int num_tasks) {
  v1::CreateRoundRequest request = ARound(request_id, num_tasks);
  v1::RoundSpec& spec = *request.mutable_spec();
  spec.mutable_computation()->set_name(kComputation);
  spec.clear_aggregate();
  for (int i = 0; i < kOutputs; ++i) {
    v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
    output.set_name(fmt::format("x{}", i));
    output.set_operator_("sum");
    output.set_dtype(v1::INT64);
    output.add_dense_shape(1);
  }
  spec.mutable_lease_duration()->set_seconds(120);
  ASSIGN_OR_RETURN(const v1::CreateRoundResponse created,
                   BlockingCall(transport, kCreateRound, request, {.timeout = absl::Minutes(1)}));
  return created.round().id();
}

Crowd::Crowd(const Clock& clock, std::vector<std::unique_ptr<Transport>> connections, int num_workers)
    : clock_(clock), connections_(std::move(connections)) {
  v1::Contribution contribution;
  for (int i = 0; i < kOutputs; ++i) {
    v1::OutputValue& output = *contribution.add_outputs();
    output.set_name(fmt::format("x{}", i));
    output.mutable_dense()->set_dtype(v1::INT64);
    output.mutable_dense()->add_shape(1);
    const int64_t one = 1;
    output.mutable_dense()->set_data(std::string(reinterpret_cast<const char*>(&one), sizeof one));
  }
  contribution_ = contribution.SerializeAsString();
  for (int i = 0; i < num_workers; ++i) {
    workers_.emplace_back();
    workers_.back().name = fmt::format("crowd-{}", i);
    idle_.push_back(&workers_.back());
  }
}

Crowd::~Crowd() { connections_.clear(); }

bool Crowd::CallOnce() {
  Worker* worker = nullptr;
  {
    MutexLock lock(mutex_);
    if (idle_.empty()) return false;
    worker = idle_.front();
    idle_.pop_front();
    ++counts_.offered;
  }
  v1::SyncRequest request = APoll(worker->name, ++worker->num_polls, kTasksPerCall, absl::ZeroDuration());
  request.mutable_computations(0)->set_name(kComputation);
  for (const v1::Lease& lease : worker->leases) AddResult(lease, contribution_, request);
  worker->response.Clear();
  const absl::Time start = clock_.Now();
  Transport& connection = *connections_[num_calls_++ % connections_.size()];
  connection.CallMethod(kSync.name, request, &worker->response, {.timeout = absl::Seconds(60)},
                        [this, worker, start](const absl::Status& status) { Answered(*worker, start, status); });
  return true;
}

void Crowd::Answered(Worker& worker, absl::Time start, const absl::Status& status) {
  const double millis = absl::ToDoubleMilliseconds(clock_.Now() - start);
  if (status.ok()) worker.leases = {worker.response.leases().begin(), worker.response.leases().end()};
  MutexLock lock(mutex_);
  if (status.ok()) {
    ++counts_.answered;
    counts_.millis.push_back(millis);
    for (const v1::ResultVerdict& verdict : worker.response.verdicts()) {
      ++verdicts_[v1::ResultVerdict::Verdict_Name(verdict.verdict())];
      if (verdict.verdict() == v1::ResultVerdict::ACCEPTED) ++counts_.accepted_results;
    }
  } else if (absl::IsResourceExhausted(status)) {
    ++counts_.refused;
    if (!RetryAfter(status)) ++counts_.without_hint;
  } else {
    ++counts_.failed;
    first_failure_.Update(status);
  }
  // Those with a task to hand in come first again.
  worker.leases.empty() ? idle_.push_back(&worker) : idle_.push_front(&worker);
  if (idle_.size() == workers_.size()) changed_.NotifyAll();
}

void Crowd::CallClosed(int num_open, absl::Time end) {
  while (clock_.Now() < end) {
    while (num_open_calls() < num_open && CallOnce()) {
    }
    Pause(absl::Microseconds(100));
  }
  WaitUntilIdle();
}

void Crowd::CallOpen(double per_second, absl::Duration duration) {
  const absl::Time start = clock_.Now();
  int64_t num_sent = 0;
  for (absl::Time now = start; now < start + duration; now = clock_.Now()) {
    const auto due = static_cast<int64_t>(per_second * absl::ToDoubleSeconds(now - start));
    // What cannot be sent now is not made up for.
    for (; num_sent < due; ++num_sent) {
      if (!CallOnce()) break;
    }
    num_sent = due;
    Pause(absl::Microseconds(200));
  }
}

int64_t Crowd::num_open_calls() {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(workers_.size() - idle_.size());
}

void Crowd::WaitUntilIdle() {
  MutexLock lock(mutex_);
  while (idle_.size() < workers_.size()) changed_.WaitFor(mutex_, absl::Seconds(1));
}

Crowd::Counts Crowd::TakeCounts() {
  MutexLock lock(mutex_);
  return std::exchange(counts_, {});
}

std::map<std::string, int64_t> Crowd::verdicts() {
  MutexLock lock(mutex_);
  return verdicts_;
}

absl::Status Crowd::first_failure() {
  MutexLock lock(mutex_);
  return first_failure_;
}

}  // namespace sheaf::bench
