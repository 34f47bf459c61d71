// LoopHarness: a WorkerLoop between a transport and a runner that do what the test says, under a clock it turns by
// hand.
//
//   LoopHarness test;
//   test.Step();
//   test.AnswerLastSync(Granting({"t1"}));   // The server grants a lease;
//   test.FinishRun(0, "result");             // the computation ends;
//   CHECK(test.LastSync().results_size() == 1);
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "worker/worker_loop.h"

namespace sheaf {

// Keeps every call until the test answers it.
class ScriptedTransport final : public Transport {
 public:
  struct PendingCall {
    std::string method;
    std::unique_ptr<google::protobuf::Message> request;
    google::protobuf::Message* response;
    CallOptions options;
    Done done;
  };

  void CallMethod(std::string_view method, const google::protobuf::Message& request,
                  google::protobuf::Message* response, const CallOptions& options, Done done) override {
    std::unique_ptr<google::protobuf::Message> copy(request.New());
    copy->CopyFrom(request);
    calls.push_back({std::string(method), std::move(copy), response, options, std::move(done)});
  }

  // Every call ever made; `done` is empty once it was answered.
  std::vector<PendingCall> calls;
};

// Keeps every prepare and run until the test ends it.
class ScriptedRunner final : public Runner {
 public:
  struct PendingRun {
    std::shared_ptr<RunControl> control;
    std::shared_ptr<const TaskInputs> inputs;
    RunDone done;
  };

  std::vector<v1::OfferedComputation> Offers() const override {
    v1::OfferedComputation offer;
    offer.set_name("noop");
    offer.set_version(1);
    return {offer};
  }
  absl::Duration offer_pause() const override { return pause; }
  void Prepare(std::shared_ptr<const v1::Lease> lease, std::shared_ptr<RunControl>, PrepareDone done) override {
    prepared.push_back(lease->task());
    if (!prepare_error.ok()) return done(prepare_error);
    done(std::make_shared<Task>(needs));
  }
  void Run(std::shared_ptr<PreparedTask>, std::shared_ptr<const TaskInputs> inputs, std::shared_ptr<RunControl> control,
           RunDone done) override {
    runs.push_back({std::move(control), std::move(inputs), std::move(done)});
  }

  InputRequest needs;
  absl::Duration pause = absl::InfiniteDuration();
  absl::Status prepare_error;
  // Tasks in the order they were prepared.
  std::vector<std::string> prepared;
  std::vector<PendingRun> runs;

 private:
  class Task final : public PreparedTask {
   public:
    explicit Task(InputRequest needs) : needs_(std::move(needs)) {}
    const InputRequest& input_request() const override { return needs_; }
    absl::StatusOr<TaskOutcome> Run(const TaskInputs&, RunControl&) override { return v1::Contribution(); }

   private:
    InputRequest needs_;
  };
};

inline void Set(google::protobuf::Duration* proto, absl::Duration duration) {
  proto->set_seconds(absl::ToInt64Seconds(duration));
  proto->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration - absl::Seconds(proto->seconds()))));
}

// An answer that grants these tasks; the token of task "t1" is "token-t1".
inline v1::SyncResponse Granting(const std::vector<std::string>& tasks, absl::Duration lease = absl::Seconds(30)) {
  v1::SyncResponse response;
  response.set_inline_bytes_max(1000);
  for (const std::string& task : tasks) {
    v1::Lease* granted = response.add_leases();
    granted->set_task(task);
    granted->set_lease_token("token-" + task);
    granted->set_attempt(1);
    granted->mutable_computation()->set_name("noop");
    granted->set_broadcast_digest(std::string(64, 'a'));
    Set(granted->mutable_remaining(), lease);
  }
  return response;
}

class LoopHarness {
 public:
  explicit LoopHarness(WorkerOptions options = {.worker = "w"})
      : loop(std::move(options), {transport, runner, cache, random, [this] { ++wakes; }}) {
    Step();
  }

  // Steps until there is nothing to do at this instant; returns when there will be.
  absl::Time Step() {
    for (int i = 0; i < 100; ++i) {
      absl::Time next = loop.Step(clock.Now());
      if (next > clock.Now()) return next;
    }
    FAIL("the loop does not come to rest");
    return {};
  }
  absl::Time Advance(absl::Duration by) {
    clock.Advance(by);
    return Step();
  }

  // --- The server's side ---
  std::vector<size_t> Calls(std::string_view method) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < transport.calls.size(); ++i) {
      if (transport.calls[i].method == method) found.push_back(i);
    }
    return found;
  }
  int num_syncs() const { return static_cast<int>(Calls(kSync.name).size()); }
  const v1::SyncRequest& Sync(int index) const {
    return static_cast<const v1::SyncRequest&>(*transport.calls[Calls(kSync.name).at(index)].request);
  }
  const v1::SyncRequest& LastSync() const { return Sync(num_syncs() - 1); }
  bool SyncIsOpen(int index) const { return transport.calls[Calls(kSync.name).at(index)].done != nullptr; }

  void Answer(size_t call, absl::StatusOr<std::unique_ptr<google::protobuf::Message>> response) {
    auto& pending = transport.calls.at(call);
    REQUIRE(pending.done != nullptr);
    if (response.ok()) pending.response->CopyFrom(**response);
    Transport::Done done = std::exchange(pending.done, nullptr);
    done(response.status());
    Step();
  }
  // Answers one Sync. Results without a verdict in `response` are ACCEPTED, held leases HELD.
  void AnswerSync(int index, v1::SyncResponse response = {}) {
    const v1::SyncRequest& request = Sync(index);
    for (int i = response.verdicts_size(); i < request.results_size(); ++i) {
      v1::ResultVerdict* verdict = response.add_verdicts();
      verdict->set_lease_token(request.results(i).lease_token());
      verdict->set_verdict(v1::ResultVerdict::ACCEPTED);
    }
    for (int i = response.held_size(); i < request.held_size(); ++i) {
      v1::LeaseUpdate* update = response.add_held();
      update->set_lease_token(request.held(i).lease_token());
      update->set_verdict(v1::LeaseUpdate::HELD);
      Set(update->mutable_remaining(), absl::Seconds(30));
    }
    Answer(Calls(kSync.name).at(index), std::make_unique<v1::SyncResponse>(response));
  }
  void AnswerLastSync(v1::SyncResponse response = {}) { AnswerSync(num_syncs() - 1, std::move(response)); }
  void FailLastSync(absl::Status status) { Answer(Calls(kSync.name).back(), std::move(status)); }
  template <typename Request>
  const Request& LastCall() const {
    return dynamic_cast<const Request&>(*transport.calls.back().request);
  }
  template <typename Response>
  void AnswerLastCall(Response response) {
    Answer(transport.calls.size() - 1, std::make_unique<Response>(std::move(response)));
  }

  // --- The computation's side ---
  void FinishRun(int index, absl::StatusOr<std::string> contribution) { EndRun(index, std::move(contribution)); }
  // It needs more inputs, or declines.
  void EndRun(int index, absl::StatusOr<RunOutcome> outcome) {
    std::exchange(runner.runs.at(index).done, nullptr)(std::move(outcome));
    Step();
  }

  ManualClock clock;
  SeededRandom random{1};
  ScriptedTransport transport;
  ScriptedRunner runner;
  BlobCache cache{1 << 20};
  int wakes = 0;
  WorkerLoop loop;
};

}  // namespace sheaf
