#include "storage/postgres/postgres_shards.h"

#include <fmt/format.h>

#include <array>

#include "base/log.h"
#include "base/status_macros.h"
#include "storage/postgres/postgres_migrations.h"

namespace sheaf {
namespace {

// The version that has populations and placement.
constexpr int64_t kSchemaOfShards = 10;
constexpr int kConnections = 2;
// Who takes shards is heard of each second, and more often.
constexpr absl::Duration kSilenceMax = absl::Seconds(5);

// As an identifier in SQL.
std::string Quoted(std::string_view name) {
  std::string quoted = "\"";
  for (const char character : name) quoted += character == '"' ? std::string("\"\"") : std::string(1, character);
  return quoted + "\"";
}

static_assert(PostgresShards::kNumShards <= kLastShard + 1 && PostgresShards::kNumShards <= 64);

}  // namespace

PostgresShards::PostgresShards(const PostgresConnection::Options& database, std::unique_ptr<PostgresConnection> watch,
                               std::string server, absl::Duration takeover_after)
    : database_(database),
      watch_(std::move(watch)),
      server_(std::move(server)),
      takeover_after_(takeover_after),
      pool_(database, kConnections) {}

absl::StatusOr<std::unique_ptr<PostgresShards>> PostgresShards::Open(const PostgresConnection::Options& database,
                                                                     std::string server,
                                                                     absl::Duration takeover_after) {
  ASSIGN_OR_RETURN(auto watch, PostgresConnection::Open(database));
  std::unique_ptr<PostgresShards> shards(
      new PostgresShards(database, std::move(watch), std::move(server), takeover_after));
  RETURN_IF_ERROR(
      shards->watch_->Run({.sql = "-- home_schema\nSELECT current_schema()::text",
                           .on_row = [&](const SqlRow& row) { shards->home_schema_ = row.String(0); }}));
  return shards;
}

std::string PostgresShards::SchemaOf(Shard shard) const {
  return shard == kHomeShard ? "" : Quoted(fmt::format("{}_shard_{}", home_schema_, shard));
}

std::string PostgresShards::Qualified(Shard shard) const {
  return shard == kHomeShard ? "" : SchemaOf(shard) + ".";
}

std::vector<Shard> PostgresShards::shards() const {
  std::vector<Shard> all;
  const uint64_t used = used_;
  for (Shard shard = 0; shard < kNumShards; ++shard) {
    if ((used >> shard & 1) != 0) all.push_back(shard);
  }
  return all;
}

// --- Looking -------------------------------------------------------------------------------------

absl::StatusOr<PostgresShards::View> PostgresShards::Look() {
  if (!watch_->is_connected()) RETURN_IF_ERROR(watch_->Connect());
  int64_t version = 0;
  RETURN_IF_ERROR(watch_->Run({.sql = "-- schema_version\nSELECT version FROM schema",
                               .on_row = [&](const SqlRow& row) { version = row.Int(0); }}));
  View view;
  if (version < kSchemaOfShards) {
    view.shards.push_back({});
    return view;
  }
  RETURN_IF_ERROR(LookAtPlacement(view));
  RETURN_IF_ERROR(LookAtServers(view));
  return view;
}

absl::Status PostgresShards::LookAtPlacement(View& view) {
  int64_t newest = revision_;
  RETURN_IF_ERROR(watch_->Run({.sql = R"(-- look_at_placement
      SELECT p.name, p.shard, r.revision FROM placement r LEFT JOIN populations p ON p.revision > $1)",
                               .values = PostgresValues().Add(revision_),
                               .on_row = [&](const SqlRow& row) {
                                 newest = row.Int(2);
                                 if (row.IsNull(0)) return;
                                 view.placed.push_back(
                                     {.population = row.String(0), .shard = static_cast<Shard>(row.Int(1))});
                               }}));
  for (const Placed& placed : view.placed) used_ |= uint64_t{1} << placed.shard;
  revision_ = newest;
  return absl::OkStatus();
}

