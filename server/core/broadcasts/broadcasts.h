// Broadcasts: which blobs are needed, and who may read them: broadcasts that live rounds have, or that a program was
// told to be there and is about to name; and for how long those of rounds that ended stay for the next round.
//
//   RETURN_IF_ERROR(broadcasts.Note(digest, bases));         // This blob is a patch of those, which stay as long.
//   broadcasts.Touch(digest, absl::Hours(1), now);           // A program was told that it is stored.
//   broadcasts.OnRoundAdded(digest, "default");              // From now on this population may read it.
//   broadcasts.OnRoundEnded(round, now);                     // It goes in a while, unless another round names it.
//   if (broadcasts.IsUnused(digest, now)) RETURN_IF_ERROR(broadcasts.Delete(digest, now));
//   const bool may_read = broadcasts.readers().MayRead(digest, caller);  // On any thread.
//
// What is said of a batch's own changes may come to nothing, so that nothing is deleted before they are durable. Runs
// in the core's thread, inside a batch, unless said otherwise.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/broadcasts/broadcast_readers.h"
#include "server/core/broadcasts/open_blobs.h"
#include "server/core/rounds/live_rounds.h"

namespace sheaf {

class Broadcasts {
 public:
  // All outlive this.
  Broadcasts(CoreContext& context, LiveRounds& rounds, OpenBlobs& open_blobs)
      : context_(context), rounds_(rounds), open_blobs_(open_blobs) {}

  // Broadcasts of rounds that had ended before the server started go as others do. What is a patch of what is read
  // beside the core, and until then nothing is deleted. Outside a batch.
  absl::Status Recover(absl::Time now);

  // It is a patch of the first of `bases` (if any), that one of the second, and so on: all of them stay as long as it
  // does. INVALID_ARGUMENT if one of them has gone.
  absl::Status Note(const std::string& digest, const std::vector<std::string>& bases);
  // Calls `then` when it is known what this one is a patch of: now or in a later batch. OK also if it is not stored;
  // INVALID_ARGUMENT if it is a patch of what is not; errors of the store.
  void Learn(const std::string& digest, std::function<void(const absl::Status& learnt, absl::Time now)> then,
             absl::Time now);

  // It stays for `keep`, or until a round has named it and has ended.
  void Touch(const std::string& digest, absl::Duration keep, absl::Time now);
  // NOT_FOUND if the round names one that is not there; errors of the store.
  absl::Status CheckStored(const std::string& digest);

  // A round is live that has it (nothing, if `digest` is empty).
  void OnRoundAdded(const std::string& digest, const std::string& population);
  // A round was created in this batch that has it: from its commit on it lives as its rounds do, and not for as long as
  // one was waited for.
  void OnRoundCreated(const std::string& digest, absl::Time now);
  // A round has ended, and is not among the live ones any more. O(those that linger), and where these are too many
  // bytes O(live rounds x log(those that linger)).
  void OnRoundEnded(const LiveRound& round, absl::Time now);
  // The batch that created a round with it has failed.
  void OnRoundUndone(const std::string& digest);

  // Deletes those whose time has come.
  void Tick(absl::Time now);
  absl::Time NextTick() const;

  // Thread-safe.
  const BroadcastReaders& readers() const { return readers_; }

  // Nobody needs this blob: no round names or releases it, none is about to, no program was told lately that it is
  // there, and none that is stored is a patch of it. True also of the broadcast of rounds that have all ended; of
  // nothing until it is known, after a start, what is a patch of what. Only of what is durable: in no batch, or after
  // its commit.
  bool IsUnused(const std::string& digest, absl::Time now) const;
  // Its bytes are freed beside the core. Errors as PayloadStore::DeleteBlob.
  absl::Status Delete(const std::string& digest, absl::Time now);

 private:
  // A program was told that it is there.
  struct Told {
    // It stays until then.
    absl::Time until;
    // How often it was told since a round named it last.
    int64_t num_awaited = 0;
  };
  // A round has ended that had it.
  struct Retired {
    absl::Time delete_time;
    int64_t size_bytes = 0;
    // Of how many rounds it was the broadcast, since it lingers.
    int64_t num_rounds = 0;
    // How often it was retired.
    int64_t num_times = 0;
  };
  Retired& Retire(const std::string& digest, int64_t size_bytes, absl::Time now);
  Retired& Retire(const std::string& digest, absl::Time now);
  // Of those that linger, lets go of the earliest until the others are few enough bytes; `newest` stays.
  void LimitLingering(const std::string& newest, absl::Time now);
  // Of those that linger, what live rounds have.
  std::set<std::string> StillHad() const;
  // Who may read `digest` from now on: the populations of the live rounds that have it. What others are patches of
  // stays readable until it goes.
  void ForgetReaders(const std::string& digest);
  // After a start: reads, beside the core, what these are patches of.
  using FoundBases = std::map<std::string, absl::StatusOr<std::vector<std::string>>>;
  void ReadBases(std::set<std::string> digests);
  void OnBasesRead(const FoundBases& found, absl::Time now);

  CoreContext& context_;
  LiveRounds& rounds_;
  OpenBlobs& open_blobs_;
  BroadcastReaders readers_;
  // Of each that is known, what it is a patch of; empty, if it is whole.
  std::map<std::string, std::string> bases_;
  // How many of those are patches of it.
  std::map<std::string, int64_t> num_patches_;
  // After a start: those of which the store could not be asked, to be read again.
  std::set<std::string> unread_;
  absl::Time read_again_;
  // Of those that live rounds have, as far as it is known: a store that is far is not asked again.
  std::map<std::string, int64_t> sizes_;
  // The digest and the size that CheckStored found last.
  std::pair<std::string, int64_t> last_found_;
  std::map<std::string, Told> told_;
  std::map<std::string, Retired> retired_;
};

}  // namespace sheaf
