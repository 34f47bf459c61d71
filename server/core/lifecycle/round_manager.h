// RoundManager: the life of a round, from creation to the aggregate it releases (design: "Exactly-once fold").
//
//   ASSIGN_OR_RETURN(RoundRecord round, rounds.Create(request, now));
//   ...
//   LiveRound* live = rounds.Find(id);                 // Null once it has ended.
//   RETURN_IF_ERROR(rounds.Accept(*live, ...));        // In a batch; folded when the batch is durable.
//   rounds.Tick(now, read_until);                      // Deadlines.
//
// The last contribution moves the round to SEALING in its own batch. When all are folded the aggregate is written, and
// one more batch makes the round SUCCEEDED. Everything between is repeated after a crash, with the same bits.
// Runs in the core's thread, inside a batch, unless said otherwise.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/core/batches/core_context.h"
#include "server/core/broadcasts/broadcast_readers.h"
#include "server/core/limits/memory_budget.h"
#include "server/core/limits/population_share.h"
#include "server/core/rounds/live_round.h"
#include "server/core/rounds/round_spec.h"
#include "sheaf/v1/round_service.pb.h"
#include "sheaf/v1/task.pb.h"

namespace sheaf {

// A contribution that is to be folded, and its share of the memory for such.
struct UnfoldedContribution {
  ValidContribution valid;
  MemoryClaim claim;
};
struct UnfoldedBytes {
  // As it came, and what folding it may add to the accumulator.
  int64_t size_bytes = 0;
  int64_t growth_bytes = 0;
};
// Emptied where it is folded: large ones take their time to be freed, too.
using Unfolded = std::optional<UnfoldedContribution>;

class RoundManager {
 public:
  explicit RoundManager(CoreContext& context) : context_(context) {}

  // Called when a round ended or stopped collecting: its leases are cancelled.
  void set_on_closed(std::function<void(const RoundId&)> on_closed) { on_closed_ = std::move(on_closed); }

  // Rebuilds the live rounds from the stores. Once, before anything else, outside a batch.
  absl::Status Recover(absl::Time now);
  // The batch in progress has failed: drop what was assumed from it. An error if the store does not tell what is true:
  // nothing may go on then.
  absl::Status OnRollback(absl::Time now);

  // INVALID_ARGUMENT, NOT_FOUND (the broadcast), ALREADY_EXISTS (the request_id), RESOURCE_EXHAUSTED; see
  // RoundService.CreateRound. With validate_only, a record that was not stored and has no id.
  absl::StatusOr<RoundRecord> Create(const v1::CreateRoundRequest& request, absl::Time now);
  // What Create with validate_only answers for a request that was prepared.
  absl::StatusOr<RoundRecord> Validate(const v1::CreateRoundRequest& request, const PreparedRound& prepared,
                                       absl::Time now) const;
  // The same in parts, for a round of which many tasks are stored before it is created (see RoundCreations).
  // The round that an earlier call with this request_id created, if there is one, and nothing is asked for otherwise.
  // Else errors as Create, if a new one would be refused.
  absl::StatusOr<std::optional<RoundRecord>> FindCreated(const v1::CreateRoundRequest& request,
                                                         const PreparedRound& prepared);
  RoundId NewId();
  struct StagedRound {
    RoundId id;
    absl::Time create_time;
    // Of prepared.tasks, the first.
    int64_t num_staged = 0;
    // Those of its tasks.
    RequirementIndex requirements;
  };
  // Empties what it needs of `staged` if it is created.
  absl::StatusOr<RoundRecord> Create(const v1::CreateRoundRequest& request, const PreparedRound& prepared,
                                     StagedRound& staged, absl::Time now);
  // NOT_FOUND; FAILED_PRECONDITION if it ended otherwise.
  absl::StatusOr<RoundRecord> Cancel(const RoundId& id, const std::string& reason, absl::Time now);