absl::Status PostgresShards::LookAtServers(View& view) {
  watch_->Queue({.sql = "-- take_shards\nUPDATE servers SET shards_epoch = epoch WHERE id = $1 AND shards_epoch <> epoch",
                 .values = PostgresValues().Add(SqlText(server_))});
  watch_->Queue({.sql = R"(-- servers_of_shards
      SELECT s.id FROM servers s LEFT JOIN owners o ON o.population = '' AND o.server = s.id AND o.server_epoch = s.epoch
       WHERE s.shards_epoch = s.epoch
         AND greatest(s.heartbeat_time, o.heartbeat_time) + $1 * interval '1 microsecond' > clock_timestamp()
       ORDER BY s.id)",
                 .values = PostgresValues().Add(absl::ToInt64Microseconds(std::max(takeover_after_, kSilenceMax))),
                 .on_row = [&](const SqlRow& row) { view.servers.push_back(row.String(0)); }});
  std::string owners = "-- owners_of_shards\n";
  for (const Shard shard : shards()) {
    view.shards.push_back({.shard = shard});
    owners += fmt::format(R"({}
      SELECT {}, o.server, s.peer_address, s.peer_certificate, s.peer_secret
        FROM {}owners o JOIN {}servers s ON s.id = o.server AND s.epoch = o.server_epoch
       WHERE o.population = ''
         AND greatest(o.heartbeat_time, s.heartbeat_time) + $1 * interval '1 microsecond' > clock_timestamp())",
                          view.shards.size() > 1 ? "\n UNION ALL" : "", shard, Qualified(shard), Qualified(shard));
  }
  watch_->Queue({.sql = std::move(owners),
                 .values = PostgresValues().Add(absl::ToInt64Microseconds(takeover_after_)),
                 .on_row = [&](const SqlRow& row) {
                   for (ShardView& shard : view.shards) {
                     if (shard.shard != row.Int(0)) continue;
                     shard.owner = {.server = row.String(1),
                                    .peer = {.address = row.String(2),
                                             .certificate = row.String(3),
                                             .secret = row.String(4)}};
                   }
                 }});
  return watch_->Fly();
}

// --- Placing -------------------------------------------------------------------------------------

absl::StatusOr<Shard> PostgresShards::Place(const std::string& population) {
  ASSIGN_OR_RETURN(PostgresPool::Borrowed connection, pool_.Borrow());
  std::optional<Shard> placed;
  const auto find = [&] {
    connection->Queue({.sql = "-- find_population\nSELECT shard FROM populations WHERE name = $1",
                       .values = PostgresValues().Add(SqlText(population)),
                       .on_row = [&](const SqlRow& row) { placed = static_cast<Shard>(row.Int(0)); }});
  };
  find();
  RETURN_IF_ERROR(connection->Fly());
  if (!placed) {
    RETURN_IF_ERROR(RunTransaction(*connection, [&]() -> absl::Status {
      placed.reset();
      // One after the other, whichever servers do it.
      connection->Queue({.sql = "-- lock_placement\nUPDATE placement SET revision = revision + 1",
                         .change = {{.num_rows = 1, .otherwise = absl::DataLossError("placement has no row")}}});
      find();
      RETURN_IF_ERROR(connection->Fly());
      if (placed) return absl::OkStatus();
      ASSIGN_OR_RETURN(placed, Choose(*connection, population));
      connection->Queue({.sql = "-- place\nINSERT INTO populations (name, shard, revision) "
                                "SELECT $1, $2, revision FROM placement",
                         .values = PostgresValues().Add(SqlText(population)).Add(int64_t{*placed})});
      return absl::OkStatus();
    }));
    LogInfo("population {} is in shard {}", population, *placed);
  }
  used_ |= uint64_t{1} << *placed;
  return *placed;
}

