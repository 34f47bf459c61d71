#include "storage/postgres/postgres_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/checksum.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "storage/postgres/postgres_migrations.h"

namespace sheaf {
namespace {

// The version that has populations and placement.
constexpr int64_t kSchemaOfShards = 10;
constexpr int kConnections = 4;
// Who waits for its turn says each second that it lives.
constexpr absl::Duration kSilenceMin = absl::Milliseconds(2500);
// Of a blob that is copied, in one transaction: 8 MiB.
constexpr int64_t kPiecesAtATime = 8;
// PostgreSQL cuts longer names.
constexpr size_t kNameBytesMax = 63;
constexpr size_t kHashCharacters = 16;

// As an identifier in SQL.
std::string Quoted(std::string_view name) {
  std::string quoted = "\"";
  for (const char character : name) quoted += character == '"' ? std::string("\"\"") : std::string(1, character);
  return quoted + "\"";
}

std::string NameOfSchema(std::string_view home_schema, Shard shard) {
  const std::string suffix = fmt::format("_shard_{}", shard);
  if (home_schema.size() + suffix.size() <= kNameBytesMax) return fmt::format("{}{}", home_schema, suffix);
  return fmt::format("sheaf_{}{}", Sha256Hex(home_schema).substr(0, kHashCharacters), suffix);
}

static_assert(kNumShards <= 64);

}  // namespace

std::string ShardSchema(std::string_view home_schema, Shard shard) {
  return shard == kHomeShard ? "" : Quoted(NameOfSchema(home_schema, shard));
}

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
  RETURN_IF_ERROR(shards->watch_->Run({.sql = "-- home_schema\nSELECT current_schema()::text",
                                       .on_row = [&](const SqlRow& row) { shards->home_schema_ = row.String(0); }}));
  return shards;
}

std::string PostgresShards::SchemaOf(Shard shard) const { return ShardSchema(home_schema_, shard); }

std::string PostgresShards::Qualified(Shard shard) const {
  return (shard == kHomeShard ? Quoted(home_schema_) : SchemaOf(shard)) + ".";
}

void PostgresShards::NoteUse(Shard shard) { used_ |= uint64_t{1} << shard; }

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
  RETURN_IF_ERROR(LookAtSchema(*watch_));
  View view;
  if (!has_shards_) {
    view.shards.push_back({});
    return view;
  }
  ASSIGN_OR_RETURN(const int64_t newest, LookAtPlacement(view));
  RETURN_IF_ERROR(LookAtServers(view));
  revision_ = newest;
  return view;
}

absl::Status PostgresShards::LookAtSchema(PostgresConnection& connection) {
  return connection.Run({.sql = "-- schema_version\nSELECT version FROM schema",
                         .on_row = [&](const SqlRow& row) { has_shards_ = row.Int(0) >= kSchemaOfShards; }});
}

absl::StatusOr<int64_t> PostgresShards::LookAtPlacement(View& view) {
  int64_t newest = 0;
  const auto look = [&](int64_t after) {
    view.placed.clear();
    view.is_anew = after < 0;
    return watch_->Run({.sql = R"(-- look_at_placement
        SELECT p.name, p.shard, r.revision FROM placement r LEFT JOIN populations p ON p.revision > $1)",
                        .values = PostgresValues().Add(after),
                        .on_row = [&](const SqlRow& row) {
                          newest = row.Int(2);
                          if (row.IsNull(0)) return;
                          view.placed.push_back({.population = row.String(0), .shard = static_cast<Shard>(row.Int(1))});
                        }});
  };
  RETURN_IF_ERROR(look(revision_));
  // A backup was restored.
  if (newest < revision_) RETURN_IF_ERROR(look(-1));
  for (const Placed& placed : view.placed) NoteUse(placed.shard);
  return newest;
}

absl::Status PostgresShards::LookAtServers(View& view) {
  watch_->Queue(
      {.sql = "-- take_shards\nUPDATE servers SET shards_epoch = epoch WHERE id = $1 AND shards_epoch <> epoch",
       .values = PostgresValues().Add(SqlText(server_))});
  watch_->Queue({.sql = R"(-- servers_of_shards
      SELECT s.id FROM servers s LEFT JOIN owners o ON o.population = '' AND o.server = s.id AND o.server_epoch = s.epoch
       WHERE s.shards_epoch = s.epoch AND NOT EXISTS (SELECT FROM draining_servers d WHERE d.id = s.id)
         AND greatest(s.heartbeat_time, o.heartbeat_time) + $1 * interval '1 microsecond' > clock_timestamp()
       ORDER BY s.id)",
                 .values = PostgresValues().Add(absl::ToInt64Microseconds(std::max(takeover_after_, kSilenceMin))),
                 .on_row = [&](const SqlRow& row) { view.servers.push_back(row.String(0)); }});
  watch_->Queue({.sql = "-- is_draining\nSELECT 1 FROM draining_servers WHERE id = $1",
                 .values = PostgresValues().Add(SqlText(server_)),
                 .on_row = [&](const SqlRow&) { view.is_draining = true; }});
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
                     shard.owner = {
                         .server = row.String(1),
                         .peer = {.address = row.String(2), .certificate = row.String(3), .secret = row.String(4)}};
                   }
                 }});
  return watch_->Fly();
}

