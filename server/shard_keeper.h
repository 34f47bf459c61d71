// ShardKeeper: what a server of a database does about the shards beside the first: it hears which there are and whose
// they are, takes what is free, and gives some to servers that have fewer.
//
//   ASSIGN_OR_RETURN(PostgresShards::View view, shards->Look());
//   ShardKeeper keeper(server, *shards, view, clock, {.database = {.conninfo = "postgresql://db/sheaf"},
//                                                     .directory = "/var/lib/sheaf",
//                                                     .name = "server-1",
//                                                     .make_random = make_random});
//   keeper.Stop();              // What it has is given away, and calls go there.
//
// All servers do the same by what the database says of all of them: whoever has fewest takes what is free, and whoever
// has two more than another gives one. What two take at the same time one of them gets. A server that was taken out of
// service counts for nobody: it gives all that it has, and takes nothing, as long as there is another. A look costs
// three round trips, ten times a second, whatever is stored. Has a thread of its own; all else is main's.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/random.h"
#include "server/shared_server.h"
#include "server/threads/strand_pool.h"
#include "storage/postgres/open.h"
#include "storage/postgres/peer_address.h"
#include "storage/postgres/postgres_connection.h"
#include "storage/postgres/postgres_shards.h"
#include "storage/postgres/postgres_token_watch.h"
#include "storage/records.h"
#include "storage/shard.h"

namespace sheaf {

class ShardKeeper {
 public:
  struct Options {
    PostgresConnection::Options database;
    // The server's own.
    std::string directory;
    // As PostgresOwner::Options.
    std::string name;
    std::string address;
    PeerAddress peer;
    absl::Duration takeover_after = absl::Seconds(4);
    // Between two signs of life of a server that reads a store.
    absl::Duration beat_interval = absl::Milliseconds(800);
    // For each shard.
    std::function<std::unique_ptr<Random>()> make_random;
  };
  // Of a database with its schema, of which `view` is the first look. All must outlive it; what it serves outlives the
  // server, if it outlives the server.
  ShardKeeper(SharedServer& server, PostgresShards& shards, const PostgresShards::View& view, const Clock& clock,
              Options options);
  // Stops.
  ~ShardKeeper();

  // What this server has is given back, and, where there are others, known to be theirs. Takes no longer than calls
  // that are open and the database let it, and some ten seconds where they do not. Stopping twice is fine.
  void Stop();

  // The first store is to be another server's: this one was taken out of service, and there are others. Any thread's.
  bool leaves_first_to_others() const { return leaves_first_to_others_; }

 private:
  // Of one shard. While a job is at work with it nobody else is.
  struct Kept {
    Shard shard = kHomeShard;
    SharedStore* store = nullptr;
    // What it moves bytes by while the shard is another server's. Null: it moves none.
    std::shared_ptr<PostgresPayloadStore> payloads;
    bool is_busy = false;
    // While it is here.
    std::optional<PostgresStore> owned;
    // Of the tokens that it was told.
    int64_t tokens_number = 0;
    std::unique_ptr<Random> random;
    // Another server has it.
    bool is_elsewhere = false;
    // Since when it has no owner; never, while it has one.
    absl::Time free_since = absl::InfiniteFuture();
    // Not to be taken before, because it was given away, or could not be served.
    absl::Time rests_until = absl::InfinitePast();
    // Not to be given away before; how often it came back, because nobody else could serve it.
    absl::Time stays_until = absl::InfinitePast();
    int num_returns = 0;
  };

  void Run();
  absl::Status Look();
  void Hear(const PostgresShards::View& view);
  void LookAtTokens();
  void HearOfPlacement(const PostgresShards::View& view);
  void HearOfOwners(const PostgresShards::View& view);
  void LookAtPayloads();
  void Balance(const PostgresShards::View& view);
  void GiveAll();
  bool GivesOne(const PostgresShards::View& view, int num_own, int fewest);
  Kept& Keep(Shard shard);
  bool IsBusy(const Kept& kept) EXCLUDES(mutex_);
  // Beside the thread, one after the other of a shard.
  void Do(Kept& kept, const std::function<void(Kept&)>& job) EXCLUDES(mutex_);
  void Take(Kept& kept);
  absl::Status TakeAndServe(Kept& kept);
  void TellTokens(Kept& kept);
  // False if its calls are not answered within `patience`.
  bool Give(Kept& kept, absl::Duration patience);

  SharedServer& server_;
  PostgresShards& shards_;
  const Clock& clock_;
  const Options options_;
  std::unique_ptr<PostgresTokenWatch> token_watch_;
  absl::Time next_token_look_ = absl::InfinitePast();
  absl::Time next_payload_look_;
  // Populations whose workers may still come to the first shard, and until when.
  std::map<std::string, absl::Time> just_placed_;
  // When a shard was free last.
  absl::Time last_free_ = absl::InfinitePast();
  // The thread's; only what jobs do with one of them is theirs.
  std::map<Shard, std::unique_ptr<Kept>> kept_;
  absl::Status last_look_;
  std::atomic<bool> leaves_first_to_others_ = false;
  mutable Mutex mutex_;
  CondVar stop_;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  std::vector<TokenRecord> tokens_ GUARDED_BY(mutex_);
  // Grows with each change.
  int64_t tokens_number_ GUARDED_BY(mutex_) = 0;
  StrandPool jobs_{4};
  std::thread thread_;
};

}  // namespace sheaf
