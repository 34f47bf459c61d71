#include "storage/directory/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "storage/directory/database_copy.h"
#include "storage/directory/open.h"
#include "storage/files/blob_files.h"
#include "storage/files/checkpoint_files.h"
#include "storage/files/file_system.h"
#include "storage/files/spool_files.h"
#include "storage/sql/state_names.h"

namespace sheaf {
namespace {

// What the database says that the files of one live round must hold.
struct LiveRoundFiles {
  std::string checkpoint;
  std::set<int64_t> segments;
};

std::string Sentence(const absl::Status& status) { return std::string(status.message()); }

class FileLaws {
 public:
  FileLaws(SqlConnection& connection, const std::string& directory)
      : connection_(connection),
        directory_(directory),
        blobs_(files_, directory + "/blobs"),
        spools_(files_, directory + "/spools"),
        checkpoints_(files_, directory + "/checkpoints") {}

  absl::Status Check(std::vector<Law>& laws) {
    RETURN_IF_ERROR(FindLiveRounds());
    ASSIGN_OR_RETURN(Law pending, CheckPending());
    laws.push_back(std::move(pending));
    laws.push_back(CheckCheckpoints());
    ASSIGN_OR_RETURN(Law blobs, CheckBlobs());
    laws.push_back(std::move(blobs));
    return absl::OkStatus();
  }

  // The files that no record names.
  absl::StatusOr<std::vector<std::string>> FindOrphans(int64_t& num_files, int64_t& num_unused_blobs);

 private:
  absl::Status FindLiveRounds();
  absl::StatusOr<Law> CheckPending();
  Law CheckCheckpoints();
  absl::StatusOr<Law> CheckBlobs();

  SqlConnection& connection_;
  const std::string directory_;
  PosixFileSystem files_;
  BlobFiles blobs_;
  SpoolFiles spools_;
  CheckpointFiles checkpoints_;
  std::map<RoundId, LiveRoundFiles> live_;
  std::set<std::string> blobs_named_;
};

absl::Status FileLaws::FindLiveRounds() {
  return connection_
      .Execute("-- verify_live\nSELECT id, checkpoint FROM rounds WHERE $IS_LIVE"_sql, {},
               [&](const SqlRow& row) { live_[RoundId(row.Bytes(0))].checkpoint = row.String(1); })
      .status();
}

absl::StatusOr<Law> FileLaws::CheckPending() {
  Law law{.name = "no pending contribution is missing from the spool, or changed"};
  RETURN_IF_ERROR(connection_
                      .Execute(R"(-- verify_pending
      SELECT r.id, c.sequence, c.spool_segment, c.spool_offset, c.spool_length, c.spool_crc, c.digest, c.size_bytes
        FROM rounds r JOIN contributions c ON c.round_key = r.round_key AND c.sequence > r.checkpoint_sequence
       WHERE r.$IS_LIVE AND c.spool_segment > 0)"_sql,
                               {},
                               [&](const SqlRow& row) {
                                 ++law.num_checked;
                                 const RoundId round(row.Bytes(0));
                                 const SpoolRef ref{.segment = row.Int(2),
                                                    .offset = row.Int(3),
                                                    .length = row.Int(4),
                                                    .crc = static_cast<uint32_t>(row.Int(5))};
                                 live_[round].segments.insert(ref.segment);
                                 const absl::StatusOr<std::string> bytes = spools_.Read(round, ref);
                                 const auto violate = [&](const std::string& what) {
                                   law.violations.push_back(
                                       fmt::format("contribution {} of round {}: {}", row.Int(1), round, what));
                                 };
                                 if (!bytes.ok()) return violate(Sentence(bytes.status()));
                                 if (static_cast<int64_t>(bytes->size()) != row.Int(7) ||
                                     Sha256Hex(*bytes) != row.Bytes(6)) {
                                   violate("its bytes in the spool are not those that were accepted");
                                 }
                               })
                      .status());
  return law;
}

Law FileLaws::CheckCheckpoints() {
  Law law{.name = "no checkpoint is missing, or changed"};
  for (const auto& [round, expected] : live_) {
    if (expected.checkpoint.empty()) continue;
    ++law.num_checked;
    const absl::Status status = checkpoints_.Read(round, expected.checkpoint).status();
    if (!status.ok()) law.violations.push_back(Sentence(status));
  }
  return law;
}

absl::StatusOr<Law> FileLaws::CheckBlobs() {
  Law law{.name = "no broadcast of a live round and no aggregate is missing, or changed"};
  std::map<std::string, std::string> users;
  RETURN_IF_ERROR(connection_
                      .Execute(R"(-- verify_blobs
      SELECT broadcast_digest, 'the broadcast of round ' || id, $IS_LIVE FROM rounds WHERE broadcast_digest <> ''
      UNION ALL
      SELECT x.aggregate_digest, 'the aggregate of round ' || r.id, 1
        FROM round_texts x JOIN rounds r ON r.round_key = x.round_key WHERE x.aggregate_digest <> '')"_sql,
                               {},
                               [&](const SqlRow& row) {
                                 blobs_named_.insert(row.String(0));
                                 if (row.Int(2) != 0) users.emplace(row.String(0), row.String(1));
                               })
                      .status());
  for (const auto& [digest, user] : users) {
    ++law.num_checked;
    const absl::Status status = blobs_.OpenBlob(digest).status();
    if (!status.ok()) law.violations.push_back(fmt::format("{}: {}", user, Sentence(status)));
  }
  return law;
}