absl::StatusOr<Shard> PostgresShards::Choose(PostgresConnection& connection, const std::string& population) {
  bool has_rounds = false;
  std::array<int64_t, kNumShards> num_populations = {};
  // Those that are older than shards are where they were.
  connection.Queue({.sql = "-- has_rounds\nSELECT 1 FROM rounds WHERE population = $1 LIMIT 1",
                    .values = PostgresValues().Add(SqlText(population)),
                    .on_row = [&](const SqlRow&) { has_rounds = true; }});
  connection.Queue({.sql = "-- count_populations\nSELECT shard, count(*) FROM populations GROUP BY shard",
                    .on_row = [&](const SqlRow& row) {
                      if (row.Int(0) < kNumShards) num_populations[static_cast<size_t>(row.Int(0))] = row.Int(1);
                    }});
  RETURN_IF_ERROR(connection.Fly());
  if (has_rounds) return kHomeShard;
  const auto fewest = std::min_element(num_populations.begin(), num_populations.end());
  const auto shard = static_cast<Shard>(fewest - num_populations.begin());
  if (shard == kHomeShard || *fewest > 0) return shard;
  const absl::Status made = MakeShard(shard);
  if (!absl::IsPermissionDenied(made)) {
    RETURN_IF_ERROR(made);
    return shard;
  }
  LogWarning("population {} stays in the first shard: {}", population, std::string(made.message()));
  return kHomeShard;
}

absl::Status PostgresShards::MakeShard(Shard shard) {
  PostgresConnection::Options options = database_;
  {
    ASSIGN_OR_RETURN(const auto connection, PostgresConnection::Open(options));
    RETURN_IF_ERROR(
        connection->RunScript(fmt::format("-- make_shard\nCREATE SCHEMA IF NOT EXISTS {}", SchemaOf(shard))));
  }
  options.schema = SchemaOf(shard);
  ASSIGN_OR_RETURN(const auto connection, PostgresConnection::Open(options));
  return MakePostgresSchema(*connection);
}

// --- Blobs ---------------------------------------------------------------------------------------

absl::StatusOr<std::vector<Shard>> PostgresShards::FindBlob(const std::string& digest) {
  ASSIGN_OR_RETURN(PostgresPool::Borrowed connection, pool_.Borrow());
  std::vector<Shard> found;
  std::string sql = "-- find_blob\n";
  for (const Shard shard : shards()) {
    sql += fmt::format("{}SELECT {} FROM {}blobs WHERE digest = $1", shard == kHomeShard ? "" : "\n UNION ALL ", shard,
                       Qualified(shard));
  }
  RETURN_IF_ERROR(connection->Run({.sql = std::move(sql),
                                   .values = PostgresValues().Add(SqlText(digest)),
                                   .on_row = [&](const SqlRow& row) {
                                     found.push_back(static_cast<Shard>(row.Int(0)));
                                   }}));
  return found;
}

absl::Status PostgresShards::CopyBlob(const std::string& digest, Shard from, Shard to) {
  ASSIGN_OR_RETURN(PostgresPool::Borrowed connection, pool_.Borrow());
  return RunTransaction(*connection, [&]() -> absl::Status {
    bool is_there = false;
    bool is_copied = false;
    // Nobody deletes it meanwhile.
    connection->Queue({.sql = fmt::format("-- hold_blob\nSELECT FROM {}blobs WHERE digest = $1 FOR KEY SHARE",
                                          Qualified(from)),
                       .values = PostgresValues().Add(SqlText(digest)),
                       .on_row = [&](const SqlRow&) { is_there = true; }});
    connection->Queue({.sql = fmt::format(R"(-- copy_blob
        INSERT INTO {1}blobs (digest, size_bytes, content_key)
        SELECT digest, size_bytes, nextval('{1}content_keys') FROM {0}blobs WHERE digest = $1
        ON CONFLICT (digest) DO NOTHING RETURNING content_key)",
                                          Qualified(from), Qualified(to)),
                       .values = PostgresValues().Add(SqlText(digest)),
                       .on_row = [&](const SqlRow&) { is_copied = true; }});
    RETURN_IF_ERROR(connection->Fly());
    if (!is_there) return absl::NotFoundError(fmt::format("there is no blob {}", digest));
    if (!is_copied) return absl::OkStatus();
    connection->Queue({.sql = fmt::format(R"(-- copy_pieces
        INSERT INTO {1}content_pieces (content_key, place, bytes)
        SELECT copied.content_key, piece.place, piece.bytes
          FROM {0}blobs blob JOIN {0}content_pieces piece ON piece.content_key = blob.content_key
          JOIN {1}blobs copied ON copied.digest = blob.digest
         WHERE blob.digest = $1)",
                                          Qualified(from), Qualified(to)),
                       .values = PostgresValues().Add(SqlText(digest))});
    return connection->Fly();
  });
}

}  // namespace sheaf
