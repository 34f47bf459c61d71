// PostgresShards: how a database is divided into shards, and which server owns which. A shard is a whole store: the
// first is in the schema that the connection finds, each other one in a schema of its own beside it, with the same
// tables. A population is in one shard for good. So what is proven of a store and its one owner holds for each of them,
// and no statement of a store knows that there are others (docs/adr/0050).
//
//   ASSIGN_OR_RETURN(auto shards, PostgresShards::Open({.conninfo = "postgresql://db/sheaf"}, "server-1",
//                                                        absl::Seconds(4)));
//   ASSIGN_OR_RETURN(const Shard shard, shards->Place("phones"));     // 2
//   const PostgresConnection::Options there = {.conninfo = "postgresql://db/sheaf", .schema = shards->SchemaOf(shard)};
//   ASSIGN_OR_RETURN(const PostgresShards::View view, shards->Look());
//
// Look belongs to one thread, all else is any thread's. The codes of PostgresConnection.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/postgres/postgres_connection.h"
#include "storage/postgres/postgres_owner.h"
#include "storage/postgres/postgres_pool.h"
#include "storage/shard.h"
#include "storage/shard_directory.h"

namespace sheaf {

// The schema of a shard beside `home_schema`, which is that of the first, as an identifier in SQL. Empty for the first.
std::string ShardSchema(std::string_view home_schema, Shard shard);

class PostgresShards final : public ShardDirectory {
 public:
  // Of a database with its schema. `server` is this server's name among the others (PostgresOwner::Options::server); an
  // owner that nothing was heard of for `takeover_after` is none.
  static absl::StatusOr<std::unique_ptr<PostgresShards>> Open(const PostgresConnection::Options& database,
                                                              std::string server, absl::Duration takeover_after);

  struct ShardView {
    Shard shard = kHomeShard;
    // None: it is free.
    std::optional<PostgresOwner::Owner> owner;
  };
  struct Placed {
    std::string population;
    Shard shard = kHomeShard;
  };
  struct View {
    // All that have populations, and the first.
    std::vector<ShardView> shards;
    // That live, and take shards: in the order of their names. Not those that were taken out of service.
    std::vector<std::string> servers;
    // This one was.
    bool is_draining = false;
    // Populations that were placed since the look before; all, if `is_anew`: at first, and where the database has gone
    // back.
    std::vector<Placed> placed;
    bool is_anew = false;
  };
  // Says that this server takes shards, and how things are. Nothing but the first shard while the database has an older
  // schema. Three round trips, O(shards, servers, what is new).
  absl::StatusOr<View> Look();

  // The first shard, too, where this database user may make no schema, where the database has an older one, and where
  // there are kPopulationsMax populations.
  absl::StatusOr<Shard> Place(const std::string& population) override;
  absl::StatusOr<std::vector<Shard>> FindBlob(const std::string& digest) override;
  absl::Status CopyBlob(const std::string& digest, Shard from, Shard to) override;

  // For PostgresConnection::Options::schema; empty for the first.
  std::string SchemaOf(Shard shard) const;

  // So many are placed: each server has their names in memory.
  static constexpr int64_t kPopulationsMax = 10'000;

 private:
  PostgresShards(const PostgresConnection::Options& database, std::unique_ptr<PostgresConnection> watch,
                 std::string server, absl::Duration takeover_after);

  // "\"public_shard_2\".", "\"public\"."
  std::string Qualified(Shard shard) const;
  absl::Status LookAtSchema(PostgresConnection& connection);
  // Returns the newest revision.
  absl::StatusOr<int64_t> LookAtPlacement(View& view);
  absl::Status LookAtServers(View& view);
  // Of new populations, under the lock of `placement`.
  absl::StatusOr<Shard> Choose(PostgresConnection& connection);
  absl::Status MakeShard(Shard shard);
  void NoteUse(Shard shard);
  std::vector<Shard> shards() const;

  const PostgresConnection::Options database_;
  // Look's.
  const std::unique_ptr<PostgresConnection> watch_;
  const std::string server_;
  const absl::Duration takeover_after_;
  PostgresPool pool_;
  // "public", without quotes.
  std::string home_schema_;
  // Look has told all up to this one.
  int64_t revision_ = -1;
  // The database has the schema of shards.
  std::atomic<bool> has_shards_ = false;
  // Those that have populations, as bits.
  std::atomic<uint64_t> used_ = 1;
};

}  // namespace sheaf
