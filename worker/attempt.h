// Attempt: one lease, from being handed out until the server has said what became of its result.
//
//                                   v-----------+
//   preparing -> (prepared ->) fetching -> running -> (uploading ->) ready         ended: nothing to report any more
//
// The lease of an announced round is taken ahead: when it is prepared it waits until the round has opened, and until
// the loop has room for it to run. Prepare says what of the broadcast the task needs, the rows or the file are fetched,
// the computation runs, perhaps until it needs more, and a contribution too large for Sync is uploaded first (asking
// before sending). An error on the way becomes a failure to report. Belongs to the loop's thread; advances by inbox
// events and by Step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/random.h"
#include "sdk/cpp/client/blob_client.h"
#include "sdk/cpp/client/transport.h"
#include "sheaf/v1/work_service.pb.h"
#include "worker/blob_cache.h"
#include "worker/inbox.h"
#include "worker/runner.h"
#include "worker/sequence_driver.h"

namespace sheaf {

class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  enum class Phase { kPreparing, kPrepared, kFetching, kRunning, kUploading, kReady, kEnded };

  // Owned by the loop; one for all its attempts.
  struct Parts {
    Transport& transport;
    Runner& runner;
    BlobCache& cache;
    Random& random;
    std::shared_ptr<Inbox> inbox;
    absl::Duration call_timeout = absl::Seconds(10);
    // This worker's own limits, whatever the server says.
    int64_t broadcast_bytes_max = 0;
    int64_t contribution_bytes_max = 0;
    // What this worker's link carries in a call's time.
    ChunkSize chunk_size;
    // As the server last said.
    int64_t inline_bytes_max = 64 << 10;
    // Prepares and runs that were started and have not come back, also of attempts that are gone; and prepares of those
    // that are ahead.
    int busy = 0;
    int busy_ahead = 0;
  };

  // `parts` outlives the attempt and every inbox event.
  Attempt(v1::Lease lease, Parts& parts);

  void Start(absl::Time now);
  // Continues what waited for a pause to end.
  void Step(absl::Time now);
  absl::Time next_time() const;

  // The round has opened with this broadcast (empty: none).
  void Open(const std::string& broadcast_digest);
  // Its turn to run. When phase() is kPrepared and it has opened.
  void GoOn(absl::Time now);

  // Stops what runs; nothing will be reported.
  void Cancel();
  // Stops what runs and gives the task back.
  void Release(std::string_view reason);

  // The lease runs for `remaining` from `sent` on, the time of the request that granted or renewed it.
  void Extend(absl::Time sent, absl::Duration remaining);
  // A renewal was asked for at `now`: do not ask again at once. Who waits for the round to open, or for another run to
  // end, makes progress; who waits for runs that were stopped and do not notice (no place) makes none.
  void NoteRenewalSent(absl::Time now, bool has_place);

  // As the answer said that brought the lease.
  void NoteGrant(const google::protobuf::Timestamp& grant_time);
  // The result, for a call that goes out at `now`. When is_ready().
  v1::TaskResult HandIn(absl::Time now) const;

  Phase phase() const { return phase_; }
  // It prepares, or has prepared, a task of a round that was announced.
  bool is_ahead() const { return lease_->announced() && (phase_ == Phase::kPreparing || phase_ == Phase::kPrepared); }
  // Its round's broadcast is known.
  bool is_open() const { return is_open_; }
  // It has a result to hand in.
  bool is_ready() const { return phase_ == Phase::kReady; }
  // A prepare or run has been started and has not come back.
  bool is_busy() const { return busy_; }
  const v1::Lease& lease() const { return *lease_; }
  const std::string& token() const { return lease_->lease_token(); }
  absl::Time deadline() const { return deadline_; }
  absl::Time renew_time() const { return renew_time_; }
  // Grows while anything moves.
  int64_t progress() const;
  // When is_ready(). Without what its handing in adds.
  const v1::TaskResult& result() const { return result_; }

 private:
  void OnPrepared(absl::StatusOr<std::shared_ptr<PreparedTask>> task, absl::Time now);
  void Fetch(InputRequest request, absl::Time now);
  void FetchRows(absl::Time now);
  void FetchBroadcast(absl::Time now);
  void OnBroadcast(absl::Time now);
  void OnRows(absl::Time now);
  void Run(absl::Time now);
  void OnRun(absl::StatusOr<RunOutcome> outcome, absl::Time now);
  void Finish(std::string contribution, absl::Time now);
  void Upload(absl::Time now);
  void OnUploaded(absl::Time now);
  absl::Status TooLarge(std::string_view what, int64_t bytes) const;
  void Fail(const absl::Status& status);
  void Ready();
  // Starts a phase and notes when the last one was.
  void Enter(Phase phase, absl::Time now);
  void Drive(std::unique_ptr<CallSequence> sequence, absl::Time now, void (Attempt::*on_done)(absl::Time));

  const std::shared_ptr<const v1::Lease> lease_;
  Parts& parts_;
  bool is_open_;
  std::string broadcast_digest_;
  const std::shared_ptr<RunControl> control_ = std::make_shared<RunControl>();

  Phase phase_ = Phase::kPreparing;
  // It had the lease.
  absl::Time start_;
  absl::Time phase_start_;
  bool busy_ = false;
  absl::Time deadline_ = absl::InfinitePast();
  // When the call was sent whose answer says so.
  absl::Time extended_ = absl::InfinitePast();
  absl::Time renew_time_ = absl::InfinitePast();
  int64_t steps_ = 0;
  int64_t progress_base_ = 0;

  std::shared_ptr<PreparedTask> task_;
  InputRequest request_;
  std::shared_ptr<TaskInputs> inputs_;
  std::shared_ptr<SequenceDriver> driver_;
  // Serialised; outlives the upload that reads it.
  std::string contribution_;
  v1::TaskResult result_;
};

}  // namespace sheaf