  // Null if it has ended or never was.
  LiveRound* Find(const RoundId& id);
  // Tasks that somebody could lease may have come to `round`.
  void WorkMayHaveCome(LiveRound& round);
  // A task of `round` waits out a backoff until `time`.
  void WorkWillCome(const LiveRound& round, absl::Time time) {
    // As the store counts time, in whole nanoseconds: it says that the task is due, and must not be right too early.
    delayed_.insert({absl::FromUnixNanos(absl::ToUnixNanos(time)), round.id});
  }
  // The time of some of these may have come.
  void WorkMayHaveCome(absl::Time now);
  // Grows with each: who found nothing finds nothing until then.
  int64_t work_version() const { return work_version_; }
  // A population's rounds by their work_version. Null if it has none.
  using ByWorkVersion = std::map<int64_t, LiveRound*>;
  const ByWorkVersion* RoundsOf(const std::string& population) const;
  // Those of them that may have work to hand out. Null if there is none.
  const ByWorkVersion* RoundsWithWork(const std::string& population) const;
  // Some task may be there to lease in a round of this population that is collecting. Takes no time for the others.
  bool HasWork(const std::string& population);

  // By id.
  const std::map<RoundId, std::unique_ptr<LiveRound>>& live() const { return live_; }

  struct Acceptance {
    TaskRecord task;
    // Only read during the call. Empty if they were uploaded.
    std::string_view bytes;
    int64_t size_bytes = 0;
    // SHA-256 of the bytes, hex.
    std::string digest;
    // Where the bytes lie already, if they were uploaded; else they are appended to the spool.
    std::optional<SpoolRef> uploaded;
    std::shared_ptr<Unfolded> unfolded;
    // Memory that folding it may take: reserved until then.
    int64_t growth_bytes = 0;
    v1::AttemptTimings timings;
    absl::Time now;
  };
  // RESOURCE_EXHAUSTED if there is no room on disk for so many more bytes of a contribution; then every round that has
  // some writes a checkpoint, and there soon is.
  absl::Status CheckSpool(const LiveRound& round, int64_t size_bytes);
  // Memory of contributions that are being received or wait to be folded. Thread-safe.
  MemoryBudget& unfolded() { return unfolded_; }
  // The exactly-once step for a contribution that was validated: spool, record, and fold when durable. Errors as
  // TaskStore::RecordContribution and PayloadStore::AppendToSpool.
  absl::Status Accept(LiveRound& round, Acceptance acceptance);

  // An attempt ended without a contribution: perhaps no task of the round can run any more.
  void CheckExhausted(LiveRound& round, absl::Time now);

  // Deadlines up to `read_until` (see Core::Tick), and broadcasts that nobody needs any more.
  void Tick(absl::Time now, absl::Time read_until);
  absl::Time NextTick() const;

  // Thread-safe.
  const BroadcastReaders& readers() const { return readers_; }

  // When this batch is durable: writes a checkpoint of every live round that has folded something since its last.
  void CheckpointAll();
  // A program was told that this blob is stored, and may name it as a broadcast within `keep`: it stays as long, or
  // until a round has named it and has ended.
  void TouchBroadcast(const std::string& digest, absl::Duration keep, absl::Time now);
  // Nobody needs this blob: no round names it, none is about to, and no program was told lately that it is there. True
  // also of the broadcast of rounds that have all ended. Only of what is durable: in no batch, or after its commit.
  bool IsUnused(const std::string& digest, absl::Time now) const;
  // Its bytes are freed beside the core.
  absl::Status DeleteBlob(const std::string& digest) const;

 private:
  // A disk that was full may have room by then.
  static constexpr absl::Duration kSealAgainAfter = absl::Seconds(1);

  // The clock may have been set back while the server was down: nothing that is planned lies further ahead than that.
  absl::Status LimitTimes(absl::Time now);
  absl::Status Load(const RoundRecord& record, RequirementIndex requirements, absl::Time now);
  absl::Status Load(const RoundRecord& record, absl::Time now);
  // Deletes what the round's checkpoint made needless.
  absl::Status DeleteCovered(const RoundRecord& record);
  absl::Status Refold(LiveRound& round);
  // Hands a durable contribution to the round's strand, or folds it at once if it is small and nothing is before it.
  void Submit(LiveRound& round, int64_t sequence, std::shared_ptr<Unfolded> unfolded, const UnfoldedBytes& of);
  bool MayFoldHere(const LiveRound& round, int64_t bytes);
  void OnFolded(LiveRound& round, int64_t sequence, int64_t memory_bytes, absl::Time now);
  void CheckpointIfDue(LiveRound& round);
  void Checkpoint(LiveRound& round);
  struct WrittenCheckpoint {
    RoundId round;
    std::string name;
    int64_t sequence = 0;
    int64_t num_clients = 0;
    // Of what the checkpoint contains.
    std::string progress;
    Metrics metrics;
    // Segments of the spool that it covers, and their bytes.
    int64_t through = 0;
    int64_t covered_bytes = 0;
  };
  // It is on disk: records it, then deletes what it covers.
  void Record(const WrittenCheckpoint& written);
  // Of a round whose newest checkpoint contains all that is recorded: what is there is of batches that failed.
  void DropSpool(LiveRound& round);
  void BeginSealing(LiveRound& round, absl::Time now);
  // Once the round is SEALING and everything is submitted: writes the aggregate, then ends the round.
  void Seal(const RoundId& id, absl::Time now);
  void OnReleased(const RoundId& id, absl::StatusOr<v1::Aggregate> aggregate, absl::Time now);
  void FinishSealing(LiveRound& round, v1::Aggregate aggregate, absl::Time now);
  void End(LiveRound& round, RoundState to, const std::string& error, absl::Time now);
  // After the end is durable.
  void Forget(const RoundId& id, absl::Time now);

