// WorkerLoop: a worker, as a machine that takes one step at a time. It pulls tasks, fetches what they need, has them
// run, hands results in, and holds nothing it cannot lose.
//
//   WorkerLoop loop({.worker = "w-1", .concurrency = 2}, {transport, runner, cache, random, wake});
//   while (!loop.is_done()) {
//     absl::Time next = loop.Step(clock.Now());
//     WaitUntil(next);   // Or until `wake` was called.
//   }
//
//        +------------------------------ Sync: results, held leases, want ------------------------------+
//        v                                                                                              |
//   [pulling] --lease--> prepare -> [fetching] -> [running] -> contribution --small--> result --> [submitting]
//                                                                  +--large--> upload --^
//
// It has no clock, thread or sleep of its own. Calls go out through the Transport and runs through the Runner; when one
// of them ends, in whatever thread, the loop notes it, calls `wake`, and acts upon it in its next Step. Under a virtual
// clock: make `wake` schedule a Step at the current virtual time, and schedule another one at the time Step returned.
//
// A lease's time counts from when the request was SENT that granted or renewed it. One failed call is not a lost lease:
// only when its time has run out is the attempt stopped, and its result is still offered for a moment.
// Tasks of announced rounds are prepared beside those that run, and run when their rounds have opened and there is a
// place (see WorkerOptions::prepare_ahead). A server drains a worker, and takes it back: drained, it finishes what it
// holds, wants nothing, and keeps a call parked by which it hears that it is wanted again. Destroying the loop is a
// crash of the worker: nobody is told, and callbacks that come late fall into the void. Step and the accessors belong
// to one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/random.h"
#include "base/version.h"
#include "sdk/cpp/client/transport.h"
#include "sheaf/v1/work_service.pb.h"
#include "worker/attempt.h"
#include "worker/backoff.h"
#include "worker/blob_cache.h"
#include "worker/inbox.h"
#include "worker/runner.h"

namespace sheaf {

struct WorkerOptions {
  // Names this worker; two processes that run at once never share it. One that is restarted may keep its name: it is
  // sent again what it held, and stays drained if it was.
  std::string worker;
  std::string population;
  std::string software_version;
  std::map<std::string, std::string> labels;
  // Tasks at a time.
  int concurrency = 1;
  // Tasks of announced rounds that it holds beside those, to prepare them before their rounds open.
  int prepare_ahead = 0;
  // How long a poll may be parked when there is no work. At most 60 s.
  absl::Duration poll_wait = absl::Seconds(30);
  // How long an answer may take in addition.
  absl::Duration call_timeout = absl::Seconds(10);
  // When told to stop: how long what runs may go on before it is given back.
  absl::Duration grace = absl::Seconds(20);
  // When the server drains it: finish what is held and be done, instead of waiting to be taken back into service.
  bool exit_when_drained = false;
  // The highest that this worker speaks. At a server that serves lower ones only, the worker speaks its highest.
  int protocol_version_max = kProtocolVersionMax;
  // What a server may make this worker download for one task, and return from it.
  int64_t broadcast_bytes_max = int64_t{4} << 30;
  int64_t contribution_bytes_max = int64_t{1} << 30;
};

enum class WorkerState { kIdle, kPulling, kFetching, kRunning, kSubmitting, kDrained, kDraining, kDone };
std::string_view WorkerStateName(WorkerState state);

// What the loop did so far.
struct WorkerCounters {
  int64_t syncs = 0;
  int64_t failed_syncs = 0;
  int64_t leases = 0;
  // Attempts stopped because their lease lapsed, was cancelled or lost.
  int64_t stopped = 0;
  // Results by what the server said of them.
  std::map<v1::ResultVerdict::Verdict, int64_t> verdicts;
  // Results that could not be handed in before their lease was long gone.
  int64_t undelivered = 0;
};

class WorkerLoop {
 public:
  struct Parts {
    // All outlive the loop.
    Transport& transport;
    Runner& runner;
    BlobCache& cache;
    Random& random;
    // Called from any thread, also from within Step, when there is reason to call Step soon. Must not call Step itself.
    std::function<void()> wake;
  };

  WorkerLoop(WorkerOptions options, Parts parts);
  ~WorkerLoop();
  WorkerLoop(const WorkerLoop&) = delete;
  WorkerLoop& operator=(const WorkerLoop&) = delete;

  // Does what is due at `now` and returns when there is more to do (absl::InfiniteFuture() if only an event can change
  // that; `now` or earlier if at once). `now` never goes back.
  absl::Time Step(absl::Time now);

  // Stop: take nothing new, finish or give back what is held, hand in the last results. From the next Step on.
  // Thread-safe.
  void RequestDrain();

  // What the loop waits out may be over: there is a new token, or a connection again. Ends a pause between failed calls
  // within half a second, at an instant drawn at random. Thread-safe.
  void EndPause();
  // It lets the server alone after a call that failed.
  bool is_pausing(absl::Time now) const { return now < backoff_until_; }

