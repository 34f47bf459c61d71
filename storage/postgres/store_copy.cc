#include "storage/postgres/store_copy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "storage/directory/database_copy.h"
#include "storage/directory/open.h"
#include "storage/files/file_system.h"
#include "storage/files/store_hold.h"
#include "storage/postgres/conninfo.h"
#include "storage/postgres/postgres_migrations.h"
#include "storage/postgres/postgres_owner.h"
#include "storage/postgres/postgres_pool.h"
#include "storage/postgres/unfinished_copy.h"
#include "storage/sql/migrator.h"
#include "storage/sql/state_names.h"

namespace sheaf {
namespace {

// As the database knows who copies. Always the same: a copy that is started again has the database at once.
constexpr char kServer[] = "store-copy";
// Of advisory locks in this database, that of copies; the one before is that of migrations.
constexpr int64_t kCopyLock = 0x7368656167;
// A disk that hangs for a while ends no copy that has gone on for hours.
constexpr absl::Duration kTimeout = absl::Minutes(5);

// Of a database the tables of payloads; the others are those of the directory's database.
constexpr const char* kPayloadTables[] = {"blobs",        "checkpoints",   "content_pieces",
                                          "spool_pieces", "spool_uploads", "uploads"};

// The directory's side: locked, and readable as of now.
struct Source {
  std::string directory;
  std::unique_ptr<DirectoryLock> lock;
  std::unique_ptr<StoreHold> hold;
  DatabaseCopy database;
};

absl::Status CheckVersion(const Source& source) {
  const int newest = SqliteMigrations().back().version;
  const int version = source.database.schema_version;
  if (version == newest) return absl::OkStatus();
  if (version > newest) {
    return absl::FailedPreconditionError(
        fmt::format("the store in {} has schema version {}; this build knows version {}: copy it with the newer build",
                    source.directory, version, newest));
  }
  return absl::FailedPreconditionError(fmt::format(
      "the store in {} has schema version {}; what is copied must have version {}: run `sheaf store migrate {}` first",
      source.directory, version, newest, source.directory));
}

absl::StatusOr<Source> OpenSource(const StoreCopyParams& params) {
  Source source{.directory = params.directory};
  while (source.directory.size() > 1 && source.directory.back() == '/') source.directory.pop_back();
  // First, so that looking at a directory that is no store makes no lock in it.
  if (!PosixFileSystem().GetStat(source.directory + "/tasks.db").ok()) {
    return absl::NotFoundError(fmt::format("{} is not a store: it has no tasks.db", source.directory));
  }
  RETURN_IF_ERROR(CheckIsNoBackup(source.directory));
  if (const std::string holder = DirectoryLock::HolderOf(source.directory); !holder.empty()) {
    return absl::FailedPreconditionError(
        fmt::format("{} works on the store in {}: stop it first", holder, source.directory));
  }
  ASSIGN_OR_RETURN(source.lock, DirectoryLock::Take(source.directory));
  ASSIGN_OR_RETURN(source.hold, StoreHold::Take(source.directory));
  ASSIGN_OR_RETURN(source.database,
                   CopyDatabase(*source.hold, source.directory, params.scratch + "/tasks.db", CopyUse::kKeep));
  RETURN_IF_ERROR(CheckVersion(source));
  return source;
}

absl::Status CheckEmpty(PostgresConnection& to, const std::vector<std::string>& tables) {
  std::vector<std::string> used;
  for (const std::string& table : tables) {
    to.Queue(
        {.sql = fmt::format("-- is_used\nSELECT EXISTS (SELECT FROM {})", table), .on_row = [&](const SqlRow& row) {
           if (row.Int(0) != 0) used.push_back(table);
         }});
  }
  RETURN_IF_ERROR(to.Fly());
  if (used.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{} has a store already, with rows in {}; nothing is overwritten: name an empty database", to.name(),
                  fmt::join(used, ", ")));
}

absl::Status LockCopies(PostgresConnection& to) {
  // Of the session: until this connection ends.
  absl::Status locked =
      to.Run({.sql = "-- lock_copies\nSELECT pg_advisory_lock($1)", .values = PostgresValues().Add(kCopyLock)});
  if (!absl::IsUnavailable(locked) || !to.is_connected()) return locked;
  return absl::FailedPreconditionError(fmt::format("{}: another `sheaf store copy` writes into it", to.name()));
}

// What is copied is no server: nobody needs to see it among them.
void QueueLeave(PostgresConnection& to) {
  to.Queue({.sql = "-- leave\nDELETE FROM servers WHERE id = $1", .values = PostgresValues().Add(SqlText(kServer))});
}

// From here on no server begins to use the database, and none that was stopped goes on with it.
absl::Status Mark(PostgresConnection& to, PostgresOwner& owner, const Source& source,
                  const std::vector<std::string>& tables) {
  const auto mark = [&]() -> absl::Status {
    to.Queue(owner.Fence());
    to.Queue({.sql = fmt::format("-- lock_tables\nLOCK TABLE {} IN ACCESS EXCLUSIVE MODE", fmt::join(tables, ", "))});
    RETURN_IF_ERROR(CheckEmpty(to, tables));
    // What copies that were given up have left in the files goes at once, and not with the next vacuum.
    to.Queue({.sql = fmt::format("-- clear_tables\nTRUNCATE {}", fmt::join(tables, ", "))});
    QueueBeginCopy(to, source.directory);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunTransaction(to, mark));
  owner.Committed();
  return absl::OkStatus();
}

absl::Status CopyAll(PostgresConnection& to, PostgresOwner& owner, Source& source,
                     const std::vector<std::string>& tables, StoreCopySummary& summary) {
  SqlConnection& from = *source.database.connection;
  PayloadCopy payloads(from, source.directory, to);
  return RunTransaction(to, [&]() -> absl::Status {
    std::vector<TableCopy> copies;
    for (const std::string& table : tables) {
      ASSIGN_OR_RETURN(TableCopy copy, TableCopy::Open(from, to, table));
      RETURN_IF_ERROR(copy.Write());
      copies.push_back(std::move(copy));
    }
    RETURN_IF_ERROR(payloads.Write());
    for (TableCopy& copy : copies) {
      ASSIGN_OR_RETURN(CopiedTable copied, copy.Verify());
      summary.tables.push_back(std::move(copied));
    }
    RETURN_IF_ERROR(payloads.Verify());
    summary.payloads = payloads.counts();
    // Behind all that takes its time: whoever has taken the database meanwhile is found out here.
    to.Queue(owner.Fence());
    QueueEndCopy(to);
    QueueLeave(to);
    return owner.Release();
  });
}

}  // namespace

