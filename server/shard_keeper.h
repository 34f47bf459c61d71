// ShardKeeper: what a server of a database does about the shards beside the first: it hears which there are and whose they
// are, takes what is free, and gives some to servers that have fewer.
//
//   ASSIGN_OR_RETURN(auto keeper, ShardKeeper::Start(server, clock, {.database = {.conninfo = "postgresql://db/sheaf"},
//                                                                    .directory = "/var/lib/sheaf",
//                                                                    .name = "server-1"}));
//   keeper->Stop();              // What it has is given away, and calls go there.
//
// All servers do the same by what the database says of all of them: whoever has fewest takes what is free, and whoever has
// two more than another gives one. What two take at the same time one of them gets. A look costs two round trips, ten
// times a second, whatever is stored. Has a thread of its own; Start and Stop are main's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
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
  };
  // Of a database with its schema. Both must outlive it.
  static absl::StatusOr<std::unique_ptr<ShardKeeper>> Start(SharedServer& server, const Clock& clock, Options options);
  // Stops.
  ~ShardKeeper();

  // What this server has is given back, and, where there are others, known to be theirs. Stopping twice is fine.
  void Stop();

 private:
  // Of one shard. While a job is at work with it nobody else is.
  struct Kept {
    Shard shard = kHomeShard;
    SharedStore* store = nullptr;
    bool is_busy = false;
    // While it is here.
    std::optional<PostgresStore> owned;
    SystemRandom random;
    // Since when it has no owner; never, while it has one.
    absl::Time free_since = absl::InfiniteFuture();
    // Not to be taken before, because it was given away, or could not be served.
    absl::Time rests_until = absl::InfinitePast();
    // Another server has it.
    bool is_elsewhere = false;
  };

  ShardKeeper(SharedServer& server, const Clock& clock, Options options, std::unique_ptr<PostgresShards> shards)
      : server_(server), clock_(clock), options_(std::move(options)), shards_(std::move(shards)) {}

  void Run();
  absl::Status Look();
  void LookAtTokens();
  void HearOfPlacement(const std::vector<PostgresShards::Placed>& placed);
  void HearOfOwners(const PostgresShards::View& view);
  void Balance(const PostgresShards::View& view);
  Kept& Keep(Shard shard);
  bool IsBusy(Kept& kept) EXCLUDES(mutex_);
  // Beside the thread, one after the other of a shard.
  void Do(Kept& kept, const std::function<void(Kept&)>& job) EXCLUDES(mutex_);
  void Take(Kept& kept);
  absl::Status TakeAndServe(Kept& kept);
  void Give(Kept& kept);
  std::vector<TokenRecord> tokens() EXCLUDES(mutex_);

  SharedServer& server_;
  const Clock& clock_;
  const Options options_;
  const std::unique_ptr<PostgresShards> shards_;
  std::unique_ptr<PostgresTokenWatch> token_watch_;
  absl::Time next_token_look_ = absl::InfinitePast();
  // The thread's; only what jobs do with one of them is theirs.
  std::map<Shard, std::unique_ptr<Kept>> kept_;
  absl::Status last_look_;
  Mutex mutex_;
  CondVar stop_;
  bool is_stopping_ GUARDED_BY(mutex_) = false;
  std::vector<TokenRecord> tokens_ GUARDED_BY(mutex_);
  StrandPool jobs_{4};
  std::thread thread_;
};

}  // namespace sheaf