  CoreContext& context_;
  std::function<void(const RoundId&)> on_closed_ = [](const RoundId&) {};
  std::map<RoundId, std::unique_ptr<LiveRound>> live_;
  using LiveMap = std::map<RoundId, std::unique_ptr<LiveRound>>;
  LiveMap::iterator Erase(LiveMap::iterator round);
  // Without an id.
  static RoundRecord RecordOf(const v1::CreateRoundRequest& request, const PreparedRound& prepared, absl::Time now);
  absl::Status CheckBroadcast(const v1::RoundSpec& spec) const;
  // Why no such round may be created.
  absl::Status CheckNew(const PreparedRound& prepared) const;
  // A round was created, by this call or, if nothing else was asked for, by an earlier one.
  absl::StatusOr<RoundRecord> OnCreated(const v1::CreateRoundRequest& request, const PreparedRound& prepared,
                                        TaskStore::CreateRoundResult created);
  absl::Status Begin(const RoundRecord& record, RequirementIndex requirements, absl::Time now);
  // What the round that an earlier call created has that this call asks for otherwise; empty: nothing. Looks at 1000
  // tasks at most, if the round was created by this version.
  absl::StatusOr<std::string> DifferenceFrom(const RoundRecord& earlier, const v1::RoundSpec& asked,
                                             const PreparedRound& prepared);
  // RESOURCE_EXHAUSTED if there is no room for one more round of so many tasks in this population.
  absl::Status CheckRoom(const std::string& population, int64_t num_tasks) const;
  void AddToSpool(LiveRound& round, int64_t size_bytes) {
    round.spool_disk_bytes += size_bytes;
    spool_disk_bytes_.Add(round.spec.population(), size_bytes);
  }
  void RetireBroadcasts(absl::Time now);
  // Who may read `digest` from now on: the populations of the live rounds that have it.
  void ForgetReaders(const std::string& digest);

  BroadcastReaders readers_;
  // When to delete broadcasts whose rounds have ended.
  std::map<std::string, absl::Time> retired_broadcasts_;
  // Of the rounds that are collecting, and perhaps of some that have stopped.
  std::set<std::pair<absl::Time, RoundId>> deadlines_;
  int64_t work_version_ = 0;
  // None is empty.
  std::map<std::string, ByWorkVersion> by_population_;
  // For RoundsWithWork; some that have none any more, until HasWork looks. None is empty.
  std::map<std::string, ByWorkVersion> with_work_;
  void NoteNoWork(const LiveRound& round);
  // Tasks that wait out a backoff: when it ends. What waited before the server started is not in it.
  std::set<std::pair<absl::Time, RoundId>> delayed_;
  // By then all of that has come; and when it was last asked what has.
  absl::Time recovered_until_ = absl::InfinitePast();
  absl::Time asked_time_ = absl::InfinitePast();
  // Of the rounds in live_.
  PopulationShare num_live_;
  PopulationShare num_live_tasks_;
  PopulationShare spool_disk_bytes_;
  bool is_checkpointing_all_ = false;
  MemoryBudget unfolded_;
  // Of contributions folded on the core's thread since the last Tick.
  int64_t folded_here_bytes_ = 0;
  // Blobs that a program was told to be there, and until when they stay.
  std::map<std::string, absl::Time> touched_blobs_;
  // Rounds that could not write their aggregate, and when to try again.
  std::map<RoundId, absl::Time> seal_again_;
};

}  // namespace sheaf