  // Nothing left to do, for ever.
  bool is_done() const { return done_; }
  // Why, once done: OK after a drain; FAILED_PRECONDITION with the server's sentence if it refused every protocol
  // version that this worker speaks.
  const absl::Status& exit_status() const { return exit_status_; }

  WorkerState state() const;
  const WorkerCounters& counters() const { return counters_; }
  // Leases held, including those whose result is on its way.
  int num_held() const { return static_cast<int>(attempts_.size()); }
  // Prepares and runs under way, also those that were told to stop and have not noticed.
  int num_busy() const { return attempt_parts_.busy + attempt_parts_.busy_ahead; }

 private:
  using AttemptPtr = std::shared_ptr<Attempt>;
  // A Sync that was sent and not answered yet.
  struct OpenSync {
    absl::Time sent;
    int protocol_version = 0;
    // Empty if it asks for no leases.
    std::string poll_id;
    // The server may keep it for this long.
    absl::Duration wait = absl::ZeroDuration();
    bool draining = false;
    // Tokens of the results it carries.
    std::set<std::string> results;
    // It leaves results out, and asks for nothing.
    bool renews_only = false;

    bool may_park() const { return wait > absl::ZeroDuration(); }
  };

  // Leases.
  void TakeLease(v1::Lease lease, absl::Time sent, absl::Time now);
  AttemptPtr FindAttempt(const std::string& token) const;
  void Forget(const std::string& token);
  void Stop(Attempt& attempt, std::string_view why);
  void ExpireLeases(absl::Time now);
  void SweepEndedAttempts();
  // Of attempts that run, and of runs that were stopped and have not noticed.
  int NumRunning() const;
  // Of runs that were stopped and have not noticed.
  int NumUnnoticed() const;
  // Of attempts whose round has opened while they prepared, and that wait for a place to run.
  int NumOpened() const;
  int WantedLeases() const;
  int WantedAhead() const;
  // A call is worth making for it alone.
  bool WantsPoll() const { return WantedLeases() > 0 || (has_announced_ && WantedAhead() > 0); }
  // Those that have prepared, and whose rounds have opened, as far as there is room, the oldest lease first.
  void RunOpened(absl::Time now);
  // Tasks that it only prepares, when it shall take no more: others can.
  void ReleaseAhead(std::string_view reason);

  // Sync.
  bool SyncIsDue(absl::Time now) const;
  void SendSync(absl::Time now);
  void AddResults(absl::Time now, v1::SyncRequest& request, OpenSync& sync) const;
  void AddHeld(absl::Time now, v1::SyncRequest& request, const OpenSync& sync);
  void AddPoll(absl::Time now, v1::SyncRequest& request, OpenSync& sync);
  void OnSyncDone(int64_t id, absl::StatusOr<v1::SyncResponse> response, absl::Time now);
  void OnSyncFailed(const OpenSync& sync, const absl::Status& status, absl::Time now);
  void OnVersionRefused(const OpenSync& sync, const absl::Status& status);
  void OnAnswer(const OpenSync& sync, v1::SyncResponse& response, bool is_newest, absl::Time now);
  void OnVerdict(const v1::ResultVerdict& verdict);
  void OnLeaseUpdate(const v1::LeaseUpdate& update, absl::Time sent);
  bool IsInFlight(const Attempt& attempt) const;
  bool HasUnsentResult() const;
  absl::Time NextRenewal() const;

  // Out of service, and back.
  void OnServiceChanged(bool is_drained, absl::Time now);

  // Stopping.
  void StartDrain(std::string_view why, absl::Time now);
  void StepDrain(absl::Time now);
  void Finish(absl::Status status);

  absl::Time NextStep(absl::Time now) const;

  const WorkerOptions options_;
  const Parts parts_;
  const std::shared_ptr<Inbox> inbox_;
  Attempt::Parts attempt_parts_;
  WorkerCounters counters_;

  // In the order they came.
  std::vector<AttemptPtr> attempts_;
  // Tokens that were dealt with: a lease re-sent by an answer that was long under way is not run again.
  std::set<std::string> finished_;
  std::deque<std::string> finished_order_;

  std::map<int64_t, OpenSync> open_syncs_;
  int64_t newest_sync_ = 0;
  // That the next call says.
  int protocol_version_;
  // Kept until an answer came.
  std::string poll_id_;
  absl::Time next_poll_ = absl::InfinitePast();
  Backoff backoff_;
  absl::Time backoff_until_ = absl::InfinitePast();
  // The newest call was refused like one before, and its results may be why.
  bool renews_first_ = false;
  int suggested_concurrency_ = 0;
  // As the server last said.
  bool has_announced_ = false;

  // As the server last said: it is given nothing until it is taken back into service.
  bool is_drained_ = false;
  // The server keeps calls of a drained worker until it is taken back.
  bool parks_drained_ = true;
  // Stopping.
  bool draining_ = false;
  // The server has heard of it.
  bool drain_announced_ = false;
  absl::Time grace_end_ = absl::InfiniteFuture();
  bool done_ = false;
  absl::Status exit_status_;
};

}  // namespace sheaf
