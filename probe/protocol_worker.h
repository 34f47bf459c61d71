// ProtocolWorker: a worker that speaks WorkService.Sync and computes nothing: it waits for as long as a task would take
// and hands in the task's one-hot contribution. It treats the network as one that fails, as the wire contract says: it
// repeats what got no answer, under the same poll_id or by what it holds.
//
//   ProtocolWorker worker({.name = "selftest-1", .lease = lease, .num_tasks = 64}, transport, queue, random, observer);
//   absl::Time next = worker.Step(clock.Now());          // Again then, and after every event of `queue`.
//   worker.Vanish(clock.Now(), "selftest-2");            // As a process that was killed, and one that takes its place.
//
// Belongs to the thread that runs the queue. Answers to calls of a worker that is gone are dropped.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/random.h"
#include "probe/event_queue.h"
#include "sdk/cpp/client/transport.h"

namespace sheaf {

// Computations that no real worker offers, and no real round asks for.
inline constexpr char kSelftestComputation[] = "sheaf-selftest";

class ProtocolWorker {
 public:
  // Told in the worker's thread.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void OnLease(const v1::Lease& lease, absl::Time now) = 0;
    // It got an answer, this long after the first call that got none.
    virtual void OnRecovered(absl::Duration after) = 0;
    // The server will have none of it.
    virtual void OnRefused(const absl::Status& status) = 0;
    // It is gone, and held this task.
    virtual void OnAbandoned(const std::string& task, const std::string& lease_token, absl::Time now) = 0;
  };
  struct Options {
    std::string name;
    std::string population;
    // Of the rounds it works for.
    absl::Duration lease;
    int64_t num_tasks = 0;
    // Tasks at a time.
    int concurrency = 2;
  };

  // All must outlive the worker, and every call of it.
  ProtocolWorker(Options options, Transport& transport, EventQueue& queue, Random& random, Observer& observer)
      : options_(std::move(options)), transport_(transport), queue_(queue), random_(random), observer_(observer) {}
  // Calls that are open are forgotten.
  ~ProtocolWorker() { *generation_ = -1; }

  // Calls if there is reason to; returns when there will be.
  absl::Time Step(absl::Time now);
  // Forgets everything, and goes on as another.
  void Vanish(absl::Time now, std::string new_name);

 private:
  struct Held {
    v1::Lease lease;
    absl::Time done_time;
    absl::Time expire_time;
    // The call that its result is on; 0: none.
    int64_t result_call = 0;
  };

  // One that is on no call.
  bool HasResult(absl::Time now) const;
  int NumUnfinished(absl::Time now) const;
  void DropLapsed(absl::Time now);
  void Send(absl::Time now);
  void OnAnswer(absl::StatusOr<v1::SyncResponse> answer, int64_t call, absl::Time sent, absl::Time now);
  void OnSilence(const absl::Status& status, absl::Time now);
  void Take(const v1::Lease& lease, absl::Time sent, absl::Time now);
  absl::Duration DrawWork();

  Options options_;
  Transport& transport_;
  EventQueue& queue_;
  Random& random_;
  Observer& observer_;

  // By lease token.
  std::map<std::string, Held> held_;
  // Leases whose result has a verdict.
  std::set<std::string> finished_;
  int64_t progress_ = 0;
  int64_t last_call_ = 0;
  // The call that is waited for; 0: none.
  int64_t open_call_ = 0;
  bool is_open_call_parked_ = false;
  absl::Time last_sent_ = absl::InfinitePast();
  absl::Time next_call_ = absl::InfinitePast();
  std::string poll_id_;
  int num_silences_ = 0;
  absl::Time first_silence_;
  // Shared with the calls under way: grows with each Vanish, -1 at the end.
  std::shared_ptr<int64_t> generation_ = std::make_shared<int64_t>(0);
};

}  // namespace sheaf