absl::StatusOr<StoreCopySummary> CopyStoreToPostgres(const StoreCopyParams& params) {
  RETURN_IF_ERROR(CheckHasNoPassword(params.conninfo));
  ASSIGN_OR_RETURN(Source source, OpenSource(params));
  ASSIGN_OR_RETURN(const std::vector<std::string> tables, TableCopy::ListTables(*source.database.connection));
  std::vector<std::string> all = tables;
  all.insert(all.end(), std::begin(kPayloadTables), std::end(kPayloadTables));

  ASSIGN_OR_RETURN(const std::unique_ptr<PostgresConnection> to,
                   PostgresConnection::Open({.conninfo = params.conninfo, .timeout = kTimeout}));
  StoreCopySummary summary{.to = to->name(), .schema_version = source.database.schema_version};
  RETURN_IF_ERROR(MakePostgresSchema(*to));
  RETURN_IF_ERROR(LockCopies(*to));
  // Before the database hears of this copy.
  RETURN_IF_ERROR(CheckEmpty(*to, all));
  const absl::StatusOr<std::unique_ptr<PostgresOwner>> owner =
      PostgresOwner::Take(*to, {.server = kServer, .address = source.directory});
  if (!owner.ok()) {
    QueueLeave(*to);
    to->Fly().IgnoreError();
    return owner.status();
  }
  RETURN_IF_ERROR(Mark(*to, **owner, source, all));
  RETURN_IF_ERROR(source.database.connection
                      ->Execute("-- count_live\nSELECT count(*) FROM rounds WHERE $IS_LIVE"_sql, {},
                                [&](const SqlRow& row) { summary.num_live_rounds = row.Int(0); })
                      .status());
  RETURN_IF_ERROR(CopyAll(*to, **owner, source, tables, summary));
  return summary;
}

}  // namespace sheaf