absl::StatusOr<std::vector<std::string>> FileLaws::FindOrphans(int64_t& num_files, int64_t& num_unused_blobs) {
  std::vector<std::string> orphans;
  for (const std::string kind : {"spools", "checkpoints"}) {
    ASSIGN_OR_RETURN(const std::vector<std::string> rounds, files_.List(directory_ + "/" + kind));
    for (const std::string& encoded : rounds) {
      const std::string round_directory = fmt::format("{}/{}/{}", directory_, kind, encoded);
      const auto found = live_.find(RoundId(DecodeFileName(encoded)));
      ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.List(round_directory));
      for (const std::string& name : names) {
        ++num_files;
        const bool is_named =
            found != live_.end() && (kind == "spools" ? found->second.segments.contains(std::atoll(name.c_str()))
                                                      : name == found->second.checkpoint + ".ckpt");
        if (!is_named) orphans.push_back(round_directory + "/" + name);
      }
    }
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> blobs, files_.List(directory_ + "/blobs"));
  for (const std::string& name : blobs) {
    ++num_files;
    if (!IsSha256Hex(name)) orphans.push_back(fmt::format("{}/blobs/{}", directory_, name));
    // Somebody may be about to create a round with it.
    if (IsSha256Hex(name) && !blobs_named_.contains(name)) ++num_unused_blobs;
  }
  return orphans;
}

std::string CountText(size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

bool StoreReport::holds() const {
  return std::all_of(laws.begin(), laws.end(), [](const Law& law) { return law.violations.empty(); });
}

absl::StatusOr<StoreReport> VerifyStore(const std::string& directory, const std::string& scratch) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StoreHold> hold, StoreHold::Take(directory));
  std::string holder = DirectoryLock::HolderOf(directory);
  StoreReport report;
  absl::StatusOr<DatabaseCopy> copy = CopyDatabase(*hold, directory, scratch + "/tasks.db", CopyUse::kLook);
  if (absl::IsDataLoss(copy.status())) {
    report.laws.push_back({.name = "the database is whole, page by page", .violations = {Sentence(copy.status())}});
    report.notes.push_back("nothing else can be checked in a damaged database");
    return report;
  }
  RETURN_IF_ERROR(copy.status());
  absl::StatusOr<std::vector<Law>> laws = VerifyDatabase(*copy->connection);
  RETURN_IF_ERROR(laws.status());
  report.laws = *std::move(laws);
  FileLaws files(*copy->connection, directory);
  RETURN_IF_ERROR(files.Check(report.laws));

  Law law{.name = "no payload is an orphan"};
  int64_t num_unused_blobs = 0;
  ASSIGN_OR_RETURN(const std::vector<std::string> orphans, files.FindOrphans(law.num_checked, num_unused_blobs));
  // A server that has started meanwhile has begun files of its own.
  if (holder.empty()) holder = DirectoryLock::HolderOf(directory);
  if (!holder.empty() || copy->has_log) {
    // They may be newer than the copy, or about to be deleted.
    const std::string why = holder.empty() ? "the store was not closed in order; the next start deletes them"
                                           : fmt::format("{} works on the store", holder);
    if (!orphans.empty()) {
      report.notes.push_back(
          fmt::format("{} that no record names: {}", CountText(orphans.size(), "payload file"), why));
    }
  } else {
    for (const std::string& path : orphans) law.violations.push_back(fmt::format("no record names {}", path));
  }
  report.laws.push_back(std::move(law));
  if (num_unused_blobs > 0) {
    report.notes.push_back(fmt::format("{} that no round names yet, or any more",
                                       CountText(static_cast<size_t>(num_unused_blobs), "blob")));
  }
  if (copy->schema_version != copy->newest_version) {
    report.notes.push_back(fmt::format("the database has schema version {}; it was checked as version {} will see it",
                                       copy->schema_version, copy->newest_version));
  }
  return report;
}

}  // namespace sheaf
