// SpoolFiles: per round a directory of numbered segments, "<number>.log" for appended records and
// "<number>.<digest>" for an upload that became a segment of its own. A SpoolRef finds a record and its checksum checks
// it: CRC-32 for appended records, the first four bytes of the file's SHA-256 for the others (whose digest is checked
// in full).
//
// A segment of an earlier process is never appended to: its tail may be torn. Thread-safe; an append is one write to
// the page cache under the lock, a flush holds no lock.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "storage/files/file_system.h"
#include "storage/payload_store.h"

namespace sheaf {

class SpoolFiles {
 public:
  SpoolFiles(FileSystem& files, std::string directory) : files_(files), directory_(std::move(directory)) {}

  absl::Status Open() { return files_.CreateDirectory(directory_); }

  absl::StatusOr<SpoolRef> Append(const RoundId& round, std::string_view bytes);
  // Takes in, under another name, a file whose bytes are durable and known to have this digest.
  absl::StatusOr<SpoolRef> Link(const RoundId& round, const std::string& path, const std::string& digest,
                                int64_t size_bytes);
  absl::Status Sync();
  absl::StatusOr<std::string> Read(const RoundId& round, const SpoolRef& ref);
  struct Segment {
    std::string path;
    // Of the upload that it was, in hex; empty if records were appended to it.
    std::string digest;
  };
  // NOT_FOUND.
  absl::StatusOr<Segment> FindSegment(const RoundId& round, int64_t number);
  absl::StatusOr<int64_t> Roll(const RoundId& round);
  absl::Status DeleteSegments(const RoundId& round, int64_t through);
  absl::Status DeleteRound(const RoundId& round);
  absl::StatusOr<std::vector<RoundId>> ListRounds();

 private:
  struct Spool {
    // File names by segment number.
    std::map<int64_t, std::string> segments;
    int64_t newest = 0;
    // The open segment; null if the next append begins one.
    std::shared_ptr<File> file;
    int64_t size_bytes = 0;
    // The directory was created by this process.
    bool has_directory = false;
  };

  std::string DirectoryOf(const RoundId& round) const { return directory_ + "/" + EncodeFileName(round.value()); }
  // Reads the directory the first time.
  absl::StatusOr<Spool*> Find(const RoundId& round) REQUIRES(mutex_);
  // Creates the round's directory unless that was done, and has the next Sync flush the names in it.
  absl::Status PrepareDirectory(const RoundId& round, Spool& spool) REQUIRES(mutex_);
  absl::Status BeginSegment(const RoundId& round, Spool& spool) REQUIRES(mutex_);

  FileSystem& files_;
  const std::string directory_;
  Mutex mutex_;
  std::map<RoundId, Spool> spools_ GUARDED_BY(mutex_);
  // What the next Sync has to flush.
  std::set<std::shared_ptr<File>> unsynced_files_ GUARDED_BY(mutex_);
  std::set<std::string> unsynced_directories_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