// --- Placing -------------------------------------------------------------------------------------

absl::StatusOr<Shard> PostgresShards::Place(const std::string& population) {
  ASSIGN_OR_RETURN(PostgresPool::Borrowed connection, pool_.Borrow());
  if (!has_shards_) RETURN_IF_ERROR(LookAtSchema(*connection));
  if (!has_shards_) return kHomeShard;
  std::optional<Shard> placed;
  const auto find = [&] {
    connection->Queue({.sql = "-- find_population\nSELECT shard FROM populations WHERE name = $1",
                       .values = PostgresValues().Add(SqlText(population)),
                       .on_row = [&](const SqlRow& row) { placed = static_cast<Shard>(row.Int(0)); }});
  };
  find();
  bool is_older = false;
  int64_t num_populations = 0;
  // Those that are older than shards have rounds in the first.
  connection->Queue({.sql = "-- has_rounds\nSELECT 1 FROM rounds WHERE population = $1 LIMIT 1",
                     .values = PostgresValues().Add(SqlText(population)),
                     .on_row = [&](const SqlRow&) { is_older = true; }});
  connection->Queue({.sql = "-- count_all_populations\nSELECT count(*) FROM populations",
                     .on_row = [&](const SqlRow& row) { num_populations = row.Int(0); }});
  RETURN_IF_ERROR(connection->Fly());
  if (!placed && num_populations >= kPopulationsMax) return kHomeShard;
  if (!placed) {
    const auto place = [&]() -> absl::Status {
      placed.reset();
      // One after the other, whichever servers do it.
      connection->Queue({.sql = "-- lock_placement\nUPDATE placement SET revision = revision + 1",
                         .change = {{.num_rows = 1, .otherwise = absl::DataLossError("placement has no row")}}});
      find();
      RETURN_IF_ERROR(connection->Fly());
      if (placed) return absl::OkStatus();
      placed = kHomeShard;
      if (!is_older) {
        ASSIGN_OR_RETURN(placed, Choose(*connection));
      }
      connection->Queue({.sql = "-- place\nINSERT INTO populations (name, shard, revision) "
                                "SELECT $1, $2, revision FROM placement",
                         .values = PostgresValues().Add(SqlText(population)).Add(int64_t{*placed})});
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(RunTransaction(*connection, place));
    LogInfo("population {} is in shard {}", population, *placed);
  }
  NoteUse(*placed);
  return *placed;
}

absl::StatusOr<Shard> PostgresShards::Choose(PostgresConnection& connection) {
  std::array<int64_t, kNumShards> num_populations = {};
  RETURN_IF_ERROR(connection.Run({.sql = "-- count_populations\nSELECT shard, count(*) FROM populations GROUP BY shard",
                                  .on_row = [&](const SqlRow& row) {
                                    if (row.Int(0) < kNumShards)
                                      num_populations[static_cast<size_t>(row.Int(0))] = row.Int(1);
                                  }}));
  const auto fewest = std::min_element(num_populations.begin(), num_populations.end());
  const auto shard = static_cast<Shard>(fewest - num_populations.begin());
  if (shard == kHomeShard || *fewest > 0) return shard;
  const absl::Status made = MakeShard(shard);
  if (!absl::IsPermissionDenied(made)) {
    RETURN_IF_ERROR(made);
    return shard;
  }
  LogWarning("a population stays in the first shard, because this server may make no other: {}",
             std::string(made.message()));
  return kHomeShard;
}

absl::Status PostgresShards::MakeShard(Shard shard) {
  PostgresConnection::Options options = database_;
  {
    ASSIGN_OR_RETURN(const auto connection, PostgresConnection::Open(options));
    bool is_there = false;
    // Who may make none may use one that is there.
    RETURN_IF_ERROR(
        connection->Run({.sql = "-- is_schema\nSELECT 1 FROM pg_namespace WHERE convert_to(nspname::text, 'UTF8') = $1",
                         .values = PostgresValues().Add(SqlText(NameOfSchema(home_schema_, shard))),
                         .on_row = [&](const SqlRow&) { is_there = true; }}));
    if (!is_there) {
      RETURN_IF_ERROR(
          connection->RunScript(fmt::format("-- make_shard\nCREATE SCHEMA IF NOT EXISTS {}", SchemaOf(shard))));
    }
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
  RETURN_IF_ERROR(connection->Run(
      {.sql = std::move(sql), .values = PostgresValues().Add(SqlText(digest)), .on_row = [&](const SqlRow& row) {
         found.push_back(static_cast<Shard>(row.Int(0)));
       }}));
  std::sort(found.begin(), found.end());
  return found;
}

absl::Status PostgresShards::CopyBlob(const std::string& digest, Shard from, Shard to) {
  PostgresConnection::Options options = database_;
  // Spelled out: the tables of `to` are then the ones without a schema.
  options.schema = to == kHomeShard ? Quoted(home_schema_) : SchemaOf(to);
  // Its own: each pair of shards has other texts, which a connection keeps.
  ASSIGN_OR_RETURN(const auto connection, PostgresConnection::Open(options));
  bool is_there = false;
  int64_t size_bytes = 0;
  int64_t from_key = 0;
  int64_t to_key = 0;
  connection->Queue(
      {.sql = fmt::format("-- blob_to_copy\nSELECT size_bytes, content_key FROM {}blobs WHERE digest = $1",
                          Qualified(from)),
       .values = PostgresValues().Add(SqlText(digest)),
       .on_row = [&](const SqlRow& row) {
         is_there = true;
         size_bytes = row.Int(0);
         from_key = row.Int(1);
       }});
  connection->Queue({.sql = "-- new_content_key\nSELECT nextval('content_keys')",
                     .on_row = [&](const SqlRow& row) { to_key = row.Int(0); }});
  RETURN_IF_ERROR(connection->Fly());
  const absl::Status gone = absl::NotFoundError(fmt::format("there is no blob {}", digest));
  if (!is_there) return gone;
  // In pieces: nobody waits for locks meanwhile, and no statement takes long.
  for (int64_t num_bytes = 0; num_bytes < size_bytes;) {
    const int64_t before = num_bytes;
    RETURN_IF_ERROR(
        connection->Run({.sql = fmt::format(R"(-- copy_pieces
        WITH copied AS (
          INSERT INTO content_pieces (content_key, place, bytes)
          SELECT $1, place, bytes FROM {}content_pieces WHERE content_key = $2 AND place >= $3 ORDER BY place LIMIT $4
          RETURNING place + octet_length(bytes) AS place_after)
        SELECT coalesce(max(place_after), 0) FROM copied)",
                                            Qualified(from)),
                         .values = PostgresValues().Add(to_key).Add(from_key).Add(before).Add(kPiecesAtATime),
                         .on_row = [&](const SqlRow& row) { num_bytes = row.Int(0); }}));
    // It was deleted meanwhile; what was copied of it, whoever owns the shard deletes.
    if (num_bytes <= before) return gone;
  }
  bool is_named = false;
  RETURN_IF_ERROR(RunTransaction(*connection, [&]() -> absl::Status {
    is_named = false;
    // All of it, and nobody has deleted a part of it as what nothing names.
    connection->Queue({.sql = R"(-- name_copy
        INSERT INTO blobs (digest, size_bytes, content_key)
        SELECT $1, $2, $3
         WHERE $2 = (SELECT coalesce(sum(octet_length(bytes)), 0) FROM content_pieces WHERE content_key = $3)
        ON CONFLICT (digest) DO NOTHING RETURNING 1)",
                       .values = PostgresValues().Add(SqlText(digest)).Add(size_bytes).Add(to_key),
                       .on_row = [&](const SqlRow&) { is_named = true; }});
    return connection->Fly();
  }));
  if (is_named) return absl::OkStatus();
  bool has_one = false;
  connection->Queue({.sql = "-- forget_copy\nDELETE FROM content_pieces WHERE content_key = $1",
                     .values = PostgresValues().Add(to_key)});
  connection->Queue({.sql = "-- has_blob\nSELECT 1 FROM blobs WHERE digest = $1",
                     .values = PostgresValues().Add(SqlText(digest)),
                     .on_row = [&](const SqlRow&) { has_one = true; }});
  RETURN_IF_ERROR(connection->Fly());
  return has_one ? absl::OkStatus() : absl::UnavailableError(fmt::format("blob {} was not copied whole", digest));
}

}  // namespace sheaf
