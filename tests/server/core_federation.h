// A whole server in one thread, under a clock turned by hand: all its parts (server/server_parts.h), and in-memory
// stores.
//
//   CoreFederation server;
//   const std::string round = server.CreateRound(SumRound(2));
//   v1::SyncResponse response = server.Sync(Ask("w1", 1));
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/random.h"
#include "server/server_parts.h"
#include "storage/memory/memory_payload_store.h"
#include "storage/memory/memory_task_store.h"
#include "tests/server/held_jobs.h"

namespace sheaf {

class CoreFederation final : public Executor {
 public:
  explicit CoreFederation(Limits limits = {});

  ManualClock& clock() { return clock_; }
  Core& core() { return parts_->core; }
  ServerParts& parts() { return *parts_; }
  const Dispatcher& dispatcher() { return parts_->dispatcher; }
  MemoryTaskStore& store() { return store_; }
  MemoryPayloadStore& payloads() { return payloads_; }

  // Runs what was posted, and ticks, until nothing is left to do at this instant.
  void Run();
  // From here on only the test runs what goes on beside the core; what comes of it takes another Run.
  HeldJobs& HoldJobs() {
    are_jobs_held_ = true;
    return jobs_;
  }
  void LetJobsRun() {
    are_jobs_held_ = false;
    Run();
  }
  void Advance(absl::Duration by);
  // The process dies: what was not durable is gone, and so is everybody who waited.
  void CrashAndRestart();

  // Calls a method and runs; CHECKs that the answer came at once.
  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(const std::string& method, const Request& request) {
    std::shared_ptr<std::optional<absl::StatusOr<Response>>> answer = CallLater<Response>(method, request);
    if (!answer->has_value()) return absl::DeadlineExceededError("the call is parked");
    return **answer;
  }
  // The same for a call that may be answered later.
  template <typename Response, typename Request>
  std::shared_ptr<std::optional<absl::StatusOr<Response>>> CallLater(const std::string& method,
                                                                     const Request& request) {
    auto answer = Dispatch<Response>(method, request);
    Run();
    return answer;
  }
  // The same, but runs one batch only: what that batch posts stays undone.
  template <typename Response, typename Request>
  std::shared_ptr<std::optional<absl::StatusOr<Response>>> CallInOneBatch(const std::string& method,
                                                                          const Request& request) {
    auto answer = Dispatch<Response>(method, request);
    RunBatch();
    return answer;
  }

  // Whether a transport would let in a request of so many bytes.
  absl::Status Enter(std::string_view method, const Identity& caller, int64_t bytes, absl::Time now) {
    return parts_->pipeline.Enter(*parts_->methods.Find(method), caller, bytes, now);
  }

  // What happens when whoever made the newest call is gone.
  std::function<void()> AbandonmentOfNewestCall() const { return abandon_newest_; }

  // REQUIREs success.
  std::string CreateRound(const v1::RoundSpec& spec);
  v1::Round GetRound(const std::string& id);
  v1::Task GetTask(const std::string& id);
  v1::SyncResponse Sync(const v1::SyncRequest& request);
  // The bytes of the round's aggregate.
  std::string ReadAggregate(const std::string& id);

  void Post(Event event) override { inbox_.push_back(std::move(event)); }
  void Defer(Deferred deferred) override { parts_->runner.Defer(std::move(deferred)); }

 private:
  std::unique_ptr<ServerParts> MakeParts();
  void RunBatch();
  template <typename Response, typename Request>
  std::shared_ptr<std::optional<absl::StatusOr<Response>>> Dispatch(const std::string& method, const Request& request) {
    auto answer = std::make_shared<std::optional<absl::StatusOr<Response>>>();
    auto kept_request = std::make_shared<Request>(request);
    auto response = std::make_shared<Response>();
    const MethodRow* row = parts_->methods.Find("sheaf.v1." + method);
    const CallId call = parts_->dispatcher.NewCall();
    abandon_newest_ = [this, row, call] { parts_->dispatcher.Abandon(*row, *Identity::Anybody(), call); };
    parts_->dispatcher.Dispatch(*row, {.id = call}, *kept_request, response.get(),
                                [answer, response, kept_request](const absl::Status& status) {
                                  if (status.ok()) {
                                    answer->emplace(*response);
                                  } else {
                                    answer->emplace(status);
                                  }
                                });
    return answer;
  }

  const Limits limits_;
  ManualClock clock_;
  SeededRandom random_{1};
  MemoryTaskStore store_;
  MemoryPayloadStore payloads_;
  std::vector<Event> inbox_;
  HeldJobs jobs_;
  bool are_jobs_held_ = false;
  std::unique_ptr<ServerParts> parts_;
  std::function<void()> abandon_newest_;
  int num_requests_ = 0;
};

// `num_tasks` listed tasks of the computation "noop" into a FLOAT32 `sum` named "x" of 4 elements.
v1::RoundSpec SumRound(int num_tasks);
// A Sync of `worker`, which offers "noop", for `want` leases, that does not wait.
v1::SyncRequest Ask(const std::string& worker, int want);
// The contribution of four ones times `value` for a SumRound.
v1::TaskResult Result(const v1::Lease& lease, float value);
v1::TaskResult Failure(const v1::Lease& lease, const std::string& message, bool is_permanent = false);
v1::HeldLease Held(const v1::Lease& lease, int64_t progress);
// Leases one task for `worker` and hands in `value` for it.
v1::ResultVerdict::Verdict Contribute(CoreFederation& server, const std::string& worker, float value);
// The first element of the released sum.
float FirstOf(const std::string& aggregate);

// CHECKs it.
bool HasJson(const google::protobuf::Message& message);
// A field of a later version, most likely.
void AddUnknown(google::protobuf::Message& message, size_t size);

}  // namespace sheaf
